"""Small files under the names that the commands of the documentation use: data sets, tables, recordings, runs."""

import csv
import gzip
import io
import random
import runpy
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support import script_runs
from support.cifar_files import cifar10_files, cifar100_files, write_archive, write_folder
from support.doc_commands import ROOT
from support.picture_files import write_idx
from support.raw_files import avazu_line, write

from vflbench.data.clicklogs import AVAZU

SIDE, PICTURES, LINES = 28, 400, 600


def write_all(folder: Path) -> None:
    criteo(folder)
    avazu(folder)
    pictures(folder)
    tables(folder)
    presets(folder)


def criteo(folder: Path) -> None:
    written = script_runs.run("make_criteo", "--rows", LINES, "--ids", 800, "--out", folder / "train.txt")
    assert written.returncode == 0, written.stderr
    content = (folder / "train.txt").read_bytes()
    for name in ("train.txt.gz", "day_0.gz", "day_1.gz"):
        (folder / name).write_bytes(gzip.compress(content, 1))
    for name in ("part00.txt", "part01.txt", "part02.txt"):
        (folder / name).write_bytes(content)
    with tarfile.open(folder / "dac.tar.gz", "w:gz", compresslevel=1) as archive:
        info = tarfile.TarInfo("train.txt")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))


def avazu(folder: Path) -> None:
    draw, lines = random.Random(0), [",".join(AVAZU.columns)]
    for i in range(LINES):
        hour = f"1410{21 + 7 * i // LINES}00"
        lines.append(avazu_line(click=str(draw.randrange(2)), C20=str(draw.randrange(5)), hour=hour))
    write(folder / "train.csv.gz", lines, compress=True)


def pictures(folder: Path) -> None:
    for seed, place in enumerate(("MNIST", "mnist", "FashionMNIST/raw", "fashion-mnist")):
        (folder / place).mkdir(parents=True)
        draw = np.random.default_rng(seed)
        labels = np.arange(PICTURES) % 10
        pixels = draw.integers(0, 60, (PICTURES, SIDE, SIDE))
        pixels[np.arange(PICTURES), 2 * labels + 3] = draw.integers(180, 256, (PICTURES, SIDE))
        write_idx(folder / place / "train-images-idx3-ubyte", pixels)
        write_idx(folder / place / "train-labels-idx1-ubyte", labels)
    write_folder(folder / "cifar-10-batches-bin", cifar10_files(40))
    write_archive(folder / "cifar-100-python.tar.gz", "cifar-100-python", cifar100_files(python=True))


def tables(folder: Path) -> None:
    draw = random.Random(0)
    rows = [
        {"id": i, "customer": f"c{i}", "age": draw.randint(18, 80), "zip": draw.randint(1000, 1040)} for i in range(LINES)
    ]
    for row in rows:
        row |= {"city": draw.choice(["Oslo", "Lima", "Pune"]), "device": draw.choice(["phone", "laptop"])}
        row["clicked"] = "yes" if draw.random() < (0.7 if row["city"] == "Lima" else 0.2) else "no"
        row["bought"] = row["y"] = row["label"] = int(row["clicked"] == "yes")
    write_csv(folder / "my.csv", rows, "id", "age", "city", "device", "zip", "clicked")
    write_csv(folder / "bank.csv", rows, "customer", "age", "city")
    write_csv(folder / "shop.csv", rows, "customer", "device", "bought")
    for name, columns in {"labels": ("id", "y"), "a": ("id", "age", "city"), "b": ("id", "device")}.items():
        write_csv(folder / f"{name}.csv", rows, *columns)
        write_parquet(folder / f"{name}.parquet", rows, *columns)
    write_parquet(folder / "my.parquet", rows, "age", "city", "device", "clicked")
    (folder / "my_folder").mkdir()
    for part in range(2):
        write_parquet(folder / "my_folder" / f"{part}.parquet", rows[part::2], "age", "city", "device", "clicked")
    bits = [f"{row['y']} " + " ".join(f"{k}:1" for k in range(1, 23) if draw.random() < 0.5 or k == 22) for row in rows]
    (folder / "agaricus.txt.gz").write_bytes(gzip.compress(("\n".join(bits) + "\n").encode()))


def write_csv(path: Path, rows: list[dict], *columns: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[dict], *columns: str) -> None:
    pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), path)


def presets(folder: Path) -> None:
    """Tables of UCI, each in the form of its file."""
    lines = runpy.run_path(str(ROOT / "tests" / "data" / "test_presets.py"))
    for name, rows in {
        "default of credit card clients.csv": "CREDIT",
        "bank-additional-full.csv": "BANK",
        "adult.data": "ADULT",
        "adult.test": "ADULT_TEST",
        "Sensorless_drive_diagnosis.txt": "DRIVE",
    }.items():
        write(folder / name, lines[rows])


def example(name: str, to: Path) -> None:
    """A copy of docs/examples/NAME."""
    shutil.copytree(ROOT / "docs" / "examples" / name, to, dirs_exist_ok=True)
