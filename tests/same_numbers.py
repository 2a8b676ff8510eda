"""Show that a refactoring changes no number: run a matrix of small experiments before and after it, and compare.

Every attack, defense, protocol, model and optimizer has its runs, and some runs are stopped on the way and go on.
Of each run all figures but times are kept: metrics.csv, the numbers of summary.json, and what was rebuilt, as digests.

    python tests/same_numbers.py record --tree BEFORE --out FOLDER_A      # a checkout of the commit before
    python tests/same_numbers.py record --tree . --out FOLDER_B
    python tests/same_numbers.py compare FOLDER_A FOLDER_B

The same machine and packages on both sides: nothing else gives the same numbers to the bit.
"""

import argparse
import csv
import fnmatch
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

CLICKS = (
    "dataset.rows=4000 dataset.vocabulary=300 model.width=16 model.bottom_layers=2 model.top_layers=2 "
    "audit.batches=5 batch_size=64"
)
NUMERIC = "dataset=breast_cancer model=mlp model.width=16 model.bottom_layers=3 audit.batches=5 batch_size=32"
DIGITS = "dataset=digits model.width=8 model.bottom_layers=2 audit.batches=2 batch_size=64"
PICTURES = f"{DIGITS} model=cnn model.cut_width=16 dataset.rows=1000"
INVERSION = "attack=model_inversion attack.model_inversion.rows=8 attack.model_inversion.steps=60 epochs=1"
ROUNDS = (
    "protocol=federated_lr dataset.rows=8 dataset.features=12 dataset.batches=10 audit.batches=2 "
    "attack.batch_reconstruction.time_limit=3600"
)
TABLE = "dataset=csv dataset.path=TABLE dataset.label=clicked dataset.min_count=2 dataset.numeric_transform=log"
EVERYTHING = "attack=[norm,cosine,hints,spectral,kmeans,averaging,no_message]"
LONG = f"{CLICKS} dataset.rows=6000 batch_size=32 epochs=3 log_every=1"

RUNS = {
    # Attacks that score labels.
    "plain": CLICKS,
    "norm": f"{CLICKS} attack=norm audit.batches=all",
    "cosine": f"{CLICKS} attack=cosine attack.cosine.k=3",
    "hints": f"{CLICKS} attack=hints",
    "hints_inner_product": f"{CLICKS} attack=hints attack.hints.score=inner_product attack.hints.k=1",
    "spectral_abs": f"{CLICKS} attack=spectral attack.spectral.score=abs",
    "spectral_cluster": f"{CLICKS} attack=spectral attack.spectral.score=cluster",
    "spectral_gradients": f"{CLICKS} attack=spectral attack.spectral.message=gradients",
    "spectral_larger_score": f"{CLICKS} attack=spectral attack.spectral.orient=larger_score",
    "kmeans": f"{CLICKS} attack=kmeans",
    "kmeans_hints": f"{CLICKS} attack=kmeans attack.kmeans.map=hints",
    "kmeans_gradients": f"{CLICKS} attack=kmeans attack.kmeans.message=gradients",
    "averaging_norm": f"{CLICKS} attack=averaging attack.averaging.base=norm epochs=3",
    "averaging_cosine": f"{CLICKS} attack=averaging attack.averaging.base=cosine attack.averaging.rows=1000",
    "averaging_hints": f"{CLICKS} attack=averaging attack.averaging.base=hints",
    "no_message": f"{CLICKS} attack=no_message",
    "everything": f"{CLICKS} {EVERYTHING} audit.dcor=true seed=1",
    "no_attack": f"{CLICKS} attack=none",
    # Attacks that rebuild features.
    "inversion_clicks": f"{CLICKS} {INVERSION} dataset.rows=2000 dataset.categorical=6 attack.model_inversion.candidates=8",
    "inversion_wide": f"{CLICKS} {INVERSION} dataset.rows=2000 dataset.categorical=4 model.wide=true dataset.parties=2",
    "inversion_numeric": f"{NUMERIC} {INVERSION}",
    "inversion_pictures": f"{PICTURES} {INVERSION} dataset.parties=2",
    "inversion_black_box": f"{PICTURES} {INVERSION} attack.model_inversion.mode=black_box dataset.parties=4",
    "inversion_black_box_clicks": f"{CLICKS} {INVERSION} dataset.rows=2000 attack.model_inversion.mode=black_box",
    "inversion_quantize": f"{PICTURES} {INVERSION} defense=quantize attack.model_inversion.knows_compression=true",
    "inversion_top_k": f"{PICTURES} {INVERSION} defense=top_k attack.model_inversion.knows_compression=true",
    "inversion_words": f"{PICTURES} {INVERSION} defense=vector_quantize attack.model_inversion.knows_compression=true",
    "inversion_noise": (
        f"{PICTURES} {INVERSION} defense=[quantize,binomial] defense.binomial.n=64 defense.binomial.biased=true "
        "attack.model_inversion.knows_noise_mean=true"
    ),
    # Defenses of gradients and labels.
    "marvell": f"{CLICKS} defense=marvell attack=[norm,cosine,hints,averaging]",
    "marvell_power": f"{CLICKS} defense=marvell defense.marvell.power=8",
    "marvell_error_bound": f"{CLICKS} defense=marvell defense.marvell.error_bound=0.4",
    "marvell_withhold": (
        f"{CLICKS} defense=marvell defense.marvell.one_class=withhold dataset.positive_ratio=0.03 batch_size=32"
    ),
    "max_norm": f"{CLICKS} defense=max_norm attack=[norm,cosine]",
    "gaussian": f"{CLICKS} defense=gaussian",
    "gaussian_sigma": f"{CLICKS} defense=gaussian defense.gaussian.sigma=0.001",
    "label_dp": f"{CLICKS} defense=label_dp attack=[norm,spectral,averaging]",
    "label_dp_lp_2st": f"{CLICKS} defense=label_dp defense.label_dp.mechanism=lp_2st defense.label_dp.eps=2",
    "label_dp_debias": f"{CLICKS} defense=label_dp defense.label_dp.debias=true audit.canaries=500",
    "label_dp_fresh": f"{CLICKS} defense=label_dp defense.label_dp.fresh_every_epoch=true audit.canaries=0",
    "label_dp_classes": f"{DIGITS} model=mlp defense=label_dp defense.label_dp.mechanism=lp_2st attack=kmeans",
    "canaries": f"{CLICKS} audit.canaries=300",
    # Defenses of embeddings.
    "dcor": f"{CLICKS} defense=dcor defense.dcor.alpha_d=0.02 defense.dcor.warmup=30 audit.dcor=true",
    "dcor_root": f"{CLICKS} defense=dcor defense.dcor.statistic=root dataset.parties=2",
    "noise_gaussian": f"{CLICKS} defense=embedding_noise",
    "noise_laplace": f"{CLICKS} defense=embedding_noise defense.embedding_noise.mechanism=laplace",
    "noise_of_rows": f"{CLICKS} defense=embedding_noise defense.embedding_noise.memoise=noise",
    "noise_of_messages": f"{CLICKS} defense=embedding_noise defense.embedding_noise.memoise=message",
    "nopeek": f"{CLICKS} defense=nopeek",
    "attribute": f"{CLICKS} attack=attribute",
    "top_k": f"{CLICKS} defense=top_k",
    "quantize": f"{CLICKS} defense=quantize defense.quantize.levels=4 defense.quantize.norm=2.0",
    "quantize_batch": f"{CLICKS} defense=quantize defense.quantize.range=batch",
    "quantize_binomial": f"{CLICKS} defense=[quantize,binomial] defense.quantize.range=[-1,1] defense.quantize.norm=1.0",
    "vector_quantize": f"{CLICKS} defense=vector_quantize",
    "chain_top_k_quantize": f"{CLICKS} defense=[top_k,quantize]",
    "chain_both_ways": f"{CLICKS} defense=[marvell,dcor,quantize,binomial,label_dp] dataset.parties=2 {EVERYTHING}",
    # Parties, models, optimizers, data.
    "two_parties": f"{CLICKS} dataset.parties=2 model.wide=true defense=marvell attack=[norm,cosine,spectral]",
    "label_party_columns": f"{CLICKS} dataset.parties={{a:[I*],b:[C1*],label:[C2*]}} model.wide=true audit.dcor=true",
    "wide": f"{CLICKS} model.wide=true model.cut_width=8 {EVERYTHING}",
    "lazy_adam": f"{CLICKS} optimizer=lazy_adam",
    "lazy_adam_torch": f"{CLICKS} optimizer=lazy_adam optimizer.kernel=torch model.wide=true dataset.parties=2",
    "sgd": f"{CLICKS} optimizer=sgd optimizer.momentum=0.9 optimizer.weight_decay=0.001",
    "adam_weight_decay": f"{NUMERIC} optimizer.weight_decay=0.01 dataset.parties=3 {EVERYTHING}",
    "bf16": f"{CLICKS} precision=bf16",
    "chronological": f"{CLICKS} dataset.split=chronological dataset.fit_on=train dataset.sample=0.7 dataset.min_count=3",
    "digits": f"{DIGITS} model=mlp attack=[kmeans,norm] audit.dcor=true dataset.parties=2",
    "digits_kmeans_hints": f"{DIGITS} model=mlp attack=kmeans attack.kmeans.map=hints attack.kmeans.message=gradients",
    "cnn": f"{PICTURES} attack=kmeans dataset.parties=4 defense=max_norm",
    "csv": f"{TABLE} {CLICKS.replace('dataset.vocabulary=300', '')}",
    # Federated rounds.
    "rounds": ROUNDS,
    "rounds_highs": f"{ROUNDS} attack.batch_reconstruction.solver=highs",
    "rounds_highs_published": (
        f"{ROUNDS} dataset.rows=5 dataset.features=8 attack.batch_reconstruction.solver=highs "
        "attack.batch_reconstruction.formulation=published"
    ),
    "rounds_cbc": f"{ROUNDS} dataset.rows=5 dataset.features=8 attack.batch_reconstruction.solver=cbc",
    "rounds_asynchronous": f"{ROUNDS} protocol.mode=asynchronous protocol.batches=2 dataset.rows=6 dataset.features=16",
    "rounds_parties": f"{ROUNDS} protocol.parties=4 dataset.rows=4 protocol.reduction=sum",
    "rounds_numeric": (
        "protocol=federated_lr dataset=breast_cancer audit.batches=2 attack.batch_reconstruction.time_limit=3600"
    ),
    "rounds_mixed": (
        f"protocol=federated_lr {TABLE} dataset.parties={{a:[age,city,device]}} dataset.min_count=80 dataset.rows=1000 "
        "audit.batches=2 attack.batch_reconstruction.time_limit=3600"
    ),
    "rounds_gaussian": f"{ROUNDS} defense=gaussian defense.gaussian.ratio=0.0001",
    "rounds_shuffle": f"{ROUNDS} defense=shuffle",
    "rounds_selective": f"{ROUNDS} defense=selective_update",
    "rounds_selective_random": (
        f"{ROUNDS} dataset.features=6 defense=selective_update defense.selective_update.choose=random "
        "defense.selective_update.fraction=0.5 epochs=60"
    ),
    # Stopped on the way, see STOPS.
    "stopped_term": f"{LONG} {EVERYTHING} defense=marvell",
    "stopped_term_twice": f"{LONG} defense=[quantize,label_dp] dataset.parties=2 model.wide=true optimizer=lazy_adam",
    "stopped_kill": f"{LONG} {EVERYTHING} defense=[max_norm,dcor] audit.dcor=true",
    "stopped_kill_and_term": f"{LONG} defense=[label_dp,vector_quantize] defense.label_dp.mechanism=lp_2st optimizer=sgd",
    "stopped_pictures": f"{PICTURES} {INVERSION} epochs=3 batch_size=16 log_every=1 defense=quantize",
    "stopped_rounds": f"{ROUNDS} dataset.batches=600 epochs=16 log_every=1",
}
"""Name -> overrides of `vflbench train`. TABLE stands for a file that `write_table` makes."""

STOPS = {
    "stopped_term": [("TERM", "epoch 1 step 20/")],
    "stopped_term_twice": [("TERM", "epoch 0 step 30/"), ("TERM", "epoch 1 step 40/")],
    "stopped_kill": [("KILL", "epoch 1 step 20/")],
    "stopped_kill_and_term": [("KILL", "epoch 1 step 20/"), ("TERM", "epoch 1 step 40/")],
    "stopped_pictures": [("TERM", "epoch 1 step 10/")],
    "stopped_rounds": [("TERM", "epoch 4 step 10/"), ("KILL", "epoch 13 step 10/")],
}
"""Name -> the signals that stop that run, one after the other, each as soon as train.log has such a new line.

Early in a long epoch: a run that is asked to stop while its attacks are concluding an epoch would conclude it twice.
"""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
LIMIT = 600  # seconds that a run may take before it counts as hung
LAST = 30  # lines of what a failed run printed


class FailedRunError(Exception):
    """A run did not do what it was to do; the text says what it printed."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="run the matrix with a source tree")
    recording.add_argument("--tree", type=Path, required=True, help="the checkout whose code runs")
    recording.add_argument("--out", type=Path, required=True, help="the folder for NAME.csv of each run")
    recording.add_argument("--only", default="*", help="a pattern of names; all, if left out")
    recording.add_argument("--jobs", type=int, default=2, help="runs at once (default: 2)")
    comparing = commands.add_parser("compare", help="compare two recorded folders")
    comparing.add_argument("folders", type=Path, nargs=2, metavar="FOLDER")
    options = parser.parse_args()
    if "folders" in options:
        return compare(*options.folders)
    return record(options.tree.resolve(), options.out, fnmatch.filter(RUNS, options.only), options.jobs)


def record(tree: Path, out: Path, names: Sequence[str], jobs: int) -> int:
    """Run them and keep their figures in `out`. Returns the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    started, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ThreadPoolExecutor(jobs) as pool:
        work = Path(folder)
        write_table(work / "table.csv")
        for name, future in {name: pool.submit(run, name, tree, work) for name in names}.items():
            (out / f"{name}.csv").unlink(missing_ok=True)
            try:
                lines = future.result()
            except FailedRunError as error:
                failed.append(name)
                print(f"{name}: FAILED\n{error}\n", file=sys.stderr, flush=True)
                continue
            (out / f"{name}.csv").write_text("\n".join(lines) + "\n")
            print(f"{name}: {len(lines)} lines", flush=True)
    print(f"{len(names) - len(failed)} of {len(names)} runs in {time.monotonic() - started:.0f} s")
    return 1 if failed or not names else 0


def surroundings(tree: Path, work: Path) -> dict[str, str]:
    """The environment of a run: the code of that tree, one thread, and nothing written into the tree."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HYDRA_", "VFLBENCH_", "PYTHON"))}
    folders = {"VFLBENCH_CACHE": str(work / "cache"), "NUMBA_CACHE_DIR": str(work / "numba")}
    return inherited | folders | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


def write_table(path: Path) -> None:
    """A CSV file of 3000 rows, always the same, with numbers, categories, gaps and a label that depends on them."""
    rng = random.Random(0)
    lines = ["age,city,device,visits,clicked"]
    for _ in range(3000):
        age, visits, city = rng.randrange(18, 80), rng.randrange(200), rng.randrange(40)
        clicked = rng.random() < 0.1 + 0.4 * (city % 3 == 0) + 0.3 * (age > 50)
        lines.append(f"{age},c{city},{rng.choice(['', 'phone', 'desk'])},{visits or ''},{'yes' if clicked else 'no'}")
    path.write_text("\n".join(lines) + "\n")


def run(name: str, tree: Path, work: Path) -> list[str]:
    """Run it to its end, through all its stops. Returns its figures. Raises FailedRunError."""
    folder, stops = work / name, STOPS.get(name, [])
    overrides = RUNS[name].replace("TABLE", str(work / "table.csv")).split()
    command = [sys.executable, "-m", "vflbench", "train", *overrides, "device=cpu", f"hydra.run.dir={folder}"]
    for stop in [*stops, None]:
        with (work / f"{name}.txt").open("w+") as printed:
            streams = {"stdin": subprocess.DEVNULL, "stdout": printed, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(command, cwd=tree, env=surroundings(tree, work), **streams)
            expected = {0}
            try:
                if stop is not None:
                    number = signal.Signals[f"SIG{stop[0]}"]
                    expected = {-number, 128 + number}
                    stop_when(process, folder / "train.log", stop[1], number)
                code = process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                code = f"no end after {LIMIT} s"
            finally:
                process.kill()
                process.wait()
            if code not in expected:
                printed.seek(0)
                last = "".join(printed.readlines()[-LAST:])
                raise FailedRunError(f"{' '.join(command)}\nended with {code} at {stop or 'its end'}:\n{last}")
    resumed = len(json.loads((folder / "manifest.json").read_text()).get("resumed", []))
    if resumed != len(stops):
        raise FailedRunError(f"it was stopped {len(stops)} times, but went on {resumed} times")
    lines = [*metrics(folder / "metrics.csv"), *summary(json.loads((folder / "summary.json").read_text()))]
    lines += digests(folder / "reconstructions.npz")
    shutil.rmtree(folder)
    return lines


def stop_when(process: subprocess.Popen, log: Path, said: str, number: signal.Signals) -> None:
    """Send that signal as soon as the log says so from now on; a run that ends before has its exit code to tell of it."""
    before, end = log.stat().st_size if log.exists() else 0, time.monotonic() + LIMIT
    while process.poll() is None and time.monotonic() < end:
        if log.exists() and said.encode() in log.read_bytes()[before:]:
            process.send_signal(number)
            return
        time.sleep(0.005)


def metrics(path: Path) -> Iterator[str]:
    """The lines of metrics.csv, times aside."""
    lines = path.read_text().splitlines()
    place = next(csv.reader(lines)).index("metric")
    return (line for line, cells in zip(lines, csv.reader(lines), strict=True) if "seconds" not in cells[place])


def summary(value: Any, place: str = "summary") -> Iterator[str]:
    """`place,value` of every number and null in summary.json, times aside. Words may change; they are no numbers."""
    if isinstance(value, dict):
        for key, part in value.items():
            if "seconds" not in key:
                yield from summary(part, f"{place}.{key}")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from summary(part, f"{place}.{i}")
    elif not isinstance(value, str):
        yield f"{place},{json.dumps(value)}"


def digests(path: Path) -> Iterator[str]:
    """`rebuilt.name,digest` of every array in that file; none if there is no file."""
    if path.exists():
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield f"rebuilt.{name},{hashlib.sha256(archive.read(name)).hexdigest()}"


def compare(one: Path, other: Path) -> int:
    """A line a run: the same, or where it first differs. Returns the exit code.

    Figures of summary.json that only the later one has are left out: a new figure changes no number.
    """
    names, differing = sorted({path.stem for folder in (one, other) for path in folder.glob("*.csv")}), 0
    for name in names:
        files = [folder / f"{name}.csv" for folder in (one, other)]
        missing = [file.parent for file in files if not file.exists()]
        difference = f"is not in {missing[0]}" if missing else first_difference(*(f.read_text().splitlines() for f in files))
        differing += difference is not None
        print(f"{name}: {difference or 'same'}")
    print(f"{len(names) - differing} of {len(names)} runs are the same")
    return 1 if differing or not names else 0


def first_difference(before: Sequence[str], after: Sequence[str]) -> str | None:
    """The first line that is not the same, of both; None if all are."""
    known = {line.rpartition(",")[0] for line in before}
    after = [line for line in after if not line.startswith("summary.") or line.rpartition(",")[0] in known]
    for number, (mine, its) in enumerate(zip_longest(before, after, fillvalue="(no more lines)"), start=1):
        if mine != its:
            return f"differs at line {number}:\n    {mine}\n    {its}"
    return None


if __name__ == "__main__":
    sys.exit(main())
