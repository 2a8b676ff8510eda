"""Kill a sweep again and again, start the same command each time, and compare it with a sweep left in peace.

What is compared: the metrics.csv of all runs as one table, byte for byte, lines of seconds aside; each summary.json, seconds
aside; the files in each folder; and that no run which was finished when the sweep was killed was written again.

Example: python scripts/kill_sweep.py --runs 24 --kills 5 --seed 1 hydra/launcher=joblib
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_test import differing, metrics, wait

SMALL = (
    *("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3"),
    *("attack=norm", "batch_size=64", "log_every=1"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=24, help="half without and half with a defense (default: 24)")
    parser.add_argument("--kills", type=int, default=5, help="how often to kill -9 (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--epochs", type=int, default=6, help="of a run (default: 6)")
    parser.add_argument("--folder", type=Path, help="where to work; must not exist (default: a temporary folder)")
    parser.add_argument("overrides", nargs="*", help="of `vflbench train -m`, after those of a small sweep")
    options = parser.parse_args()
    if options.runs < 2 or options.runs % 2:
        parser.error("--runs: it must be even, and 2 or more")
    if options.folder is not None and options.folder.exists():
        parser.error(f"--folder {options.folder}: it is there already")
    if options.folder is not None:
        return compare(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> int:
    """Sweep in peace, then under fire; print a line a kill. Returns the exit code."""
    rng = random.Random(options.seed)
    seeds = ",".join(map(str, range(options.runs // 2)))
    overrides = [*SMALL, f"epochs={options.epochs}", f"seed={seeds}", "defense=none,max_norm", *options.overrides]
    peace, fire = folder / "peace", folder / "fire"
    started = time.monotonic()
    told, code = result(begin(peace, overrides))
    if code != 0 or len(finished(peace)) != options.runs:
        print(f"the sweep that was left in peace ended with {code}:\n{told}", file=sys.stderr)
        return 1
    print(f"in peace: {options.runs} runs, {time.monotonic() - started:.1f} s\n")
    print(f"{'kill':>5}  {'after':>8}  {'finished':>8}  {'begun':>5}  what the command said of finished ones")
    wrong: list[str] = []
    moments = sorted(rng.uniform(0, options.runs) for _ in range(options.kills))
    for kill, moment in enumerate([*moments, None], start=1):
        before = stamps(fire)
        process = begin(fire, overrides)
        started = time.monotonic()
        if moment is not None:
            while process.poll() is None and len(finished(fire)) < int(moment):
                time.sleep(0.005)
            begun = steps(fire)
            while process.poll() is None and steps(fire) == begun:  # of the run that is next: it trains
                time.sleep(0.005)
            wait(process, rng.random() * 0.3)
            strike(process)
        told, code = result(process)
        if moment is None and code != 0:
            wrong.append(f"the last command ended with {code}:\n{told}")
        again = [name for name, stamp in before.items() if stamps(fire).get(name) != stamp]
        wrong += [f"kill {kill}: finished before and written again: {name}" for name in again]
        shown = told.count("finished before, so not computed again")
        if moment is None and shown != len(before):
            wrong.append(f"{len(before)} were finished, {shown} were said to be")
        name = f"{kill:>5}" if moment is not None else " last"
        lived = time.monotonic() - started
        print(f"{name}  {lived:>6.1f} s  {len(finished(fire)):>8}  {len(begun_in(fire)):>5}  {shown}", flush=True)
    wrong += differences(peace, fire)
    print()
    print("\n".join(wrong) if wrong else f"{options.kills} kills, {options.runs} runs: the same bytes")
    return 1 if wrong else 0


def begin(folder: Path, overrides: list[str]) -> subprocess.Popen:
    """In a process group of its own, so that its workers can be killed with it."""
    command = [sys.executable, "-m", "vflbench", "train", "-m", *overrides, f"hydra.sweep.dir={folder}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def strike(process: subprocess.Popen) -> None:
    """kill -9, the workers as well."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def result(process: subprocess.Popen) -> tuple[str, int]:
    told = process.communicate()[0]
    return told, process.returncode


def finished(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/summary.json"))


def begun_in(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/metrics.csv") if not (file.parent / "summary.json").exists())


def steps(folder: Path) -> int:
    """Bytes of all train.log."""
    return sum(file.stat().st_size for file in folder.glob("*/train.log"))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """When the results of each finished run were written."""
    files = {run.name: [(run / name).stat() for name in ("metrics.csv", "summary.json")] for run in finished(folder)}
    return {name: (one.st_mtime_ns, other.st_mtime_ns) for name, (one, other) in files.items()}


def aggregated(folder: Path) -> bytes:
    """All runs as one table, with the folder's name as first column and without the lines of seconds."""
    return b"".join(run.name.encode() + b"," + line for run in finished(folder) for line in metrics(run))


def differences(peace: Path, fire: Path) -> list[str]:
    """What is not the same in two sweeps, times aside."""
    names, others = ({run.name for run in folder.iterdir() if run.is_dir()} for folder in (peace, fire))
    if names != others:
        return [f"other runs: {sorted(names ^ others)}"]
    found = [] if aggregated(peace) == aggregated(fire) else ["the aggregated tables differ"]
    return found + [f"{name}: {what}" for name in sorted(names) for what in differing(peace / name, fire / name)]


if __name__ == "__main__":
    sys.exit(main())
