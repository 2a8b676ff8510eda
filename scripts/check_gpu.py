"""What differs on a GPU: it trains, defends, rebuilds pictures and resumes on it and on the CPU.

    python scripts/check_gpu.py                       # cuda beside cpu: the AUC of each defense
    python scripts/check_gpu.py --device cpu          # the same small, cpu beside cpu: does the script run?

Without a card it says so and ends with exit code 2. Each line is a run in a process of its own, in a folder that is thrown
away. A line fails, and the exit code is 1, if a run ends with an error, if an AUC differs by more than --tolerance, or if a
run that was stopped and went on ended with other numbers than one in one go. Random numbers of the two devices differ, so
runs with noise differ by more than rounding does.
"""

import argparse
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vflbench.places import config_folder

_NO_CARD = 2
_BEFORE = {"binomial": "quantize,binomial"}  # takes what another leaves
_PROTOCOL = {"selective_update": "shared_embeddings"}
_LEFT_OUT = ("none",)


@dataclass(frozen=True)
class Line:
    """What was run, the figure on the CPU and on the device, what it may differ by, and what else there is to say."""

    what: str
    cpu: float
    device: float
    within: float
    note: str = ""

    @property
    def fails(self) -> bool:
        return not abs(self.cpu - self.device) <= self.within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", type=int, help="of the table; 40000 on a card, 1200 without")
    parser.add_argument("--tolerance", type=float, help="of an AUC; 0.02 on a card, 0 without")
    parser.add_argument("--only", default="", help="of train, names of defenses, inversion, resume; all by default")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device here, or this build of torch has none: nothing was checked", file=sys.stderr)
        return _NO_CARD
    small = options.device == "cpu"
    options.rows = options.rows or (1200 if small else 40_000)
    options.tolerance = options.tolerance if options.tolerance is not None else (0.0 if small else 0.02)
    name = "cpu" if small else torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {name} beside cpu, {options.rows:,} rows\n")
    print(f"{'what':<28}{'cpu':>12}{options.device:>12}{'differs by':>12}  note")
    failed = 0
    for line in lines(options):
        print(
            f"{line.what:<28}{line.cpu:>12.6g}{line.device:>12.6g}{abs(line.cpu - line.device):>12.2g}  {line.note}",
            flush=True,
        )
        failed += line.fails
    print(f"\n{failed} lines differ by more than they may" if failed else "\nno line differs by more than it may")
    return min(failed, 1)


def lines(options: argparse.Namespace) -> Iterator[Line]:
    wanted = set(filter(None, options.only.split(",")))
    defenses = sorted(file.stem for file in (config_folder() / "defense").glob("*.yaml") if file.stem not in _LEFT_OUT)
    for name in ["train", *defenses]:
        if not wanted or name in wanted:
            yield from training(name, options)
    for name, part in (("inversion", inversion), ("resume", resumed)):
        if not wanted or name in wanted:
            yield from part(options)


def training(name: str, options: argparse.Namespace) -> Iterator[Line]:
    """Test AUC of a run with this defense, `train`: with none."""
    choices = [] if name == "train" else [f"defense=[{_BEFORE.get(name, name)}]"]
    if name in _PROTOCOL:
        choices.append(f"protocol={_PROTOCOL[name]}")
    yield compared(name, [f"dataset.rows={options.rows}", "epochs=1", *choices], options)


def inversion(options: argparse.Namespace) -> Iterator[Line]:
    words = ["dataset=digits", "model=mlp", "attack=model_inversion", "epochs=1"]
    words += ["attack.model_inversion.rows=8", "attack.model_inversion.steps=20", "audit.batches=1"]
    yield compared("inversion of pictures", words, options)


def compared(what: str, words: list[str], options: argparse.Namespace) -> Line:
    """The same run on both devices."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            places = (("cpu", "cpu"), ("other", options.device))
            first, second = (train(Path(folder) / place, device, words) for place, device in places)
        except RuntimeError as error:
            return Line(what, math.nan, math.nan, options.tolerance, str(error))
    here, there = leaks(first), leaks(second)
    largest = max((abs(here[place] - there[place]) for place in here.keys() & there.keys()), default=0.0)
    return Line(what, first["test_auc"], second["test_auc"], options.tolerance, f"leak AUC differ by {largest:.2g} at most")


def leaks(summary: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """(attack, message, layer) -> two-sided leak AUC, where there is one."""
    return {
        (attack, message, layer): value
        for attack, messages in summary["leak_auc_two_sided"].items()
        for message, layers in messages.items()
        for layer, value in layers.items()
        if value is not None
    }


def resumed(options: argparse.Namespace) -> Iterator[Line]:
    """Test AUC of a run in one go, and of one that was stopped after an epoch and went on, both on the device."""
    words = [f"dataset.rows={options.rows}", "epochs=3", "defense=[gaussian,dcor]"]
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole", Path(folder) / "parts"
        try:
            summary = train(whole, options.device, words)
            stopped = stop_after_an_epoch(parts, options.device, words)
            again = train(parts, options.device, words)
        except RuntimeError as error:
            yield Line("resume", math.nan, math.nan, 0.0, str(error))
            return
        same = numbers(whole) == numbers(parts)
        how = "stopped and resumed" if stopped else "not stopped in time"
        note = f"{how}; all numbers {'are' if same else 'ARE NOT'} the same"
        yield Line("resume, beside in one go", summary["test_auc"], again["test_auc"] if same else math.nan, 0.0, note)


def stop_after_an_epoch(folder: Path, device: str, words: list[str]) -> bool:
    """Whether the run was still going on when it was stopped."""
    process = subprocess.Popen(command(folder, device, words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(folder.glob("checkpoint*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.wait()
    return not (folder / "summary.json").exists()


def train(folder: Path, device: str, words: list[str]) -> dict[str, Any]:
    """The content of summary.json of a run in that folder, which goes on where one was stopped. Raises RuntimeError."""
    done = subprocess.run(command(folder, device, words), capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"on {device} it ended with exit code {done.returncode}: {said[-1] if said else ''}")
    return json.loads((folder / "summary.json").read_text())


def command(folder: Path, device: str, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "vflbench", "train", f"device={device}", f"hydra.run.dir={folder}", *words]


def numbers(folder: Path) -> list[str]:
    """Lines of metrics.csv but those of times."""
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in line]


if __name__ == "__main__":
    sys.exit(main())
