"""Recordings that somebody has damaged, at random or on purpose: sound ones, and what is done to their files."""

import copy
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from recordings_by_hand import Told, as_safetensors, framed, manifest_of, table_bytes, write

ROWS = 12
NUMBERS = [0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**18, 10**30, 0.5, -0.5, 1e308]
TEXTS = [
    "",
    " ",
    "a",
    "label",
    "../..",
    "/etc/passwd",
    "a/b",
    "\x1b[2J",
    "\n",
    "\u202e",
    "層",
    "٣",
    "007",
    "1e3",
    "x" * 5000,
]
TEXTS += ["train", "end", "F8_E4M3", "BOOL", "I64", "F64", "all", "auto", "none", "NaN", "{}", "embedding/f1", "\ud800"]
VALUES: list[Any] = [*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [1, 2], {"a": 1}, float("nan"), float("inf")]


def sound(rng: np.random.Generator, own_run: bool = False) -> list[Told]:
    """Batches of two epochs; those of our own runs come with the end of each epoch."""
    batches = []
    for epoch in range(2):
        order = rng.permutation(ROWS * 2)
        for step in range(2):
            ids = order[step * ROWS :][:ROWS]
            h = {f"embedding/{layer}": rng.standard_normal((ROWS, 2)).astype("<f4") for layer in ("f1", "cut")}
            g = {f"gradient/{layer}": rng.standard_normal((ROWS, 2)).astype("<f4") for layer in ("f1", "cut")}
            batches.append(Told(epoch, step, ids, {**h, **g}))
        if own_run:
            h = {f"embedding/{layer}": rng.standard_normal((len(order), 2)).astype("<f4") for layer in ("f1", "cut")}
            batches.append(Told(epoch, 0, order, h, "end"))
    return batches


def recordings(folder: Path) -> list[Path]:
    """One of a program of its own, and one as of our own runs."""
    rng = np.random.default_rng(5)
    ids = np.arange(ROWS * 2)
    labels = (ids * 7 % 10 < 4).astype(np.int64)
    tables = {
        "labels.parquet": table_bytes({"id": ids, "label": labels}),
        "known.parquet": table_bytes({"id": ids[:8], "label": labels[:8]}),
        "features.parquet": table_bytes(
            {"id": ids, "x": rng.random(len(ids)), "c": ids % 3, "t": [str(i % 4) for i in ids]}
        ),
    }
    layers = {"f1": 2, "cut": 2}
    plain, run = sound(rng), sound(rng, own_run=True)
    shares = [1 - float(labels.mean()), float(labels.mean())]
    head = {"seed": 3, "batches": "all", "epochs": "all", "steps": [2, 2], "recorded": [[0, 1], [0, 1]]}
    manifest = manifest_of({"a": layers, "b": layers}, class_shares=shares, batch_size=ROWS, producer="tests")
    both = {"a-0.safetensors": as_safetensors(plain), "b-0.safetensors": as_safetensors(plain)}
    return [
        write(folder / "tensors", manifest, both, tables),
        write(
            folder / "run",
            {**manifest_of({"a": layers}, class_shares=shares, complete=True), "claims": {"label_dp": {"eps": 1.0}}},
            {f"a-{i}.safetensors": as_safetensors([batch]) for i, batch in enumerate(run)},
            {**tables, "run.json": json.dumps(head).encode()},
        ),
    ]


def damaged_bytes(rng: random.Random, content: bytes) -> bytes:
    """Other bytes at some place, or fewer, or more; the ends, where formats keep their tables, more often."""
    raw, n = bytearray(content), max(1, len(content))
    where = {0: rng.randrange(n), 1: rng.randrange(min(n, 64)), 2: max(0, n - 1 - rng.randrange(min(n, 900)))}
    place = where[rng.randrange(3)]
    size = rng.choice([1, 2, 4, 8, 64, n // 3 + 1])
    match rng.randrange(8):
        case 0:
            return bytes(raw[:place])
        case 1:
            return bytes(raw[:place] + raw[place + size :])
        case 2:
            return bytes(raw[:place] + rng.randbytes(size) + raw[place:])
        case 3:
            return bytes(raw[:place] + raw[place : place + size] * 2 + raw[place + size :])
        case 4:
            raw[place : place + 8] = struct.pack(
                "<q", rng.choice([n for n in NUMBERS if isinstance(n, int) and abs(n) < 2**63])
            )
        case 5:
            raw[place : place + size] = rng.choice([b"\0", b"\xff", b"\x7f"]) * len(raw[place : place + size])
        case _:
            for _ in range(rng.choice([1, 1, 3, 20])):
                raw[place % len(raw)] ^= 1 << rng.randrange(8)
                place += rng.randrange(n)
    return bytes(raw)


def damaged_value(rng: random.Random, value: Any) -> Any:
    """The same JSON value with another value, name or length somewhere."""
    value = copy.deepcopy(value)
    holders = list(_holders(value))
    if not holders:
        return rng.choice(VALUES)
    holder = rng.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key, other = rng.choice(keys), rng.choice(keys)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key], holder[other] = holder[other], holder[key]
        case 2 if isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = holder.pop(key)
        case 2:
            holder.insert(key, rng.choice(VALUES))
        case 3 if type(holder[key]) in (int, float):
            holder[key] += rng.choice([1, -1, 100, -0.25])
        case 4 if isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = rng.choice(VALUES)
        case _:
            holder[key] = rng.choice(VALUES)
    return value


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _holders(part)


def damaged_json(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.3:
        return damaged_bytes(rng, content)
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2])):
        value = damaged_value(rng, value)
    return json.dumps(value).encode()


def damaged_safetensors(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.4:
        return damaged_bytes(rng, content)
    (length,) = struct.unpack("<Q", content[:8])
    header = damaged_value(rng, json.loads(content[8 : 8 + length]))
    return framed(json.dumps(header).encode(), content[8 + length :])


def damaged_parquet(rng: random.Random, content: bytes) -> bytes:
    if rng.random() < 0.7:
        return damaged_bytes(rng, content)
    table = pq.read_table(pa.BufferReader(content))
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    rows = column.to_pylist()
    at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(6):
        case 0:
            table = table.drop_columns([name])
        case 1:
            table = table.append_column(rng.choice([name, "phase", "canary", "x"]), column)
        case 2:
            table = table.take(pa.array(rng.sample(range(len(rows)), rng.randrange(1, len(rows)))))
        case 3:
            rows[at], rows[other] = rows[other], rows[at]
            table = table.set_column(place, name, pa.array(rows, column.type))
        case 4:
            kind = rng.choice([pa.float64(), pa.string(), pa.bool_(), pa.int8(), pa.timestamp("s"), pa.list_(pa.float32())])
            table = table.set_column(place, name, pa.nulls(len(rows), kind))
        case _:
            changed = rows[at]
            if isinstance(changed, float):
                changed = rng.choice([0.0, float("nan"), float("inf"), 1e300])
            elif isinstance(changed, int) and not isinstance(changed, bool):
                changed = rng.choice(
                    [n for n in NUMBERS if isinstance(n, int) and abs(n) < 2 ** (column.type.bit_width - 1)]
                )
            elif isinstance(changed, str):
                changed = rng.choice(TEXTS[:-1])
            elif isinstance(changed, list):
                changed = [rng.choice([float("nan"), float("inf"), 1e38, 0.0])] * len(changed)
            rows[at] = rng.choice([None, changed, changed, changed])
            table = table.set_column(place, name, pa.array(rows, column.type))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rng.choice([7, 1000]))
    return sink.getvalue().to_pybytes()


DAMAGE: dict[str, Callable[[random.Random, bytes], bytes]] = {
    ".json": damaged_json,
    ".safetensors": damaged_safetensors,
    ".parquet": damaged_parquet,
}


class Mutable:
    """A recording on disk that is damaged and made whole again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._sound = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    @contextmanager
    def damaged(self, rng: random.Random) -> Iterator[str]:
        """What was done, in words."""
        touched: set[Path] = set()
        try:
            yield "; ".join(self._damage(rng, touched) for _ in range(rng.choice([1, 1, 1, 2])))
        finally:
            for path in touched:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif os.path.lexists(path):
                    path.unlink()
                if path in self._sound:
                    path.write_bytes(self._sound[path])

    def _damage(self, rng: random.Random, touched: set[Path]) -> str:
        path, other = rng.choice(list(self._sound)), rng.choice(list(self._sound))
        touched.add(path)
        what = rng.randrange(20)
        if what > 4:
            if not os.path.isfile(path) or path.is_symlink():
                return "nothing"
            path.write_bytes(DAMAGE[path.suffix](rng, self._sound[path]))
            return f"{path.name} damaged"
        if what == 4:
            name = rng.choice(["a-1", "b-7", "c-0", "a-00", "-1", "a-x", "a-1-1", "..-1", "a-٣", "a"])
            twin = path.with_name(name + rng.choice([path.suffix, ".pt", ".npy", ".safetensors", ".parquet", ".tmp"]))
            if twin not in self._sound:
                touched.add(twin)
                twin.write_bytes(self._sound[path])
            return f"{path.name} copied to {twin.name}"
        if path.is_dir():
            return "nothing"
        path.unlink(missing_ok=True)
        if what == 3:
            path.write_bytes(self._sound[other])
            return f"{path.name} is {other.name}"
        if what == 2:
            [path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(other), lambda: path.symlink_to("/dev/zero")][
                rng.randrange(4)
            ]()
            return f"{path.name} is no plain file"
        return f"{path.name} dropped"
