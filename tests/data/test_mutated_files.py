"""Mutated lines or files for each reader: a table that a plain parser confirms, or one printable paragraph."""

import io
import math
import pickle
import random
import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from PIL import Image
from support.cifar_files import pickled, pictures
from support.plain_parsers import MISSING, is_label, real, records
from support.raw_files import criteo_line
from support.text_mutations import mutate, mutate_bytes

from vflbench.data.clicklogs import Criteo
from vflbench.data.csv import Csv
from vflbench.data.pictures import Cifar10, ImageFolder
from vflbench.errors import UserError

LINES, FILES = 400, 60
Row = tuple[str, list[str], list[str]]


def is_text(fields: list[str]) -> bool:
    """Without NUL and without bytes that are no UTF-8."""
    return not any(c == "\0" or "\udc80" <= c <= "\udcff" for field in fields for c in field)


def table(body: bytes) -> Iterator[Row | None]:
    """Of a number, a word and a label, with quotes that may hold line ends, delimiters and quotes."""
    for fields in records(body, ",", multiline=True):
        fits = fields is not None and len(fields) == 3 and is_text(fields) and is_label(fields[2])
        fits = fits and (fields[0] in MISSING or real(fields[0]) is not None)
        yield (fields[2].strip(), fields[:1], ["" if fields[1] in MISSING else fields[1]]) if fits else None


def criteo(body: bytes) -> Iterator[Row | None]:
    """Of 40 fields: a label of 0 or 1, 13 numbers or nothing, and words."""
    for line in filter(None, re.split(rb"\r\n?|\n", body)):
        fields = line.decode("utf-8", "surrogateescape").split("\t")
        fits = len(fields) == 40 and is_text(fields) and fields[0] in ("0", "1")
        fits = fits and all(real(field) is not None for field in fields[1:14] if field)
        yield (fields[0], fields[1:14], fields[14:]) if fits else None


OPTIONS = {"bad_rows": "skip", "max_bad_fraction": 1.0}
OF_TABLE = {"label": "y", "types": {"n": "numeric", "c": "categorical"}, "positive": "yes", "missing_as": "zero", **OPTIONS}
READERS = {
    "table": (table, [f"{i},w{i % 3},{'yes' if i % 3 else 'no'}" for i in range(24)], b"n,c,y\n", partial(Csv, **OF_TABLE)),
    "criteo": (
        criteo,
        [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}) for i in range(24)],
        b"",
        partial(Criteo, **OPTIONS),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_no_good_row_is_lost_and_no_bad_one_is_accepted(name, tmp_path):
    """What the plain parser yields: label, numbers and words of a row, None for a bad one."""
    (parser, lines, header, made), rng = READERS[name], random.Random(19)
    good, (mark, positive) = [line.encode() for line in lines], (b",", "yes") if header else (b"\t", "1")
    body = b"\n".join([*good, *(mutate(rng.choice(good), mark, rng) for _ in range(LINES))])
    (tmp_path / "x").write_bytes(header + body)
    read, facts = made(path=str(tmp_path / "x")).read(None)
    expected = list(parser(body))
    labels, numbers, words = zip(*filter(None, expected), strict=True)
    assert facts["bad_rows"]["count"] == len(expected) - len(labels) > LINES // 10
    assert read.labels.tolist() == [int(label == positive) for label in labels]
    known = [[math.nan if number in MISSING else real(number) for number in row] for row in numbers]
    np.testing.assert_array_equal(read.numeric + 0.0, known)
    for codes, column in zip(read.categorical.T, zip(*words, strict=True), strict=True):
        distinct = sorted(set(column), key=str.encode)
        assert codes.tolist() == [distinct.index(word) for word in column]


PIXELS = pictures(2)[0].reshape(2, -1)
VALUES = {"batch_label": "training batch", "labels": [3, 4], "data": PIXELS, "filenames": ["a.png", "b.png"]}
PICKLES = [pickled(VALUES), *(pickle.dumps(VALUES, protocol=protocol) for protocol in (2, 3, 4))]


def pickled_pictures(folder, rng):
    """Changed near its head or near its tail: what is between are pixels."""
    content = rng.choice(PICKLES)
    in_head = rng.random() < 0.5
    changed = (
        mutate_bytes(content[:400], rng) + content[400:] if in_head else content[:-400] + mutate_bytes(content[-400:], rng)
    )
    (folder / "test_batch").write_bytes(changed)
    return Cifar10(path=str(folder)), 3072


def image_files(folder, rng):
    colours, buffer = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8), io.BytesIO()
    Image.fromarray(colours).save(buffer, rng.choice(("PNG", "BMP", "GIF", "JPEG", "TIFF", "PPM", "WEBP")))
    for name, content in (("a", buffer.getvalue()), ("b", mutate_bytes(buffer.getvalue(), rng))):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "1").write_bytes(content)
    return ImageFolder(path=str(folder)), 20


@pytest.mark.parametrize("mutated", [pickled_pictures, image_files])
def test_a_file_gives_pictures_of_the_right_shape_or_is_refused(mutated, tmp_path):
    rng, refusals = random.Random(19), []
    for _ in range(FILES):
        dataset, width = mutated(tmp_path, rng)
        try:
            read, _ = dataset.read(None)
        except UserError as error:
            refusals.append(str(error))
        else:
            assert (read.numeric.shape, read.numeric.dtype) == ((len(read.labels), width), np.uint8)
    assert all(text.isprintable() and len(text) < 1000 for text in refusals)
    assert 0 < len(refusals) < 0.95 * FILES
