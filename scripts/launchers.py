"""Run one small sweep with each of Hydra's launchers that is installed, and say what became of it.

Which processes run it, and with how many threads, may differ; the numbers must not, where the threads are as many.
Example: OMP_NUM_THREADS=1 python scripts/launchers.py basic joblib submitit_local
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_test import metrics

SMALL = (
    *("dataset.rows=2000", "dataset.vocabulary=300", "model.width=16", "model.bottom_layers=2", "audit.batches=3"),
    *("attack=norm", "epochs=2", "seed=0,1", "batch_size=64,0"),
)
LAUNCHERS = {
    "fork": ("hydra", ["hydra/launcher=fork"]),
    "basic": ("hydra", ["hydra/launcher=basic"]),
    "joblib": ("hydra_plugins.hydra_joblib_launcher", ["hydra/launcher=joblib"]),
    "submitit_local": ("hydra_plugins.hydra_submitit_launcher", ["hydra/launcher=submitit_local"]),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("launchers", nargs="*", metavar="LAUNCHER", help=f"of {', '.join(LAUNCHERS)} (default: all)")
    options = parser.parse_args()
    unknown = sorted(set(options.launchers) - set(LAUNCHERS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(LAUNCHERS)}")
    print(f"{'launcher':<15}  {'exit':>4}  {'done':>4}  {'failed':>6}  {'threads':>7}  {'seconds':>7}  numbers")
    right, first = True, None
    for name in options.launchers or LAUNCHERS:
        module, words = LAUNCHERS[name]
        if not installed(module):
            print(f"{name:<15}  not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            numbers, fine = sweep(name, words, Path(folder), first)
        first, right = first or numbers, right and fine
    return 0 if right else 1


def sweep(name: str, words: list[str], folder: Path, first: dict | None) -> tuple[dict, bool]:
    """Two runs that can be computed and two that can't. Prints a line; returns the numbers, and whether all is right."""
    started = time.monotonic()
    command = [sys.executable, "-m", "vflbench", "train", "-m", *SMALL, *words]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    runs = sorted(file.parent for file in folder.rglob("summary.json"))
    errors = list(folder.rglob("error.txt"))
    threads = {json.loads((run / "manifest.json").read_text())["threads"] for run in runs}
    numbers = {run.name: metrics(run) for run in runs}
    same = "-" if first is None else "the same" if numbers == first else "DIFFERENT"
    told = "/".join(map(str, sorted(threads)))
    seconds = time.monotonic() - started
    line = f"{name:<15}  {result.returncode:>4}  {len(runs):>4}  {len(errors):>6}  {told:>7}  {seconds:>7.1f}  {same}"
    print(line, flush=True)
    fine = (result.returncode, len(runs), len(errors)) == (1, 2, 2) and same != "DIFFERENT"
    if not fine:
        print(result.stdout, result.stderr, file=sys.stderr)
    return numbers, fine


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
