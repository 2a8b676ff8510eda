"""Thousands of mutated lines or files for each reader: a table that a plain parser confirms, or one printable paragraph."""

import gzip
import io
import math
import random
import re
import struct
from collections import Counter

import numpy as np
import pytest
from criteo_mutations import is_valid, lines_of
from criteo_mutations import mutate as mutate_criteo
from PIL import Image
from plain_parsers import MISSING, WORDS, is_label, real, records
from raw_files import avazu_line, criteo_line
from text_mutations import mutate, mutate_bytes
from volume import volume

from vflbench.cli.command_line import with_privacy
from vflbench.data.binary import Binary
from vflbench.data.clicklogs import AVAZU, Avazu, Criteo
from vflbench.data.csv import Csv
from vflbench.data.pictures import ImageFolder, Mnist
from vflbench.errors import UserError

pytestmark = pytest.mark.slow

SKIP = {"bad_rows": "skip", "max_bad_fraction": 1.0}


def outcome(call):
    """What is returned, and None; or None and the message, which is one printable paragraph. Nothing else is raised."""
    try:
        return call(), None
    except UserError as error:
        message = str(error)
        assert message.isprintable(), repr(message)
        assert 10 < len(message) < 1000, message
        return None, message


def read(dataset, rng=None):
    found, message = outcome(lambda: dataset.read(rng))
    if found is None:
        return None, message
    table, facts = found
    assert np.isfinite(np.nan_to_num(table.numeric.astype(float), nan=0.0)).all()
    assert len(table.labels) == len(table.numeric) == len(table.categorical)
    assert 0 <= table.labels.min() <= table.labels.max() < table.classes
    return table, facts


def test_criteo(tmp_path):
    good = [criteo_line(i % 2, {1: i}, {1: f"{i % 3:08x}"}).encode() for i in range(24)]
    rng = random.Random(19)
    for _ in range(volume(16)):
        content = b"\n".join([*good, *(mutate_criteo(rng.choice(good), rng) for _ in range(1000))])
        (tmp_path / "x").write_bytes(content)
        table, facts = read(Criteo(path=str(tmp_path / "x"), **SKIP))
        rows = [line.split(b"\t") for _, line in lines_of(content) if is_valid(line)]
        assert table.labels.tolist() == [int(row[0]) for row in rows]
        expected = [[float(value) if value else math.nan for value in row[1:14]] for row in rows]
        numeric = table.numeric.astype(float)
        numeric[table.numeric == np.iinfo(np.int32).min] = math.nan
        np.testing.assert_array_equal(numeric, expected)
        assert facts["bad_rows"]["count"] == len(lines_of(content)) - len(rows)


def test_avazu(tmp_path):
    good = [avazu_line(click=str(i % 2), C20=str(i % 4 - 1), device_ip=f"{i:08x}").encode() for i in range(24)]
    rng, header = random.Random(19), ",".join(AVAZU.columns).encode()
    for _ in range(volume(16)):
        body = b"\n".join([*good, *(mutate(rng.choice(good), b",", rng) for _ in range(1000))])
        (tmp_path / "x").write_bytes(header + b"\n" + body)
        table, facts = read(Avazu(path=str(tmp_path / "x"), **SKIP))
        lines = [line for line in re.split(rb"\r\n?|\n", body) if line]
        rows = [fields for line in lines if (fields := avazu_fields(line)) is not None]
        assert table.labels.tolist() == [int(row[1]) for row in rows]
        assert facts["bad_rows"]["count"] == len(lines) - len(rows)
        for j, name in enumerate(table.categorical_names):
            values = [row[AVAZU.columns.index(name)] for row in rows]
            distinct = sorted(set(values), key=str.encode)
            assert table.categorical[:, j].tolist() == [distinct.index(value) for value in values], name


def avazu_fields(line: bytes) -> list[str] | None:
    (fields,) = records(line, ",", multiline=False) or [None]
    if fields is None or len(fields) != len(AVAZU.columns) or fields[1] not in ("0", "1"):
        return None
    bad = any(c == "\0" or "\udc80" <= c <= "\udcff" for value in fields[1:] for c in value)  # `id` is not looked at
    return None if bad else fields


def line_text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


CSV = [f"{i},w{i % 3},{'yes' if i % 3 else 'no'}".encode() for i in range(24)]
TYPES = {"n": "numeric", "c": "categorical"}


def csv_rows(body: bytes) -> tuple[list[list[str]], int]:
    """The good rows, and the number of bad ones."""
    good, bad = [], 0
    for fields in records(body, ",", multiline=True):
        fits = fields is not None and len(fields) == 3 and is_label(fields[2]) and not any("\0" in f for f in fields)
        fits = fits and not any("\udc80" <= c <= "\udcff" for f in fields for c in f)
        fits = fits and (fields[0] in MISSING or real(fields[0]) is not None)
        good += [fields] if fits else []
        bad += not fits
    return good, bad


def test_csv(tmp_path):
    rng = random.Random(19)
    for _ in range(volume(16)):
        body = b"\n".join([*CSV, *(mutate(rng.choice(CSV), b",", rng) for _ in range(1000))])
        (tmp_path / "x").write_bytes(b"n,c,y\n" + body)
        table, facts = read(Csv(path=str(tmp_path / "x"), label="y", types=TYPES, positive="yes", **SKIP))
        rows, bad = csv_rows(body)
        assert table.labels.tolist() == [int(row[2].strip() == "yes") for row in rows]
        np.testing.assert_array_equal(
            table.numeric[:, 0].astype(float) + 0.0,
            [math.nan if row[0] in MISSING else real(row[0]) for row in rows],
        )
        words = ["" if row[1] in MISSING else row[1] for row in rows]
        distinct = sorted(set(words), key=str.encode)
        assert table.categorical[:, 0].tolist() == [distinct.index(word) for word in words]
        assert facts.get("bad_rows", {"count": 0})["count"] == bad


def test_csv_with_one_mutated_line(tmp_path):
    rng, accepted = random.Random(20), 0
    for _ in range(volume(800)):
        body = b"\n".join([*CSV, mutate(rng.choice(CSV), b",", rng)]) + b"\n"
        (tmp_path / "x").write_bytes(b"n,c,y\n" + body)
        table, facts = read(Csv(path=str(tmp_path / "x"), label="y", types=TYPES))
        rows, bad = csv_rows(body)
        counts = Counter(row[2].strip() for row in rows)
        if table is None:
            assert bad, (body, facts)
            assert "row " in facts, facts
            continue
        accepted += 1
        assert not bad
        assert facts["class_rows"] == dict(counts)
    assert volume(80) < accepted < volume(720)


SVM = [f"{1 if i % 2 else -1} 1:{i % 3} 4:{i / 8} 7:1".encode() for i in range(12)]


def test_libsvm(tmp_path):
    rng, accepted = random.Random(19), 0
    for _ in range(volume(2_000)):
        lines = [*SVM, mutate(rng.choice(SVM), b" ", rng)]
        rng.shuffle(lines)
        (tmp_path / "x").write_bytes(b"\n".join(lines) + rng.choice((b"", b"\n")))
        table, _ = read(Binary(path=str(tmp_path / "x")))
        accepted += table is not None
    assert volume(200) < accepted < volume(1_900)


BITS = [f"{'yes' if i % 2 else 'no'},{i % 2},{'y' if i % 3 else 'n'},{i / 4}".encode() for i in range(12)]


def test_binary_csv(tmp_path):
    rng, accepted = random.Random(19), 0
    for _ in range(volume(6_000)):
        body = b"\n".join([*BITS, mutate(rng.choice(BITS), b",", rng)]) + rng.choice((b"", b"\n"))
        (tmp_path / "x").write_bytes(b"class,a,b,c\n" + body)
        table, facts = read(Binary(path=str(tmp_path / "x")))
        expected = bit_rows(body)
        if table is None:
            assert expected is None, (facts, body)
            continue
        accepted += 1
        assert expected is not None, body
        labels, x = expected
        assert sorted(facts["classes_are"]) == sorted(set(labels))
        assert [facts["classes_are"][k] for k in table.labels] == labels
        np.testing.assert_array_equal(table.numeric, x)
    assert volume(600) < accepted < volume(5_700)


def bit_rows(body: bytes) -> tuple[list[str], np.ndarray] | None:
    labels, x = [], []
    for line in filter(None, re.split(rb"\r\n?|\n", body)):
        text = line_text(line)
        (fields,) = records(line, ",", multiline=False) or [None]
        if any(c in text for c in "\0\ufeff") or any("\udc80" <= c <= "\udcff" for c in text):
            return None
        if fields is None or len(fields) != 4 or not is_label(fields[0]):
            return None
        values = [WORDS.get(cell.strip(" \t").lower(), real(cell)) for cell in fields[1:]]
        if None in values:
            return None
        labels.append(fields[0].strip())
        x.append(values)
    return labels, np.array(x, float)


def test_idx(tmp_path):
    rng, pixels, labels = random.Random(19), np.arange(240).reshape(20, 4, 3) % 256, np.arange(20) % 5
    whole = {
        "images": struct.pack(">BBBB3I", 0, 0, 8, 3, 20, 4, 3) + pixels.astype(np.uint8).tobytes(),
        "labels": struct.pack(">BBBB1I", 0, 0, 8, 1, 20) + labels.astype(np.uint8).tobytes(),
    }
    accepted = 0
    for number in range(volume(6_000)):
        packed, name = number % 3 == 0, rng.choice(("images", "labels"))
        files = {key: gzip.compress(content, 1) if packed else content for key, content in whole.items()}
        files[name] = mutate_bytes(files[name], rng)
        for key, content in files.items():
            (tmp_path / key).write_bytes(content)
        table, _ = read(Mnist(images=str(tmp_path / "images"), labels=str(tmp_path / "labels")))
        if table is None:
            continue
        accepted += 1
        plain = {key: gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for key, content in files.items()}
        count, height, width = struct.unpack(">3I", plain["images"][4:16])
        assert plain["images"][:4] == b"\0\0\x08\x03"
        assert plain["labels"][:8] == b"\0\0\x08\x01" + struct.pack(">I", count)
        assert len(plain["images"]) == 16 + count * height * width
        assert table.numeric.tobytes() == plain["images"][16:]
        assert table.labels.tolist() == list(plain["labels"][8:])
    assert volume(600) < accepted < volume(5_700)


def test_image_folder(tmp_path):
    rng, contents = random.Random(19), []
    colours = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    for kind, options in (("PNG", {}), ("BMP", {}), ("GIF", {}), ("JPEG", {}), ("TIFF", {}), ("PPM", {}), ("WEBP", {})):
        buffer = io.BytesIO()
        Image.fromarray(colours).save(buffer, kind, **options)
        contents.append(buffer.getvalue())
    for name in ("a", "b"):
        (tmp_path / "x" / name).mkdir(parents=True)
        (tmp_path / "x" / name / "1").write_bytes(contents[0])
    accepted = 0
    for _ in range(volume(6_000)):
        (tmp_path / "x" / "b" / "1").write_bytes(mutate_bytes(rng.choice(contents), rng))
        table, facts = read(ImageFolder(path=str(tmp_path / "x")))
        if table is not None:
            accepted += 1
            assert table.numeric.shape == (2, 20)
            assert table.numeric.dtype == np.uint8
            assert facts["class_names"] == ["a", "b"]
    assert volume(120) < accepted < volume(5_700)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x"]


def test_privacy_file(tmp_path):
    rng, accepted = random.Random(19), 0
    for _ in range(volume(6_000)):
        (tmp_path / "x").write_bytes(mutate(b"privacy: {label_dp: {eps: 1.5}}\nother: [1, 2]", b" ", rng))
        words, _ = outcome(lambda: with_privacy(["--privacy", str(tmp_path / "x")]))
        if words is not None:
            accepted += 1
            defense, eps = words
            assert defense == "defense=label_dp"
            assert 0 <= float(eps.removeprefix("defense.label_dp.eps=")) < math.inf
    assert volume(400) < accepted < volume(4_900)
