"""Small files under the names that the commands of the documentation use: data sets, tables, recordings, runs."""

import gzip
import io
import random
import runpy
import shutil
import tarfile
from pathlib import Path

import pandas as pd
from support import script_runs
from support.cifar_files import cifar10_files, cifar100_files, write_archive, write_folder
from support.doc_commands import ROOT
from support.picture_files import write_mnist
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
        write_mnist(folder / place, PICTURES, SIDE, part="train", seed=seed)
    write_folder(folder / "cifar-10-batches-bin", cifar10_files(40))
    write_archive(folder / "cifar-100-python.tar.gz", "cifar-100-python", cifar100_files(python=True))


def tables(folder: Path) -> None:
    draw = random.Random(0)
    rows = pd.DataFrame({"id": range(LINES), "age": [draw.randint(18, 80) for _ in range(LINES)]})
    rows = rows.assign(customer="c" + rows["id"].astype(str), zip=1000 + rows["age"] % 40)
    rows["city"], rows["device"] = (draw.choices(of, k=LINES) for of in (["Oslo", "Lima", "Pune"], ["phone", "laptop"]))
    rows["y"] = [int(draw.random() < (0.7 if city == "Lima" else 0.2)) for city in rows["city"]]
    rows = rows.assign(clicked=rows["y"].map({1: "yes", 0: "no"}), bought=rows["y"])
    whole = ["age", "city", "device", "clicked"]
    files = {"labels": ["id", "y"], "a": ["id", "age", "city"], "b": ["id", "device"], "my": ["id", "zip", *whole]}
    files |= {"bank": ["customer", "age", "city"], "shop": ["customer", "device", "bought"]}
    for name, columns in files.items():
        rows[columns].to_csv(folder / f"{name}.csv", index=False)
        rows[whole if name == "my" else columns].to_parquet(folder / f"{name}.parquet", index=False)
    (folder / "my_folder").mkdir()
    for part in range(2):
        rows[whole][part::2].to_parquet(folder / "my_folder" / f"{part}.parquet", index=False)
    bits = [f"{y} " + " ".join(f"{k}:1" for k in range(1, 23) if draw.random() < 0.5 or k == 22) for y in rows["y"]]
    write(folder / "agaricus.txt.gz", bits, compress=True)


def presets(folder: Path) -> None:
    """Tables of UCI, each in the form of its file."""
    made = runpy.run_path(str(ROOT / "tests" / "data" / "test_presets.py"))
    files = {"default of credit card clients.csv": made["CREDIT"], "bank-additional-full.csv": made["BANK"]}
    files |= {"Sensorless_drive_diagnosis.txt": made["DRIVE"], "adult.data": made["adult_lines"]("")}
    files |= {"adult.test": ["|1x3 Cross validator", *made["adult_lines"]("."), ""]}
    for name, lines in files.items():
        write(folder / name, lines)


def example(name: str, to: Path) -> None:
    """A copy of docs/examples/NAME."""
    shutil.copytree(ROOT / "docs" / "examples" / name, to, dirs_exist_ok=True)
