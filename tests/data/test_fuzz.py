"""Damaged lines: every error is a UserError, no wrong row is accepted, no good row is lost, and the counts add up."""

import gzip
import random
from contextlib import suppress
from itertools import islice

import pytest
from criteo_mutations import is_valid, lines_of, mutate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_files import criteo_line, error_of, in_file_order, load

from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.errors import UserError

GOOD = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}).encode() for i in range(24)]


def check(path, content: bytes) -> None:
    """Compare both ways of dealing with bad rows with the reference of good lines."""
    path.write_bytes(content)
    good = [line for _, line in lines_of(content) if is_valid(line)]
    bad = [number for number, line in lines_of(content) if not is_valid(line)]
    skipped = load(Criteo(path=str(path), bad_rows="skip", max_bad_fraction=1.0))
    assert in_file_order(skipped)[2].tolist() == [int(line[:1]) for line in good]
    recorded = skipped.facts.get("bad_rows", {"count": 0, "first": []})
    assert recorded["count"] == len(bad)
    assert [text.split(":")[0] for text in recorded["first"]] == [f"row {number}" for number in bad[:5]]
    assert bool(skipped.notes) == bool(bad)
    if bad:
        assert f"row {bad[0]:,}:" in error_of(Criteo(path=str(path)))
    else:
        assert load(Criteo(path=str(path))).fingerprint == skipped.fingerprint


@pytest.mark.slow
def test_mutated_lines(tmp_path, monkeypatch):
    for block in (4000, 1 << 20):
        monkeypatch.setattr("vflbench.data.text.BLOCK_BYTES", block)
        for seed in range(3):
            rng = random.Random(seed)
            mutated = [line for _ in range(400) if len(line := mutate(rng.choice(GOOD), rng)) < block]
            check(tmp_path / f"{block}-{seed}", b"\n".join([*GOOD, *mutated]) + b"\n")


@pytest.mark.data
@pytest.mark.slow
def test_mutated_real_lines(tmp_path, data_folder):
    """10,000 of them."""
    rng = random.Random(0)
    with gzip.open(data_folder / "criteo" / "train.txt.gz") as stream:
        real = [line.rstrip(b"\n") for line in islice(stream, 10_000)]
    check(tmp_path / "x", b"\n".join([*GOOD, *(mutate(line, rng) for line in real)]) + b"\n")


FIELDS = [b"0", b"1", b"", b"-3", b"7", b"ab", b"\xff", b" ", b"0x1"]
near_criteo = st.lists(
    st.one_of(
        st.sampled_from(GOOD),
        st.lists(st.sampled_from(FIELDS), min_size=38, max_size=42).map(b"\t".join),
        st.binary(max_size=40),
    ),
    max_size=12,
)
any_lines = given(near_criteo, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
any_bytes = given(st.binary(max_size=300))
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def check_lines(tmp_path, lines, end, last):
    check(tmp_path / "x", end.join([*GOOD, *lines]) + (end if last else b""))


def check_table(tmp_path, content):
    (tmp_path / "x").write_bytes(b"a,y\n1,0\n" + content)
    for bad_rows in ("error", "skip"):
        with suppress(UserError):
            prepared = Csv(path=str(tmp_path / "x"), label="y", bad_rows=bad_rows, max_bad_fraction=1.0).prepare()
            assert len(prepared.table) >= 1


@pytest.mark.slow
@few
@any_lines
def test_any_bytes_in_place_of_lines(tmp_path, lines, end, last):
    check_lines(tmp_path, lines, end, last)


@pytest.mark.slow
@few
@any_bytes
def test_a_table_of_any_bytes_gives_rows_or_a_user_error(tmp_path, content):
    check_table(tmp_path, content)
