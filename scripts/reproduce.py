"""Repeat every published table and figure that can be repeated here, on the given data, within a budget of time.

    python scripts/reproduce.py --all --data ../data --budget 2h
    python scripts/reproduce.py --only marvell_sumkl,forward_figure5_alone --data ../data --scale 0.2 --out repeated

Runs `vflbench train experiment=NAME` for each, --jobs of them at once, and continues where an earlier call stopped. The
expected cost of the experiments (`vflbench list experiments`) and the budget determine the scale: the share of the rows
that each run trains on (--scale sets it directly); below a third, one seed less. An experiment that has not ended when the
time is up is stopped, and the page says so. DATA has a folder for each data set, as DATA/criteo/train.txt.gz; an experiment
that names no data set runs on --dataset.

Leaves OUT/NAME with the runs of each experiment, OUT/NAME/report, OUT/NAME.log, and OUT/index.html with all of them.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.files import finished_folders
from vflbench.results.report.reproductions import PublishedExperiment, read_experiments

LEAST_SCALE = 0.05
SPENT = 0.7
"""The share of the budget for the expected costs; the rest is for starting, drawing and errors of the estimate."""
CLICKS = "On Criteo and Avazu, values seen less than 5 times share an id, and numbers are replaced by their logarithms."
START = 0.1  # minutes until a sweep's first run begins
PATIENCE = 60.0  # seconds that a stopped sweep has to save its state


@dataclass(frozen=True)
class Outcome:
    """How one experiment ended. state: done | stopped | failed | skipped."""

    name: str
    state: str
    minutes: float
    detail: str = ""

    def line(self) -> str:
        return f"{self.name:<26} {self.state:<8} {self.minutes:6.1f} min  {self.detail}"


def main() -> int:
    options = arguments()
    chosen = choose(options.only, options.all)
    minutes = parse_minutes(options.budget)
    scale = options.scale or fitting_scale(chosen, minutes, options.jobs)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    expected = sum(known(e.minutes) for e in chosen) * scale
    print(
        f"{len(chosen)} experiments at {scale:.0%} of the rows, {options.jobs} at once, some {expected:.0f} minutes of runs"
    )
    start = time.monotonic()
    deadline = start + 60 * minutes
    with ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(repeat, e, options, out, scale, deadline) for e in longest_first(chosen)]
        outcomes = sorted((job.result() for job in work), key=lambda outcome: outcome.name)
    notes = [f"scripts/reproduce.py at {scale:.0%} of the rows.", CLICKS, *(f"Set for all: {word}" for word in options.set)]
    page = pages(out, outcomes, notes)
    print("\n".join(["", *(outcome.line() for outcome in outcomes)]))
    print(f"\n{(time.monotonic() - start) / 60:.1f} minutes altogether\n{page}")
    return 0 if all(outcome.state == "done" for outcome in outcomes) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="every experiment in configs/experiment")
    which.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--data", type=Path, required=True, help="a folder with a folder for each data set")
    parser.add_argument("--dataset", default="criteo", help="for experiments that name no data set")
    parser.add_argument("--budget", default="1h", help="as 90m or 2h")
    parser.add_argument("--scale", type=float, help="share of the rows; by default what fits the budget")
    parser.add_argument("--jobs", type=int, default=max(1, min(4, os.cpu_count() or 1)), help="experiments at once")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="options for every experiment, as epochs=1"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/reproduced"))
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error(f"--data {options.data}: there is no such folder")
    return options


def choose(only: str | None, everything: bool) -> list[PublishedExperiment]:
    experiments = read_experiments()
    names = list(experiments) if everything else str(only).split(",")
    unknown = [name for name in names if name not in experiments]
    if unknown:
        allowed = ", ".join(experiments)
        raise UserError(f"there is no such experiment; there are {allowed}", key="--only", value=",".join(unknown))
    return [experiments[name] for name in names]


def parse_minutes(text: str) -> float:
    """`2h`, `90m`, `1h30m` -> minutes."""
    match = re.fullmatch(r"(?:([0-9.]+)h)?(?:([0-9.]+)m)?", text)
    if not match or not text:
        raise UserError("this is not a time; write 90m, 2h or 1h30m", key="--budget", value=text)
    return 60 * float(match[1] or 0) + float(match[2] or 0)


def known(minutes: float) -> float:
    """The expected minutes; five if an experiment does not state its cost."""
    return minutes if minutes == minutes else 5.0


def fitting_scale(chosen: Sequence[PublishedExperiment], minutes: float, jobs: int) -> float:
    """The share of the rows at which all experiments are expected to end within the budget.

    The costs are stated for 2 cores, on which two jobs with one thread each run as fast as one job.
    """
    left = SPENT * minutes * min(jobs, 2) / 2 - START * len(chosen)
    return min(1.0, max(LEAST_SCALE, left / sum(known(e.minutes) for e in chosen)))


def longest_first(chosen: Sequence[PublishedExperiment]) -> list[PublishedExperiment]:
    return sorted(chosen, key=lambda e: -known(e.minutes))


def overrides(experiment: PublishedExperiment, options: argparse.Namespace, scale: float) -> list[str]:
    """The words of the command line beside the experiment's name."""
    if experiment.reproduce:
        return [word.replace("{data}", str(options.data.resolve())) for word in experiment.reproduce]
    name = experiment.dataset or options.dataset
    words = [] if experiment.dataset else [f"dataset={name}"]
    dataset = yaml.safe_load((config_folder() / "dataset" / f"{name}.yaml").read_text()) or {}
    chosen = experiment.config.get("dataset") or {}
    if dataset.get("path") == "???" and "path" not in chosen:
        words.append(f"dataset.path={data_file(options.data / name)}")
    if "sample" in dataset and scale < 1:
        words.append(f"dataset.sample={scale:.3g}")
    if "min_count" in dataset and not experiment.dataset and name in ("criteo", "avazu"):
        words += ["dataset.min_count=5", "dataset.numeric_transform=log"]  # with few rows, rare values are noise
    seeds = str(experiment.sweep.get("seed", "")).split(",")
    if scale < 1 / 3 and len(seeds) > 2:
        words.append(f"seed={','.join(seeds[:-1])}")
    return words


def data_file(folder: Path) -> Path:
    """The file called train.*, or else the largest."""
    files = sorted(
        (f for f in folder.glob("*") if f.is_file()), key=lambda f: (not f.name.startswith("train."), -f.stat().st_size)
    )
    if not files:
        raise UserError("there is no file for this data set", key="--data", value=folder)
    return files[0].resolve()


def repeat(
    experiment: PublishedExperiment, options: argparse.Namespace, out: Path, scale: float, deadline: float
) -> Outcome:
    """Run one experiment in its own process with its share of the cores."""
    start = time.monotonic()
    if start >= deadline:
        return Outcome(experiment.name, "skipped", 0.0, "the time was up")
    folder = out / experiment.name
    folder.mkdir(exist_ok=True)
    try:
        words = overrides(experiment, options, scale)
    except (UserError, OSError) as error:
        return Outcome(experiment.name, "failed", 0.0, str(error))
    words += options.set
    into = "hydra.sweep.dir=." if experiment.is_sweep else "hydra.run.dir=${name}_${digest:}"
    command = [sys.executable, "-m", "vflbench", "train", f"experiment={experiment.name}", *words, into]
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    with (out / f"{experiment.name}.log").open("a") as log:
        print(" ".join(command), file=log, flush=True)
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={
                "OMP_NUM_THREADS": threads,
                **os.environ,
                "PYTHONPATH": python_path(),
                "VFLBENCH_DATA": str(options.data.resolve()),
            },
        )
        stopped = not ends_before(process, deadline)
    minutes = (time.monotonic() - start) / 60
    state = "stopped" if stopped else "failed" if process.returncode else "done"
    details = {"stopped": "the time was up; the same command continues", "failed": f"see {experiment.name}.log"}
    outcome = Outcome(experiment.name, state, minutes, details.get(state, ""))
    print(outcome.line(), flush=True)
    return outcome


def python_path() -> str:
    """The path of the package that this script imports, for processes in other folders."""
    import vflbench

    package = str(Path(vflbench.__file__).resolve().parent.parent)
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def ends_before(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether the process ends in time; otherwise it is asked to stop as by Ctrl-C, so that it saves its state."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return False


def pages(out: Path, outcomes: Sequence[Outcome], notes: Sequence[str]) -> Path:
    """Write a report for each experiment with runs, and one page with all of them."""
    from vflbench.results.report.site import Wishes, write_report

    notes = [*notes]
    notes += [" ".join(outcome.line().split()) for outcome in outcomes if outcome.state != "done"]
    folders = [out / outcome.name for outcome in outcomes if (out / outcome.name).is_dir()]
    for folder in folders:
        if finished_folders(folder):
            write_report([folder], folder / "report", Wishes(title=folder.name))
    return write_report(folders, out, Wishes(title="Published experiments, repeated", notes=tuple(notes), page="index.html"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(str(error))
