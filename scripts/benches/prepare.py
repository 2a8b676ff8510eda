"""From the raw Criteo file to a prepared table: parsed, encoded, saved; beside what others do, and beside reading it.

A file of --rows Criteo-shaped rows (scripts/make_criteo.py) is prepared with an empty cache. Costs are net of the start,
which is measured on 1,000 rows and has a line of its own. The alternatives:

    pyarrow's parser    the same command with NUMBA_DISABLE_JIT=1: the blocks are parsed by pyarrow, the vocabularies sorted
    encoder             a researcher's usual code (DeepCTR's examples): pandas.read_csv, fillna, sklearn's LabelEncoder
                        column by column, MinMaxScaler, train_test_split, to_parquet

and the limit: reading the file, and the SHA-256 of it and of the table, which is written. The encoder is a whole command,
imports included, and so is what it is held against. Two lines say what compiling costs: the first run
ever, with an empty cache of numba's, and the second.

Every run is a fresh process, in turns, for --rounds rounds; the quietest counts. TMPDIR needs 1 KB a row.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benches.lines import BENCH, Cost, Line, command, in_turns, measured

INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
COLUMNS = ["label", *INTEGERS, *CATEGORIES]
TEST_FRACTION = 0.1
START_ROWS = 1000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, help="default: 2000000")
    parser.add_argument("--rounds", type=int, help="default: 3")
    for word in ("--worker", "--file", "--folder"):
        parser.add_argument(word, help=argparse.SUPPRESS)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    rows, rounds = options.rows or (4000 if options.quick else 2_000_000), options.rounds or (1 if options.quick else 3)
    with tempfile.TemporaryDirectory(prefix="bench_prepare_") as name:
        folder = Path(name)
        for file, count in (("tiny.txt", START_ROWS), ("train.txt", rows)):
            make(folder / file, count)
        yield from ours(folder, rows, rounds)
        calls = {
            "ours": lambda: prepare(folder, "train.txt", {}),
            "encoder": lambda: measured(worker("encoder", folder), folder=folder),
        }
        costs = in_turns(calls, rounds)
        yield Line(f"prepare, {rows:,} rows, whole command", costs["ours"], "encoder", costs["encoder"])


def ours(folder: Path, rows: int, rounds: int) -> Iterator[Line]:
    """Lines on vflbench alone."""
    cold = {"NUMBA_CACHE_DIR": str(folder / "numba")}
    ways = {"numba": {}, "pyarrow's parser": {"NUMBA_DISABLE_JIT": "1"}}
    prepare(folder, "train.txt", {})  # numba's own cache is warm from here on
    calls = {(name, file): lambda e=e, f=file: prepare(folder, f, e) for name, e in ways.items() for file in FILES}
    costs = in_turns({f"{name} {file}": call for (name, file), call in calls.items()}, rounds)
    net = {name: less(costs[f"{name} train.txt"], costs[f"{name} tiny.txt"]) for name in ways}
    limit = measured(worker("copied", folder))
    for name in list(ways)[1:]:
        what = f"prepare, {rows:,} rows, net of the start"
        yield Line(what, net["numba"], name, net[name], "read, hash, write", limit)
    yield Line(f"prepare, {START_ROWS:,} rows: the start", costs["numba tiny.txt"])
    yield Line(f"prepare again, {rows:,} rows", prepare(folder, "train.txt", {}, again=True), cpu=0.4)
    first = prepare(folder, "train.txt", cold)
    then = prepare(folder, "train.txt", cold)
    yield Line("the first run ever, which compiles", first, "pyarrow's parser", costs["pyarrow's parser train.txt"])
    yield Line("the second", then, "pyarrow's parser", costs["pyarrow's parser train.txt"])


FILES = ("tiny.txt", "train.txt")


def less(cost: Cost, start: Cost) -> Cost:
    return Cost(cost.wall - start.wall, cost.cpu - start.cpu, cost.memory)


def prepare(folder: Path, file: str, environment: dict[str, str], *, again: bool = False) -> Cost:
    """One `vflbench prepare` of a file, with an empty cache unless again."""
    if not again:
        subprocess.run(["rm", "-rf", folder / "cache"], check=True)
    words = [sys.executable, "-m", "vflbench", "prepare", "dataset=criteo", f"dataset.path={folder / file}"]
    return measured(words, folder=folder, environment={"VFLBENCH_CACHE": str(folder / "cache"), **environment})


def make(file: Path, rows: int) -> None:
    words = [sys.executable, BENCH.with_name("make_criteo.py"), "--rows", str(rows), "--out", file]
    words += ["--ids", str(rows)] if rows < 100_000 else []
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def worker(name: str, folder: Path) -> list[str]:
    words = ("--worker", name, "--file", str(folder / "train.txt"), "--folder", str(folder))
    return command("prepare", *words)


def work(options: argparse.Namespace) -> None:
    print(json.dumps(WORKERS[options.worker](options.file, Path(options.folder))), flush=True)


def copied(file: str, folder: Path) -> dict[str, Any]:
    """Read the text, write as many bytes as the table has, and hash both."""
    digests, width = [hashlib.sha256(), hashlib.sha256()], 4 * (len(INTEGERS) + len(CATEGORIES)) + 1
    buffer = bytearray(12 << 20)
    with open(file, "rb", buffering=0) as text, (folder / "table").open("wb") as table:
        while count := text.readinto(buffer):
            block = memoryview(buffer)[:count]
            digests[0].update(block)
            rows = block[: min(count, count * width // 240)]  # of some 240 bytes
            table.write(rows)
            digests[1].update(rows)
        table.flush()
        os.fsync(table.fileno())
    (folder / "table").unlink()
    return {}


def encoder(file: str, folder: Path) -> dict[str, Any]:
    import pandas as pd
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import LabelEncoder, MinMaxScaler

    data = pd.read_csv(file, sep="\t", header=None, names=COLUMNS, dtype=dict.fromkeys(CATEGORIES, str))
    data[CATEGORIES] = data[CATEGORIES].fillna("-1")
    data[INTEGERS] = data[INTEGERS].fillna(0)
    for name in CATEGORIES:
        data[name] = LabelEncoder().fit_transform(data[name])
    data[INTEGERS] = MinMaxScaler(feature_range=(0, 1)).fit_transform(data[INTEGERS])
    train, test = train_test_split(data, test_size=TEST_FRACTION, random_state=0)
    train.to_parquet(folder / "train.parquet")
    test.to_parquet(folder / "test.parquet")
    return {"ids": int(sum(data[name].max() + 1 for name in CATEGORIES))}


WORKERS = {"copied": copied, "encoder": encoder}
