"""Mutated files of CIFAR and of tables without a header: what a plain parser confirms, or one printable paragraph."""

import pickle
import random
import re

import numpy as np
import pytest
from cifar_files import pickled, pictures
from plain_parsers import is_label, real, records
from text_mutations import mutate, mutate_bytes

from vflbench.data.csv import Csv
from vflbench.data.pictures import Cifar10, Cifar100
from vflbench.errors import UserError

pytestmark = pytest.mark.slow


def read(dataset):
    """Table and facts; or None and the message, which is one printable paragraph. Nothing else is raised."""
    try:
        return dataset.read(None)
    except UserError as error:
        message = str(error)
        assert message.isprintable(), repr(message)
        assert 10 < len(message) < 1000, message
        return None, message


def small(content: bytes, rng: random.Random) -> bytes:
    """Changed near its head or near its tail: what is between are pixels."""
    if rng.random() < 0.5:
        return mutate_bytes(content[:400], rng) + content[400:]
    return content[:-400] + mutate_bytes(content[-400:], rng)


def test_binary_rows(tmp_path):
    rng, accepted = random.Random(19), 0
    pixels, labels = pictures(2)
    flat = pixels.reshape(2, -1)
    whole = np.hstack([labels[:, None].astype(np.uint8), labels[:, None].astype(np.uint8), flat]).tobytes()
    for number in range(600):
        content = small(whole, rng)
        (tmp_path / "train.bin").write_bytes(content)
        table, _ = read(Cifar100(path=str(tmp_path), labels="fine" if number % 2 else "coarse"))
        most = 100 if number % 2 else 20
        fits = (
            len(content) % 3074 == 0
            and content
            and all(content[k + number % 2] < most for k in range(0, len(content), 3074))
        )
        assert (table is not None) == bool(fits)
        if table is None:
            continue
        accepted += 1
        assert table.labels.tolist() == [content[k + number % 2] for k in range(0, len(content), 3074)]
        planes = np.frombuffer(content, np.uint8).reshape(-1, 3074)[:, 2:].reshape(-1, 3, 32, 32)
        assert table.numeric.tobytes() == planes.transpose(0, 2, 3, 1).tobytes()
    assert 60 < accepted < 540


PIXELS = pictures(2)[0].reshape(2, -1)
VALUES = {"batch_label": "training batch", "labels": [3, 4], "data": PIXELS, "filenames": ["a.png", "b.png"]}
PICKLES = [pickled(VALUES), *(pickle.dumps(VALUES, protocol=protocol) for protocol in (2, 3, 4))]


def test_pickles(tmp_path):
    """A changed pickle gives pictures of the right shape, or one paragraph; it calls nothing else."""
    rng, accepted = random.Random(19), 0
    for _ in range(1_000):
        (tmp_path / "test_batch").write_bytes(small(rng.choice(PICKLES), rng))
        table, _ = read(Cifar10(path=str(tmp_path)))
        if table is not None:
            accepted += 1
            assert table.numeric.shape == (len(table.labels), 3072)
            assert table.numeric.dtype == np.uint8
    assert 80 < accepted < 920


ROWS = [f"{i}, w{i % 3} ,{'yes' if i % 3 else 'no'}".encode() for i in range(24)]


def trimmed(line: str) -> str:
    """Without blanks beside commas and at both ends, outside quotes."""
    pieces, inside = [""], False
    for sign in line:
        inside ^= sign == '"' and (inside or pieces[-1].strip(" \t").strip('"') == "")  # elsewhere it is a character
        if sign == "," and not inside:
            pieces.append("")
        else:
            pieces[-1] += sign
    return ",".join(piece.strip(" \t") for piece in pieces)


def test_tables_without_a_header_trimmed_and_with_comments(tmp_path):
    rng = random.Random(19)
    for _ in range(10):
        lines = [b"# 1, 2", *ROWS, *(mutate(rng.choice(ROWS), b",", rng) for _ in range(1000)), b"#"]
        content = b"\n".join(line for line in lines if b"\r " not in line and b"\r\t" not in line)
        (tmp_path / "x").write_bytes(content)
        options = {"header": False, "columns": ["n", "c", "y"], "missing": ["-"], "trim": True, "comment": "#"}
        types = {"n": "numeric", "c": "categorical"}
        skip = {"bad_rows": "skip", "max_bad_fraction": 1.0}
        table, facts = read(Csv(path=str(tmp_path / "x"), label="y", positive="yes", types=types, **options, **skip))
        rows, bad = [], 0
        for raw in re.split(rb"\r\n?|\n", content):
            text = trimmed(raw.decode("utf-8", "surrogateescape"))
            if raw.startswith(b"#") or not text:
                continue
            (fields,) = records(text.encode("utf-8", "surrogateescape"), ",", multiline=False) or [None]
            fits = fields is not None and len(fields) == 3 and is_label(fields[2]) and fields[2] != "-"
            fits = fits and not any(c in "\0\r" or "\udc80" <= c <= "\udcff" for field in fields for c in field)
            fits = fits and (fields[0] in ("", "-") or real(fields[0]) is not None)
            rows += [fields] if fits else []
            bad += not fits
        assert facts["bad_rows"]["count"] == bad
        assert table.labels.tolist() == [int(row[2].strip() == "yes") for row in rows]
        expected = [np.nan if row[0] in ("", "-") else real(row[0]) for row in rows]
        np.testing.assert_array_equal(table.numeric[:, 0].astype(float) + 0.0, expected)
        words = ["" if row[1] in ("", "-") else row[1] for row in rows]
        distinct = sorted(set(words), key=str.encode)
        assert table.categorical[:, 0].tolist() == [distinct.index(word) for word in words]
