import bz2
import gzip
import lzma

import pyarrow as pa
import pytest
from raw_files import write
from small_tables import GOOD, GOOD_NUMBERS, problem_of, table_of

from vflbench.data.blocks import Block, open_parts, read_blocks
from vflbench.data.files import Part, find_parts
from vflbench.data.parse import parse
from vflbench.data.text import TextFormat
from vflbench.errors import UserError


def blocks_of(path, *, quotes):
    return [block for opened in open_parts(find_parts(path)) for block in read_blocks(opened, quotes=quotes)]


def test_blocks_are_whole_lines_numbered_from_1_and_lose_nothing(tmp_path, monkeypatch):
    text = b"".join(b"x" * (i % 9) + b"\n" for i in range(50)) + b"no end"
    path = write(tmp_path / "x", text)
    for size in (1, 7, 30, 1000):
        monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", size)
        blocks = blocks_of(path, quotes=False)
        assert b"".join(b.data for b in blocks) == text, size
        lines = 1
        for block in blocks:
            assert block.first_line == lines, size
            lines += block.data.count(b"\n")
        assert all(block.data.endswith(b"\n") for block in blocks[:-1]), size


def test_line_ends_inside_quotes_do_not_cut_a_row(monkeypatch, tmp_path):
    monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", 5)
    text = b'"b\nc",a\nd,e\n"f\n""g\n",h\n'
    blocks = blocks_of(write(tmp_path / "x", text), quotes=True)
    assert b"".join(b.data for b in blocks) == text
    assert all(b.data.count(b'"') % 2 == 0 for b in blocks)
    form = TextFormat("two", ("x", "y"), label="y", delimiter=",", header=True, binary_label=False, multiline=True)
    rows = parse(Block(Part(tmp_path), 1, text), form, ("x", "y")).table
    assert rows.to_pydict() == {"y": ["a", "e", "h"], "x": ["b\nc", "d", 'f\n"g\n']}


def test_a_quote_that_is_never_closed_is_rejected(monkeypatch, tmp_path):
    monkeypatch.setattr("vflbench.data.blocks.BLOCK_BYTES", 5)
    with pytest.raises(UserError, match="a quote opened after line 2 is not closed"):
        blocks_of(write(tmp_path / "x", b'a,b\n"c,d\n' + b"e,f\n" * 10), quotes=True)


def test_compression_is_recognised_by_content_not_by_name(tmp_path):
    zstd = pa.Codec("zstd")
    ways = {
        "plain.gz": lambda text: text,
        "gzip.txt": gzip.compress,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "zstd": lambda text: zstd.compress(text, asbytes=True),
    }
    for name, compress in ways.items():
        path = tmp_path / name
        path.write_bytes(compress("\n".join(GOOD).encode()))
        assert table_of(str(path))["n"] == GOOD_NUMBERS, name
        if name != "plain.gz":
            path.write_bytes(path.read_bytes()[:-5])
            assert "breaks off" in problem_of(str(path)), name


def test_gzip_files_may_be_joined(tmp_path):
    parts = [gzip.compress(f"{line}\n".encode()) for line in GOOD]
    assert table_of(write(tmp_path / "x", b"".join(parts)))["n"] == GOOD_NUMBERS


def test_a_truncated_gzip_file_is_rejected_even_if_only_its_checksum_is_gone(tmp_path):
    whole = gzip.compress("\n".join(f"{i % 2}\t{i * i}\tc{i}" for i in range(500)).encode())
    for lost in (1, 8, 9, 400):
        problem = problem_of(write(tmp_path / f"{lost}", whole[:-lost]))
        assert problem.startswith("the file breaks off after line "), (lost, problem)


def test_a_gzip_file_whose_checksum_is_wrong_is_rejected(tmp_path):
    """The content is stored uncompressed. The changed digit is a valid field, so only the checksum reveals the change."""
    damaged = gzip.compress("\n".join(GOOD).encode(), compresslevel=0).replace(b"12", b"13")
    assert "CRC check failed" in problem_of(write(tmp_path / "x", damaged))
