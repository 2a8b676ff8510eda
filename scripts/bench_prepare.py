"""From the raw Criteo file to shuffled, encoded, saved rows: seconds and peak memory, against what others do.

    python scripts/bench_prepare.py --rows 2000000 --peer-python PEERS/bin/python
    python scripts/bench_prepare.py --only prepare --scaling 1000000,2000000,4000000,8000000

Writes a file of --rows Criteo-shaped rows (scripts/make_criteo.py) into a temporary folder, plain text unless --suffix says
otherwise. Each alternative turns it into integer ids per column, numbers scaled to [0, 1], 90 % training and 10 % test rows:

    prepare     vflbench prepare dataset=criteo dataset.path=FILE, with an empty cache (VFLBENCH_CACHE)
    again       the same command once more, which finds everything prepared
    load        vflbench's loader by itself, Criteo(path=FILE).load(rng). It stands in where this version of vflbench has no
                `prepare`, and then saves nothing
    encoder     a researcher's usual code (DeepCTR's examples): pandas.read_csv, fillna, sklearn's LabelEncoder column by
                column, MinMaxScaler, train_test_split, to_parquet
    factorize   the same, with pandas.factorize(sort=True) for LabelEncoder
    fuxictr     FuxiCTR's FeatureProcessor and build_dataset, min_categr_count=1, as its documentation does it. It wants a
                header, and training and test rows in two files; making those is not counted
    pyarrow     pyarrow.csv in one go, dictionaries sorted with compute functions, saved as .npy
    polars      scan_csv, dense ranks as ids, collect, write_parquet

Every run is a fresh process; wall time is from its start to its end, imports included, with the file in the page cache.
Peak memory is the kernel's maximum resident set of that process, or, where it starts others (FuxiCTR starts Ray), the
greatest sum of their proportional set sizes seen, sampled every 0.1 s, if that is more. Alternatives take turns for --rounds
rounds; the table shows medians and the range of seconds. Peers run in --peer-python, which needs
`pip install pandas scikit-learn pyarrow fuxictr 'polars<2'`; what is not installed is told, and has no ratio.

--scaling repeats the alternatives in --scaling-of at other sizes, and fits a line to their seconds and peaks for the
45,840,617 rows of the full data: an extrapolation, marked as such. Ids grow with the rows as in the real data.

For quiet figures let nothing else run, pin the CPU's frequency, and put TMPDIR on a local disk with 1 KB a row to spare.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FULL_ROWS = 45_840_617
INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
COLUMNS = ["label", *INTEGERS, *CATEGORIES]
TEST_FRACTION = 0.1
NOT_INSTALLED = 3  # exit code of a worker

# The driver imports nothing heavy: a child's maximum resident set starts at what its parent held when it was forked.


def main() -> None:
    options = parse()
    if options.worker:
        work(options)
        return
    with tempfile.TemporaryDirectory(prefix="bench_prepare_") as name:
        bench = Bench(options, Path(name))
        print(bench.environment(), flush=True)
        bench.compare(options.rows)
        if options.scaling:
            bench.scale(options.scaling)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--scaling", type=numbers, default=[], metavar="ROWS,ROWS,...", help="also at these sizes")
    parser.add_argument("--scaling-of", default="prepare", metavar="NAME,...", help="of these (default: prepare)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each alternative (default: 3)")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(ALTERNATIVES)}")
    parser.add_argument("--peer-python", default=sys.executable, help="the interpreter that has the peers")
    parser.add_argument("--suffix", default=".txt", choices=[".txt", ".txt.gz"], help="plain (default) or compressed")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds a run may take (default: 3600)")
    for word in ("--worker", "--file", "--folder"):
        parser.add_argument(word, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in [*(options.only or "").split(","), *options.scaling_of.split(",")]:
        if name and name not in ALTERNATIVES:
            parser.error(f"there is no alternative {name}; there are {', '.join(ALTERNATIVES)}")
    return options


class Bench:
    """One file after another, and the alternatives on it. seconds, peaks: of the runs so far, by name; reasons: why none."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.has_prepare = "prepare" in self._ours("--help")
        wanted = options.only.split(",") if options.only else list(ALTERNATIVES)
        if not self.has_prepare:
            wanted = list(dict.fromkeys("load" if name == "prepare" else name for name in wanted if name != "again"))
            options.scaling_of = options.scaling_of.replace("prepare", "load")
        elif not options.only:
            wanted.remove("load")
        self.names = wanted

    def environment(self) -> str:
        versions = subprocess.run(
            [self.options.peer_python, "-c", _VERSIONS], capture_output=True, text=True, check=False
        ).stdout.strip()
        told = "" if self.has_prepare else "\nthis version of vflbench has no `prepare`: `load` stands in for it"
        return (
            f"{platform.platform()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
            f"{self._ours('--version').strip()}; peers: {versions}; file {self.options.suffix}{told}"
        )

    def compare(self, rows: int) -> None:
        """All alternatives at one size, in turns, and their table."""
        file = self._make(rows, headed="fuxictr" in self.names)
        results = self._rounds(self.names, file)
        ours = next((results[n] for n in ("prepare", "load") if n in results), None)
        print(f"\n{rows} rows, {file.stat().st_size / 1e6:.0f} MB, median of {self.options.rounds} rounds")
        lines = [["", "seconds", "rows/s", "peak MB", "seconds / ours", "peak / ours", "ids", ""]]
        for name, result in results.items():
            if result.reason:
                lines.append([name, "-", "-", "-", "missing", "missing", "-", result.reason])
                continue
            ratios = ["missing", "missing"]
            if ours is not None and not ours.reason:
                ratios = [f"{result.seconds / ours.seconds:.2f}", f"{result.peak / ours.peak:.2f}"]
            speed = f"{rows / result.seconds:,.0f}"
            lines.append([name, f"{result.seconds:.2f}", speed, f"{result.peak:,.0f}", *ratios, result.ids, result.spread])
        print(table(lines), flush=True)
        self._remove(file)

    def scale(self, sizes: list[int]) -> None:
        """Some alternatives at several sizes, and a line through their peaks."""
        names = [name for name in self.options.scaling_of.split(",") if name in ALTERNATIVES]
        found: dict[str, list[tuple[int, Result]]] = {name: [] for name in names}
        for rows in sizes:
            file = self._make(rows, headed="fuxictr" in names)
            for name, result in self._rounds(names, file).items():
                if result.reason:
                    print(f"{name} at {rows} rows: {result.reason}")
                else:
                    found[name].append((rows, result))
            self._remove(file)
        lines = [["", "rows", "seconds", "s / million rows", "peak MB"]]
        for name, points in found.items():
            for rows, result in points:
                cost = result.seconds / rows * 1e6
                lines.append([name, f"{rows:,}", f"{result.seconds:.2f}", f"{cost:.2f}", f"{result.peak:,.0f}"])
            if len(points) > 1:
                peak = fit([(rows, result.peak) for rows, result in points])
                wall = fit([(rows, result.seconds) for rows, result in points])
                at = FULL_ROWS
                text = [f"{wall(at):.0f} *", f"{wall(at) / at * 1e6:.2f} *", f"{peak(at):,.0f} *"]
                lines.append([name, f"{at:,}", *text])
        print(f"\nscaling, median of {self.options.rounds} rounds; * by a line fitted to the rows above, not measured")
        print(table(lines), flush=True)

    def _make(self, rows: int, headed: bool) -> Path:
        """The file, and with `headed` the same rows as FuxiCTR wants them."""
        file = self.folder / f"train{self.options.suffix}"
        script = Path(__file__).with_name("make_criteo.py")
        subprocess.run([sys.executable, script, "--rows", str(rows), "--out", file], check=True, stdout=subprocess.DEVNULL)
        if headed:
            plain = self.folder / "plain.txt"
            subprocess.run(
                [sys.executable, script, "--rows", str(rows), "--out", plain], check=True, stdout=subprocess.DEVNULL
            )
            with_header(plain, rows, self.folder)
            plain.unlink()
        return file

    def _remove(self, file: Path) -> None:
        for path in (file, *self.folder.glob("*.csv")):
            path.unlink()

    def _rounds(self, names: list[str], file: Path) -> "dict[str, Result]":
        results = {name: Result() for name in names}
        for _ in range(self.options.rounds):
            with tempfile.TemporaryDirectory(dir=self.folder) as cache:
                for name in names:
                    if not results[name].reason:
                        with tempfile.TemporaryDirectory(dir=self.folder) as out:
                            self._run(name, file, Path(out), Path(cache), results[name])
        return results

    def _run(self, name: str, file: Path, out: Path, cache: Path, result: "Result") -> None:
        if name in ("prepare", "again"):
            python, command = sys.executable, ["-m", "vflbench", "prepare", "dataset=criteo", f"dataset.path={file}"]
        else:
            python = sys.executable if name == "load" else self.options.peer_python
            command = [__file__, "--worker", name, "--file", str(file), "--folder", str(out)]
        environment = os.environ | {"VFLBENCH_CACHE": str(cache), "RAY_TMPDIR": str(out), "RAY_USAGE_STATS_ENABLED": "0"}
        result.add(measure([python, *command], out, environment, self.options.timeout))

    def _ours(self, word: str) -> str:
        return subprocess.run([sys.executable, "-m", "vflbench", word], capture_output=True, text=True, check=False).stdout


class Result:
    """Runs of one alternative."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.reason = ""

    def add(self, run: dict[str, Any]) -> None:
        self.runs.append(run)
        self.reason = run["reason"]

    @property
    def seconds(self) -> float:
        return statistics.median(run["seconds"] for run in self.runs)

    @property
    def peak(self) -> float:
        """Megabytes of 10^6 bytes."""
        return statistics.median(run["peak"] for run in self.runs)

    @property
    def ids(self) -> str:
        """Distinct ids over all columns, where the alternative tells."""
        return str(self.runs[-1]["told"].get("ids", ""))

    @property
    def spread(self) -> str:
        every = [run["seconds"] for run in self.runs]
        return f"{min(every):.2f} - {max(every):.2f} s"


def measure(command: list[str], folder: Path, environment: dict[str, str], timeout: float) -> dict[str, Any]:
    """Run to the end: seconds, peak (MB), told (its last line, if that is JSON), reason (empty if all went well)."""
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err)
        shared, next_look, late = 0, start, False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            now = time.perf_counter()
            if pid:
                break
            if now >= next_look:
                shared = max(shared, tree_memory(process.pid))
                next_look = time.perf_counter() + 0.1
            if now - start > timeout and not late:
                late = True
                process.kill()
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = [stream.seek(0) or stream.read().strip().splitlines() for stream in (out, err)]
    last = texts[0][-1] if texts[0] else ""
    reason = f"took longer than {timeout:.0f} s" if late else ""
    if process.returncode == NOT_INSTALLED:
        reason = last
    elif process.returncode and not late:
        reason = f"failed: {(texts[1] or texts[0] or ['without a word'])[-1][:200]}"
    return {
        "seconds": now - start,
        "peak": max(usage.ru_maxrss * 1024, shared) / 1e6,
        "told": json.loads(last) if last.startswith("{") else {},
        "reason": reason,
    }


def tree_memory(pid: int) -> int:
    """Bytes of a process and all that came out of it, pages they share counted once; 0 if it is by itself."""
    family, found = [pid], []
    while family:
        member = family.pop()
        found.append(member)
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                family += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return sum(map(_proportional, found)) if len(found) > 1 else 0


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def with_header(plain: Path, rows: int, folder: Path) -> None:
    """train.csv and test.csv in the folder: the lines of `plain`, the last tenth for testing, each file with a header."""
    header = ("\t".join(COLUMNS) + "\n").encode()
    with plain.open("rb") as lines, (folder / "train.csv").open("wb") as train, (folder / "test.csv").open("wb") as test:
        train.write(header)
        test.write(header)
        for number, line in enumerate(lines):
            (train if number < rows * (1 - TEST_FRACTION) else test).write(line)


def fit(points: list[tuple[int, float]]) -> Callable[[int], float]:
    """The least-squares line y = a + b x."""
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    return lambda x: intercept + slope * x


def table(lines: list[list[str]]) -> str:
    """Columns side by side, all but the first and the last to the right."""
    widths = [max(len(line[j]) if j < len(line) else 0 for line in lines) for j in range(len(lines[0]))]
    last = len(widths) - 1

    def cell(text: str, j: int) -> str:
        return text.ljust(widths[j]) if j in (0, last) and len(lines[0][last]) == 0 else text.rjust(widths[j])

    return "\n".join("  ".join(cell(text, j) for j, text in enumerate(line)).rstrip() for line in lines)


_VERSIONS = """
import importlib.metadata as m, platform
found = []
for name in ("pandas", "scikit-learn", "pyarrow", "polars", "fuxictr", "ray"):
    try: found.append(f"{name} {m.version(name)}")
    except m.PackageNotFoundError: found.append(f"{name} not installed")
print("Python " + platform.python_version() + ", " + ", ".join(found))
"""


# What the fresh processes do. Each returns what it wants to be told.


def work(options: argparse.Namespace) -> None:
    try:
        told = WORKERS[options.worker](options.file, Path(options.folder))
    except ModuleNotFoundError as error:
        package = {"sklearn": "scikit-learn"}.get(error.name.split(".")[0], error.name.split(".")[0])
        print(f"not installed: pip install {package}")
        sys.exit(NOT_INSTALLED)
    print(json.dumps(told), flush=True)


def load(file: str, _: Path) -> dict[str, Any]:
    import torch

    from vflbench.data.criteo import Criteo

    data = Criteo(path=file, test_fraction=TEST_FRACTION).load(torch.Generator().manual_seed(0))
    columns = data.train.columns if hasattr(data.train, "columns") else {"a": data.train.features["a"].columns}
    return {"ids": sum(columns["a"].cardinalities)}


def encoder(file: str, folder: Path) -> dict[str, Any]:
    from sklearn.preprocessing import LabelEncoder

    return usual_code(file, folder, lambda column: LabelEncoder().fit_transform(column))


def factorize(file: str, folder: Path) -> dict[str, Any]:
    import pandas as pd

    return usual_code(file, folder, lambda column: pd.factorize(column, sort=True)[0])


def usual_code(file: str, folder: Path, encode: Callable[[Any], Any]) -> dict[str, Any]:
    import pandas as pd
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import MinMaxScaler

    data = pd.read_csv(file, sep="\t", header=None, names=COLUMNS, dtype=dict.fromkeys(CATEGORIES, str))
    data[CATEGORIES] = data[CATEGORIES].fillna("-1")
    data[INTEGERS] = data[INTEGERS].fillna(0)
    for name in CATEGORIES:
        data[name] = encode(data[name])
    data[INTEGERS] = MinMaxScaler(feature_range=(0, 1)).fit_transform(data[INTEGERS])
    train, test = train_test_split(data, test_size=TEST_FRACTION, random_state=0)
    train.to_parquet(folder / "train.parquet")
    test.to_parquet(folder / "test.parquet")
    return {"ids": int(sum(data[name].max() + 1 for name in CATEGORIES))}


def fuxictr(file: str, folder: Path) -> dict[str, Any]:
    from fuxictr.preprocess import FeatureProcessor, build_dataset

    source = Path(file).parent
    numeric = {"name": INTEGERS, "active": True, "dtype": "float", "type": "numeric", "normalizer": "MinMaxScaler"}
    categorical = {"name": CATEGORIES, "active": True, "dtype": "str", "type": "categorical"}
    features = [numeric | {"fill_na": 0}, categorical | {"fill_na": ""}]
    label = {"name": "label", "dtype": "float"}
    processor = FeatureProcessor(feature_cols=features, label_col=label, dataset_id="criteo", data_root=str(folder))
    files = {"train_data": str(source / "train.csv"), "test_data": str(source / "test.csv")}
    build_dataset(processor, **files, data_format="csv", sep="\t", min_categr_count=1)
    return {"ids": sum(spec.get("vocab_size", 0) for spec in processor.feature_map.features.values())}


def pyarrow(file: str, folder: Path) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    types = dict.fromkeys(INTEGERS, pa.int64()) | dict.fromkeys(CATEGORIES, pa.dictionary(pa.int32(), pa.string()))
    data = csv.read_csv(
        file,
        read_options=csv.ReadOptions(column_names=COLUMNS),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False),
    )
    numeric = np.empty((len(data), len(INTEGERS)), dtype=np.float32)
    for j, name in enumerate(INTEGERS):
        x = pc.fill_null(data[name], 0).to_numpy().astype(np.float64)
        numeric[:, j] = (x - x.min()) / max(x.max() - x.min(), 1)
    categorical, ids = np.empty((len(data), len(CATEGORIES)), dtype=np.int32), 0
    for j, name in enumerate(CATEGORIES):
        column = data[name].unify_dictionaries().combine_chunks()
        order = pc.sort_indices(column.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        categorical[:, j] = rank[column.indices.to_numpy()]
        ids += len(order)
    order = np.random.default_rng(0).permutation(len(data))
    tests = int(len(data) * TEST_FRACTION)
    blocks = {"numeric": numeric, "categorical": categorical, "labels": data["label"].to_numpy()}
    for name, block in blocks.items():
        np.save(folder / f"test_{name}.npy", block[order[:tests]])
        np.save(folder / f"train_{name}.npy", block[order[tests:]])
    return {"ids": ids}


def polars(file: str, folder: Path) -> dict[str, Any]:
    import polars as pl

    types = {"label": pl.Int8} | dict.fromkeys(INTEGERS, pl.Int64) | dict.fromkeys(CATEGORIES, pl.String)
    lines = pl.scan_csv(file, separator="\t", has_header=False, schema=types, quote_char=None)
    x, c = pl.col(INTEGERS).fill_null(0), pl.col(CATEGORIES).fill_null("")
    scaled = ((x - x.min()) / (x.max() - x.min())).cast(pl.Float32)
    data = (
        lines.with_columns(scaled, (c.rank("dense") - 1).cast(pl.Int32)).collect().sample(fraction=1, shuffle=True, seed=0)
    )
    tests = int(len(data) * TEST_FRACTION)
    data[:tests].write_parquet(folder / "test.parquet")
    data[tests:].write_parquet(folder / "train.parquet")
    return {"ids": int(sum(data[CATEGORIES].max().row(0))) + len(CATEGORIES)}


WORKERS = {
    "load": load,
    "encoder": encoder,
    "factorize": factorize,
    "fuxictr": fuxictr,
    "pyarrow": pyarrow,
    "polars": polars,
}
ALTERNATIVES = ("prepare", "again", *WORKERS)

if __name__ == "__main__":
    main()
