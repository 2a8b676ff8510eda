"""Mutated lines or files for each reader: a table that a plain parser confirms, or one printable paragraph."""

import io
import math
import pickle
import random

import numpy as np
import pytest
from PIL import Image
from support.cifar_files import pickled, pictures
from support.plain_parsers import MISSING, is_label, real, records
from support.text_mutations import mutate, mutate_bytes

from vflbench.data.csv import Csv
from vflbench.data.pictures import Cifar10, ImageFolder
from vflbench.errors import UserError

LINES, FILES = 400, 60


def is_text(fields: list[str]) -> bool:
    """Without NUL and without bytes that are no UTF-8."""
    return not any(c == "\0" or "\udc80" <= c <= "\udcff" for field in fields for c in field)


def is_good(fields: list[str] | None) -> bool:
    """Whether a record is a number, a word and a label."""
    fits = fields is not None and len(fields) == 3 and is_text(fields) and is_label(fields[2])
    return fits and (fields[0] in MISSING or real(fields[0]) is not None)


def test_no_good_row_is_lost_and_no_bad_one_is_accepted(tmp_path):
    """Quotes may hold line ends, delimiters and quotes."""
    rng, good = random.Random(19), [f"{i},w{i % 3},{'yes' if i % 3 else 'no'}".encode() for i in range(24)]
    body = b"\n".join([*good, *(mutate(rng.choice(good), b",", rng) for _ in range(LINES))])
    (tmp_path / "x").write_bytes(b"n,c,y\n" + body)
    options = {"types": {"n": "numeric", "c": "categorical"}, "positive": "yes", "bad_rows": "skip", "max_bad_fraction": 1.0}
    read, facts = Csv(path=str(tmp_path / "x"), label="y", **options).read(None)
    expected = records(body, ",", multiline=True)
    rows = [fields for fields in expected if is_good(fields)]
    assert facts["bad_rows"]["count"] == len(expected) - len(rows) > LINES // 10
    assert read.labels.tolist() == [int(label.strip() == "yes") for _, _, label in rows]
    numbers = [math.nan if number in MISSING else real(number) for number, _, _ in rows]
    np.testing.assert_array_equal(read.numeric[:, 0] + 0.0, numbers)
    words = ["" if word in MISSING else word for _, word, _ in rows]
    distinct = sorted(set(words), key=str.encode)
    assert read.categorical[:, 0].tolist() == [distinct.index(word) for word in words]


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
