"""The compiled parser against the careful one: the same rows, bytes and errors, or it leaves the block to the other."""

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from criteo_mutations import mutate as mutate_criteo
from raw_files import avazu_line, criteo_line, error_of, load, write
from text_mutations import mutate as mutate_text
from volume import volume

from vflbench.data import compiled
from vflbench.data.avazu import FORMAT as AVAZU
from vflbench.data.avazu import Avazu, _split_hour
from vflbench.data.block_codes import block_codes
from vflbench.data.blocks import Block
from vflbench.data.criteo import FORMAT as CRITEO
from vflbench.data.criteo import Criteo
from vflbench.data.csv import Csv
from vflbench.data.distinct import Distinct
from vflbench.data.files import Part
from vflbench.data.fixed_layout import FixedLayout, is_fixed
from vflbench.data.parse import parse
from vflbench.data.vocabulary import GrowingVocabulary, unpack
from vflbench.errors import UserError

scan = pytest.importorskip("vflbench.data.scan")

CRITEO_LINES = [criteo_line(i % 2, {1: i, 2: -i % 3 - 2, 3: ""}, {1: f"{i % 3:08x}", 4: ""}).encode() for i in range(12)]
AVAZU_LINES = [avazu_line(click=f"{i % 2}", hour=f"{14102100 + i}", device_id=f"{i:08x}").encode() for i in range(12)]
HOURS = replace(AVAZU, finish=_split_hour)


@pytest.fixture
def _at_any_size(monkeypatch):
    monkeypatch.setattr(compiled, "LEAST_BYTES", 0)
    monkeypatch.setattr(compiled, "LEAST_BYTES_AT_FIRST", 0)


def rows(codes) -> tuple:
    """What a block's numbers stand for."""
    texts = []
    for values, column, counts in zip(codes.values, codes.codes, codes.counts, strict=True):
        words = (unpack(values) if isinstance(values, np.ndarray) else values).to_pylist()
        assert np.bincount(column, minlength=len(words)).tolist() == counts.tolist()
        texts.append([words[code] for code in column])
    return codes.rows, codes.numeric.tolist(), codes.numeric.dtype, texts, codes.names, codes.bad


def compared(content: bytes, form, limit=None) -> bool:
    """Whether the compiled parser took the text; if so, as the careful one does."""
    block = Block(Part(Path("x")), 1, content)
    codes = FixedLayout(form, scan).codes(block, form.columns, limit)
    if codes is not None:
        assert rows(codes) == rows(block_codes(parse(block, form, form.columns, limit), form.label)), content
        assert not codes.bad
    return codes is not None


def test_plain_lines_are_taken_whatever_their_end():
    for form, lines in ((CRITEO, CRITEO_LINES), (AVAZU, AVAZU_LINES), (HOURS, AVAZU_LINES)):
        for end in (b"\n", b"\r\n"):
            for last in (b"", end):
                if end + last != b"\r\n":
                    assert compared(end.join(lines) + last, form), (end, last)
        for limit in (1, 5, 12, 20):
            assert compared(b"\n".join(lines), form, limit)
        assert compared(b"\n".join([*lines, b"bad"]), form, len(lines))
        assert not compared(b"\n".join([*lines, b"bad"]), form, len(lines) + 1)


def test_numbers_of_any_length():
    edges = [0, 1, 9, 10, 9999, 999_999, 10**6, 10**7 - 1, 10**7, 10**8 - 1, 10**8, 10**9, 2**31 - 1]
    for number in [*edges, *(-n for n in edges)]:
        for text in (str(number), f"00{number}" if number >= 0 else f"-00{-number}"):
            line = criteo_line(1, {1: text, 13: text}).encode()
            assert compared(line, CRITEO) or len(text) > 10, text
    for text in (
        "-",
        "--1",
        "+1",
        "1-",
        " 1",
        "1.0",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9" * 11,
        "9" * 400,
        "1\x0b",
    ):
        for column in (1, 13):
            assert not compared(criteo_line(1, {column: text}).encode(), CRITEO), text


def test_categories_of_any_length_and_ignored_values_of_many():
    for length in range(12):
        assert compared(criteo_line(0, {}, {1: "x" * length, 26: "y" * length}).encode(), CRITEO) == (length <= 8)
        assert compared(avazu_line(C1="x" * length, C21="y" * length).encode(), AVAZU) == (length <= 8)
    for length in (0, 1, 7, 8, 9, 100, 4000, 5000, 2 << 20):
        assert compared(avazu_line(id="1" * length).encode(), AVAZU) == (length < 4200)
    for odd in ('"', '""', "\x00", "\x1f", "\x7f", "\xe9", "\r"):
        for where in ("id", "C1", "C21", "click"):
            compared(avazu_line(**{where: odd}).encode(), AVAZU)
    assert compared(criteo_line(0, {}, {3: '"'}).encode(), CRITEO)  # without a header, quotes are characters


def mutated(seed: int, count: int) -> None:
    rng, taken = random.Random(seed), 0
    for _ in range(count):
        taken += compared(mutate_criteo(rng.choice(CRITEO_LINES), rng), CRITEO)
        line = mutate_text(rng.choice(AVAZU_LINES), b",", rng)
        taken += compared(line, AVAZU) + compared(b"\n".join([*AVAZU_LINES, line]), HOURS)
    assert taken > count / 4


def test_mutated_lines_are_read_as_the_careful_parser_does():
    mutated(0, 100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 2))
def test_many_mutated_lines_are_read_as_the_careful_parser_does(seed):
    mutated(seed, volume(12_000))


def bytes_of(dataset) -> dict[str, bytes] | str:
    """The files of the prepared table, or the error."""
    try:
        folder = dataset.prepare().folder
    except UserError as error:
        return str(error)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.slow
def test_the_prepared_table_is_the_same_to_the_byte(tmp_path, monkeypatch):
    rng = random.Random(0)
    monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", 6000)
    monkeypatch.setattr("vflbench.data.vocabulary._LEAST_COMPILED", 10)
    monkeypatch.setattr("vflbench.data.vocabulary._PIECE", 16)
    bad = [mutate_criteo(rng.choice(CRITEO_LINES), rng) for _ in range(6)]
    odd = [criteo_line(1, {1: 2**40}).encode(), criteo_line(0, {}, {2: "a long category", 3: "\u00e9"}).encode()]
    texts = {
        "good": b"\n".join(CRITEO_LINES * 30),
        "bad": b"\r\n".join([*CRITEO_LINES * 20, *bad, *CRITEO_LINES * 20]),
        "late reals": b"\n".join([*CRITEO_LINES * 20, odd[0], *CRITEO_LINES * 20]),
        "long": b"\n".join([*CRITEO_LINES * 20, odd[1], *CRITEO_LINES * 20]) + b"\n",
    }
    avazu = ",".join(AVAZU.columns).encode()
    for name, content in texts.items():
        write(tmp_path / name, content, compress=name == "long")
    write(tmp_path / "avazu", b"\n".join([avazu, *AVAZU_LINES * 30, mutate_text(AVAZU_LINES[0], b",", rng)]))
    write(tmp_path / "empty", b"")
    datasets = [
        *(Criteo(path=str(tmp_path / name), bad_rows="skip", max_bad_fraction=0.5) for name in texts),
        *(Criteo(path=str(tmp_path / name)) for name in [*texts, "empty"]),
        Criteo(path=[str(tmp_path / "good"), str(tmp_path / "long")]),
        Criteo(path=str(tmp_path / "bad"), rows=250),
        Criteo(path=str(tmp_path / "bad"), rows=10),
        *(Avazu(path=str(tmp_path / "avazu"), hour=hour, bad_rows="skip") for hour in ("raw", "day_and_hour")),
    ]
    tables = []
    for least in (1 << 60, 0):
        monkeypatch.setattr(compiled, "LEAST_BYTES", least)
        monkeypatch.setattr(compiled, "LEAST_BYTES_AT_FIRST", least)
        monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / f"cache {least}"))
        tables.append([bytes_of(dataset) for dataset in datasets])
        assert not list((tmp_path / f"cache {least}" / "building").iterdir())
    for dataset, careful, quick in zip(datasets, *tables, strict=True):
        assert careful == quick, dataset
    assert sum(isinstance(table, dict) for table in tables[0]) > 8


def test_keys_made_to_collide_are_left_to_sorting(tmp_path):
    """Multiples of the inverse of the hash's factor share their highest bits: each would be compared with all before it."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    keys = np.array([n * inverse % (1 << 64) for n in range(20_000)], np.uint64)
    assert Distinct(scan).add(keys, np.ones(len(keys), np.int64)) is None
    ids = []
    for name, module in (("sorted", None), ("hashed", scan)):
        vocabulary = GrowingVocabulary(tmp_path, name, module)
        vocabulary.add(keys, np.ones(len(keys), np.int64))
        counts, values = vocabulary.unify()
        assert counts.tolist() == [1] * len(keys)
        assert (values[1:] > values[:-1]).all()
        ids.append(vocabulary.next_ids(len(keys)))
    assert np.array_equal(*ids)


def test_distinct_keys_are_those_of_numpy():
    rng = np.random.default_rng(0)
    keys, weights = rng.integers(0, 9000, 40_000).astype(np.uint64) * np.uint64(0x0101010101), rng.integers(1, 9, 40_000)
    distinct = Distinct(scan)
    places = np.concatenate([distinct.add(keys[a : a + 7000], weights[a : a + 7000]) for a in range(0, 40_000, 7000)])
    values, counts, rank = distinct.sorted()
    expected, inverse = np.unique(keys, return_inverse=True)
    assert np.array_equal(values, expected)
    assert np.array_equal(rank[places], inverse)
    assert np.array_equal(counts, np.bincount(inverse, weights))


def test_numba_is_loaded_where_it_pays_and_never_needed(monkeypatch):
    assert compiled.scanner(compiled.LEAST_BYTES - 1) is None
    assert compiled.scanner(1 << 40, rows=1000) is None
    assert compiled.scanner(1 << 40) is scan
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert compiled.scanner(1 << 40) is None
    monkeypatch.delenv("NUMBA_DISABLE_JIT")
    monkeypatch.setattr(compiled, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    assert compiled.scanner(1 << 40) is None


def test_other_layouts_are_not_fixed(tmp_path):
    assert is_fixed(CRITEO)
    assert is_fixed(HOURS)
    table = Csv(path=write(tmp_path / "t.csv", ["a,y", "1,0", "2,1"]), label="y")
    assert not is_fixed(table.text_format([Part(tmp_path / "t.csv")]))


@pytest.mark.data
@pytest.mark.usefixtures("_at_any_size")
def test_real_rows_are_taken_and_read_the_same(data_folder, tmp_path, monkeypatch):
    for dataset in (
        Criteo(path=str(data_folder / "criteo" / "train_head.txt.gz")),
        Avazu(path=str(data_folder / "avazu" / "train.csv.gz"), hour="day_and_hour"),
    ):
        monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "quick"))
        with monkeypatch.context() as patch:
            patch.setattr("vflbench.data.streaming.parse", lambda *_, **__: pytest.fail("a block was not taken"))
            quick = load(dataset)
        monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "careful"))
        with monkeypatch.context() as patch:
            patch.setattr("vflbench.data.streaming.scanner", lambda *_: None)
            careful = load(dataset)
        assert quick.fingerprint == careful.fingerprint


def test_a_bad_row_among_good_blocks_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", 6000)
    path = write(tmp_path / "x", b"\n".join([*CRITEO_LINES * 20, b"bad", *CRITEO_LINES * 20]))
    tables = []
    for least in (1 << 60, 0):
        monkeypatch.setattr(compiled, "LEAST_BYTES", least)
        monkeypatch.setattr(compiled, "LEAST_BYTES_AT_FIRST", least)
        monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / f"cache {least}"))
        tables.append(bytes_of(Criteo(path=path, bad_rows="skip")))
    assert tables[0] == tables[1]
    assert len(tables[0]) > 5


@pytest.mark.usefixtures("_at_any_size")
def test_an_error_is_that_of_the_careful_parser(tmp_path):
    path = write(tmp_path / "x", [*(line.decode() for line in CRITEO_LINES), criteo_line(2)])
    assert error_of(Criteo(path=path)).endswith("line 13: column label: the label is '2'; it must be 0 or 1")
    os.unlink(path)
