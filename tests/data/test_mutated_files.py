"""Mutated lines or files for each reader: a table that a plain parser confirms, or one printable paragraph."""

import io
import math
import pickle
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image
from support.cifar_files import pickled, pictures
from support.plain_parsers import MISSING, is_label, real, records
from support.raw_files import criteo_line
from support.text_mutations import mutate, mutate_bytes

from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.data.pictures import Cifar10, Cifar100, ImageFolder
from vflbench.errors import UserError

LINES, FILES = 400, 60
SKIP = {"bad_rows": "skip", "max_bad_fraction": 1.0}


@dataclass(frozen=True)
class Row:
    """label: the text of its class. numbers, words: of its numeric and categorical columns."""

    label: str
    numbers: list[float]
    words: list[str]


def is_text(fields: list[str]) -> bool:
    """Without NUL and without bytes that are no UTF-8."""
    return not any(c == "\0" or "\udc80" <= c <= "\udcff" for field in fields for c in field)


def lines_of(body: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape") for line in re.split(rb"\r\n?|\n", body) if line]


def criteo(body: bytes) -> list[Row | None]:
    """The rows of a body, None for a bad one: 40 fields, a label of 0 or 1, and 13 numbers or nothing."""
    rows: list[Row | None] = []
    for fields in (line.split("\t") for line in lines_of(body)):
        fits = len(fields) == 40 and is_text(fields) and fields[0] in ("0", "1")
        numbers = [field for field in fields[1:14] if field] if fits else []
        fits = fits and all(real(field) is not None for field in numbers)
        rows.append(Row(fields[0], [real(n) if n else math.nan for n in fields[1:14]], fields[14:]) if fits else None)
    return rows


def table(body: bytes) -> list[Row | None]:
    """Of a number, a word and a label, with quotes that may hold line ends."""
    rows: list[Row | None] = []
    for fields in records(body, ",", multiline=True):
        fits = fields is not None and len(fields) == 3 and is_text(fields) and is_label(fields[2])
        fits = fits and (fields[0] in MISSING or real(fields[0]) is not None)
        numbers = [math.nan if fields[0] in MISSING else real(fields[0])] if fits else []
        rows.append(Row(fields[2].strip(), numbers, ["" if fields[1] in MISSING else fields[1]]) if fits else None)
    return rows


@dataclass(frozen=True)
class Reader:
    """good: lines. mark: between their fields. make: of a path. rows: what the plain parser reads."""

    good: list[str]
    mark: bytes
    make: Callable
    rows: Callable[[bytes], list[Row | None]]
    positive: str = "1"
    header: bytes = b""


CLICKS = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}) for i in range(24)]
WORDS = [f"{i},w{i % 3},{'yes' if i % 3 else 'no'}" for i in range(24)]
OF_WORDS = {"label": "y", "types": {"n": "numeric", "c": "categorical"}, "positive": "yes", **SKIP}
READERS = {
    "criteo": Reader(CLICKS, b"\t", lambda path: Criteo(path=path, **SKIP), criteo),
    "csv": Reader(WORDS, b",", lambda path: Csv(path=path, **OF_WORDS), table, positive="yes", header=b"n,c,y\n"),
}


@pytest.mark.parametrize("name", READERS)
def test_no_good_row_is_lost_and_no_bad_one_is_accepted(name, tmp_path):
    reader, rng = READERS[name], random.Random(19)
    good = [line.encode() for line in reader.good]
    body = b"\n".join([*good, *(mutate(rng.choice(good), reader.mark, rng) for _ in range(LINES))])
    (tmp_path / "x").write_bytes(reader.header + body)
    read, facts = reader.make(str(tmp_path / "x")).read(None)
    expected = reader.rows(body)
    rows = [row for row in expected if row is not None]
    assert facts["bad_rows"]["count"] == len(expected) - len(rows) > LINES // 10
    assert read.labels.tolist() == [int(row.label == reader.positive) for row in rows]
    numbers = read.numeric.astype(float) + 0.0
    np.testing.assert_array_equal(numbers, np.array([row.numbers for row in rows]).reshape(len(rows), -1))
    for j, name in enumerate(read.categorical_names):
        words = [row.words[j] for row in rows]
        distinct = sorted(set(words), key=str.encode)
        assert read.categorical[:, j].tolist() == [distinct.index(word) for word in words], name


PIXELS, CLASSES = pictures(2)
ROWS = np.hstack([CLASSES[:, None], CLASSES[:, None], PIXELS.reshape(2, -1)]).astype(np.uint8).tobytes()
VALUES = {"batch_label": "training batch", "labels": [3, 4], "data": PIXELS.reshape(2, -1), "filenames": ["a.png", "b.png"]}
PICKLES = [pickled(VALUES), *(pickle.dumps(VALUES, protocol=protocol) for protocol in (2, 3, 4))]


def head_or_tail(content: bytes, rng: random.Random) -> bytes:
    """Changed near its head or near its tail: what is between are pixels."""
    if rng.random() < 0.5:
        return mutate_bytes(content[:400], rng) + content[400:]
    return content[:-400] + mutate_bytes(content[-400:], rng)


def binary_pictures(folder, rng):
    content = head_or_tail(ROWS, rng)
    (folder / "train.bin").write_bytes(content)

    def confirm(read, _):
        planes = np.frombuffer(content, np.uint8).reshape(-1, 3074)
        assert read.labels.tolist() == planes[:, 1].tolist()
        assert read.numeric.tobytes() == planes[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).tobytes()

    return Cifar100(path=str(folder)), confirm


def pickled_pictures(folder, rng):
    """It gives pictures of the right shape, or one paragraph; it calls nothing else."""
    (folder / "test_batch").write_bytes(head_or_tail(rng.choice(PICKLES), rng))

    def confirm(read, _):
        assert (read.numeric.shape, read.numeric.dtype) == ((len(read.labels), 3072), np.uint8)

    return Cifar10(path=str(folder)), confirm


def image_files(folder, rng):
    colours = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(colours).save(buffer, rng.choice(("PNG", "BMP", "GIF", "JPEG", "TIFF", "PPM", "WEBP")))
    for name, content in (("a", buffer.getvalue()), ("b", mutate_bytes(buffer.getvalue(), rng))):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "1").write_bytes(content)

    def confirm(read, facts):
        assert (read.numeric.shape, read.numeric.dtype) == ((2, 20), np.uint8)
        assert facts["class_names"] == ["a", "b"]

    return ImageFolder(path=str(folder)), confirm


@pytest.mark.parametrize("mutated", [binary_pictures, pickled_pictures, image_files])
def test_a_file_is_read_as_what_it_holds_or_refused(mutated, tmp_path):
    rng, refusals = random.Random(19), []
    for _ in range(FILES):
        dataset, confirm = mutated(tmp_path, rng)
        try:
            read, facts = dataset.read(None)
        except UserError as error:
            refusals.append(str(error))
        else:
            confirm(read, facts)
    assert all(text.isprintable() and len(text) < 1000 for text in refusals)
    assert 0 < len(refusals) < 0.95 * FILES
