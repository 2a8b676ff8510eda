import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflbench.data.vocabulary import GrowingVocabulary, pack, unpack

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
short = words.filter(lambda w: len(w.encode()) <= 8)


@settings(max_examples=50)
@given(st.lists(short, max_size=30))
def test_packing_keeps_the_order_and_the_texts(values):
    keys = pack(pa.array(values, pa.string()))
    assert unpack(keys).to_pylist() == values
    by_key = [values[i] for i in np.argsort(keys, kind="stable")]
    assert by_key == sorted(values, key=lambda w: w.encode())


def test_longer_texts_are_not_packed_and_slices_are():
    assert pack(pa.array(["a", "123456789"])) is None
    assert unpack(pack(pa.array(["123456789", "b", "c"])[1:])).to_pylist() == ["b", "c"]


@pytest.mark.parametrize("length", [3, 20])
def test_ids_follow_the_order_of_the_values_over_all_blocks(tmp_path, length):
    rng = np.random.default_rng(0)
    blocks = []
    vocabulary = GrowingVocabulary(tmp_path, "c")
    for block in range(5):
        numbers = rng.choice(200, 50, replace=False)
        blocks.append([f"{n:03d}".ljust(length if block % 2 else 3, "x") for n in numbers])
        vocabulary.add(pa.array(blocks[-1]), np.full(50, block + 1))
    counts, values = vocabulary.unify()
    expected = sorted({word for block in blocks for word in block})
    texts = unpack(values).to_pylist() if isinstance(values, np.ndarray) else values.to_pylist()
    assert texts == expected
    for block in blocks:
        assert [expected[i] for i in vocabulary.next_ids(50)] == block
    assert counts.tolist() == [sum(k + 1 for k, block in enumerate(blocks) if word in block) for word in expected]
    vocabulary.close()
    assert not list(tmp_path.iterdir())
