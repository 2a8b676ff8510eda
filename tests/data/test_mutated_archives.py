"""Mutated files of CIFAR and of tables without a header: what a plain parser confirms, or one printable paragraph."""

import pickle
import random

import numpy as np
import pytest
from cifar_files import pickled, pictures
from text_mutations import mutate_bytes

from vflbench.data.picture_files import Cifar10, Cifar100
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
        inside ^= sign == '"'
        if sign == "," and not inside:
            pieces.append("")
        else:
            pieces[-1] += sign
    return line if inside else ",".join(piece.strip(" \t") for piece in pieces)
