"""Lines gone wrong, by thousands: no error but ours, no wrong row taken, no good row lost, and counts that add up."""

import gzip
import random
from contextlib import suppress
from itertools import islice

import pytest
from criteo_mutations import is_valid, lines_of, mutate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_files import criteo_line, in_file_order, load

from vflbench.data.criteo import Criteo
from vflbench.data.csv import Csv
from vflbench.errors import UserError

GOOD = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}).encode() for i in range(24)]


def check(path, content: bytes) -> None:
    """Against the reference of good lines, both ways of dealing with bad ones."""
    path.write_bytes(content)
    good = [line for _, line in lines_of(content) if is_valid(line)]
    bad = [number for number, line in lines_of(content) if not is_valid(line)]
    found = load(Criteo(path=str(path), bad_rows="skip", max_bad_fraction=1.0))
    assert in_file_order(found)[2].tolist() == [int(line[:1]) for line in good]
    told = found.facts.get("bad_rows", {"count": 0, "first": []})
    assert told["count"] == len(bad)
    assert [text.split(":")[0] for text in told["first"]] == [f"line {number}" for number in bad[:5]]
    assert bool(found.notes) == bool(bad)
    if bad:
        with pytest.raises(UserError, match=f"line {bad[0]}:"):
            load(Criteo(path=str(path)))
    else:
        assert load(Criteo(path=str(path))).fingerprint == found.fingerprint


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [4000, 1 << 20])
def test_mutated_lines(tmp_path, monkeypatch, seed, block):
    monkeypatch.setattr("vflbench.data.files.BLOCK_BYTES", block)
    rng = random.Random(seed)
    check(tmp_path / "x", b"\n".join([*GOOD, *(mutate(rng.choice(GOOD), rng) for _ in range(400))]) + b"\n")


@pytest.mark.data
@pytest.mark.slow
def test_mutated_real_lines(tmp_path, data_folder):
    """10,000 of them; scripts/fuzz_criteo.py does it for as long as one likes."""
    rng = random.Random(0)
    with gzip.open(data_folder / "criteo" / "train.txt.gz") as stream:
        real = [line.rstrip(b"\n") for line in islice(stream, 10_000)]
    check(tmp_path / "x", b"\n".join([*GOOD, *(mutate(line, rng) for line in real)]) + b"\n")


FIELDS = [b"0", b"1", b"", b"-3", b"7", b"ab", b"\xff", b" ", b"0x1"]
near_criteo = st.lists(
    st.one_of(
        st.sampled_from(GOOD),
        st.lists(
            st.sampled_from([b"0", b"1", b"", b"-3", b"7", b"ab", b"\xff", b" ", b"0x1"]), min_size=38, max_size=42
        ).map(b"\t".join),
        st.binary(max_size=40),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(near_criteo, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_any_bytes_in_place_of_lines(tmp_path, lines, end, last):
    check(tmp_path / "x", end.join([*GOOD, *lines]) + (end if last else b""))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_table_end_in_rows_or_in_an_error_of_ours(tmp_path, content):
    (tmp_path / "x").write_bytes(b"a,y\n1,0\n" + content)
    for bad_rows in ("error", "skip"):
        with suppress(UserError):
            found = Csv(path=str(tmp_path / "x"), label="y", bad_rows=bad_rows, max_bad_fraction=1.0).prepare()
            assert len(found.table) >= 1
