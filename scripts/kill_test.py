"""Kill a run again and again, go on with it each time, and compare the results with those of a run left in peace.

Example: python scripts/kill_test.py --kills 100 --seed 1 defense=max_norm dataset.parties=2
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SMALL = (
    *("dataset.rows=3000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=5"),
    *("epochs=40", "batch_size=64", "log_every=1"),
)
SIGNALS = {"kill": signal.SIGKILL, "int": signal.SIGINT, "term": signal.SIGTERM}
AT_THE_START = 0.1  # share of kills that come before training begins


@dataclass
class Pace:
    """Seconds that a run takes until it begins to train, and how long its train.log is in the end."""

    start: float
    log_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how often to kill (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--signal", choices=[*SIGNALS, "mixed"], default="kill", help="what to kill with (default: kill)")
    parser.add_argument("--folder", type=Path, help="where to work; must not exist (default: a temporary folder)")
    parser.add_argument("overrides", nargs="*", help="of `vflbench train`, after those of a small run")
    options = parser.parse_args()
    if options.kills < 1:
        parser.error("--kills: it must be 1 or more")
    if options.folder is not None and options.folder.exists():
        parser.error(f"--folder {options.folder}: it is there already")
    if options.folder is not None:
        return compare(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> int:
    """Run in peace, then under fire until all kills are spent; print a line a kill. Returns the exit code."""
    rng = random.Random(options.seed)
    overrides = [*SMALL, *options.overrides]
    peace, fire = folder / "peace", folder / "fire"
    started = time.monotonic()
    process = begin(peace, overrides)
    begun = until_it_trains(process, peace)
    told = process.communicate()[1]
    if process.returncode != 0:
        print(f"the run that was left in peace failed:\n{told}", file=sys.stderr)
        return 1
    pace = Pace(begun - started, size(peace / "train.log"))
    print(f"in peace: {pace.start:.1f} s to begin, {time.monotonic() - begun:.1f} s to train\n")
    print(f"{'kill':>5}  {'signal':<6}  {'after':>7}  last line of train.log")
    kills = rounds = 0
    wrong: list[str] = []
    while kills < options.kills:
        rounds += 1
        shutil.rmtree(fire, ignore_errors=True)
        while True:
            name = rng.choice(list(SIGNALS)) if options.signal == "mixed" else options.signal
            last = kills >= options.kills
            after, code, told = attempt(fire, overrides, SIGNALS[name], rng, pace, options.kills, spare=last)
            if code == 0:
                break
            kills += 1
            print(f"{kills:>5}  {name:<6}  {after:>5.2f} s  {last_line(fire / 'train.log')}", flush=True)
            if code not in (-SIGNALS[name], 128 + SIGNALS[name]) or "Traceback" in told:
                print(f"ended with {code}:\n{told}", file=sys.stderr)
                return 1
        differences = [f"round {rounds}: {what}" for what in differing(peace, fire)]
        wrong += differences
        print(
            f"round {rounds}: finished after {kills} kills; {'DIFFERENT' if differences else 'the same bytes'}", flush=True
        )
    print()
    print("\n".join(wrong) if wrong else f"{kills} kills, {rounds} finished runs: no difference")
    return 1 if wrong else 0


def attempt(
    folder: Path, overrides: list[str], number: signal.Signals, rng: random.Random, pace: Pace, kills: int, *, spare: bool
) -> tuple[float, int, str]:
    """Start the run and kill it at a random moment, unless it is quicker. Returns seconds lived, exit code, stderr."""
    process = begin(folder, overrides)
    started = time.monotonic()
    if not spare:
        if rng.random() < AT_THE_START:
            wait(process, rng.random() * pace.start)
        else:
            until_it_trains(process, folder)
            log, share = folder / "train.log", min(1.0, 3 / kills)  # of a whole run's log, however slow it is today
            until = size(log) + rng.random() * share * pace.log_bytes
            while process.poll() is None and size(log) < until:
                time.sleep(0.002)
            wait(process, 0.05 * rng.random())
        if process.poll() is None:
            process.send_signal(number)
    told = process.communicate()[1]
    return time.monotonic() - started, process.returncode, told


def begin(folder: Path, overrides: list[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "vflbench", "train", *overrides, f"hydra.run.dir={folder}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until_it_trains(process: subprocess.Popen, folder: Path) -> float:
    """Wait until train.log has a step more than when the process was started. Returns when that was."""
    before = size(folder / "train.log")
    while process.poll() is None and not (
        size(folder / "train.log") > before and " step " in last_line(folder / "train.log")
    ):
        time.sleep(0.01)
    return time.monotonic()


def wait(process: subprocess.Popen, seconds: float) -> None:
    """So long, or until the process has ended."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


def differing(peace: Path, fire: Path) -> list[str]:
    """What is not the same in two folders, times aside."""
    found = []
    if metrics(peace) != metrics(fire):
        pairs = zip(metrics(peace), metrics(fire), strict=False)
        first = next((i for i, (one, other) in enumerate(pairs) if one != other), "one is longer")
        found.append(f"metrics.csv differs (line without `seconds`: {first})")
    if summary(peace) != summary(fire):
        found.append("summary.json differs")
    if files(peace) != files(fire):
        found.append(f"other files: {sorted(files(peace) ^ files(fire))}")
    return found


def metrics(folder: Path) -> list[bytes]:
    return [line for line in (folder / "metrics.csv").read_bytes().splitlines(True) if b",seconds," not in line]


def summary(folder: Path) -> dict:
    return {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k != "seconds"}


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def last_line(file: Path) -> str:
    lines = file.read_text().splitlines() if file.exists() else []
    return lines[-1] if lines else "-"


if __name__ == "__main__":
    sys.exit(main())
