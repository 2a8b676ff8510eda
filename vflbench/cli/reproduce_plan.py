"""What `vflbench reproduce` runs: the experiments, the scale that fits the budget, and the words on each command line."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.report.published import PublishedExperiment, read_experiments

LEAST_SCALE = 0.05
SPENT = 0.7
"""The share of the budget for the expected costs; the rest is for starting, drawing and errors of the estimate."""
START = 0.1  # minutes until a sweep's first run begins
_CLICKS = ("criteo", "avazu")
_WITHOUT_FILES = "synthetic"
_LIST = "vflbench list experiments"


@dataclass(frozen=True)
class Plan:
    """data: the folder with a folder for each data set, or None. dataset: for experiments that name none, or None.

    scale: share of the rows. jobs: experiments at once. words: options for all of them.
    """

    out: Path
    data: Path | None
    dataset: str | None
    scale: float
    jobs: int
    words: tuple[str, ...] = ()

    @property
    def default_dataset(self) -> str:
        """That of experiments that name none: the given one, else Criteo if its file is there, else synthetic rows."""
        if self.dataset:
            return self.dataset
        is_there = self.data is not None and (self.data / "criteo").is_dir()
        return "criteo" if is_there else _WITHOUT_FILES


def chosen_experiments(names: Sequence[str] | None, others: Sequence[str] = ()) -> list[PublishedExperiment]:
    """The experiments of these names; None: all. others: names of no experiments, which a mistyped one may mean."""
    experiments = read_experiments()
    unknown = [name for name in names or () if name not in experiments]
    if unknown:
        near = difflib.get_close_matches(unknown[0], [*experiments, *others], 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(experiments)}"
        raise UserError(f"there is no such experiment; {hint}", key="reproduce", value=",".join(unknown), see=_LIST)
    return [experiments[name] for name in dict.fromkeys(names if names is not None else experiments)]


def parse_minutes(text: str) -> float:
    """`2h`, `90m`, `1h30m` -> minutes."""
    number = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    match = re.fullmatch(f"(?:{number}h)?(?:{number}m)?", text)
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


def overrides(experiment: PublishedExperiment, plan: Plan) -> list[str]:
    """The words of the command line beside the experiment's name. Raises UserError where its data are not there."""
    import yaml  # late: --help waits for nothing

    if experiment.reproduce:
        if plan.data is None and any("{data}" in word for word in experiment.reproduce):
            raise UserError("it needs files of its data set; name their folder", key="--data")
        return [word.replace("{data}", str(plan.data)) for word in experiment.reproduce]
    name = experiment.dataset or plan.default_dataset
    words = [] if experiment.dataset else [f"dataset={name}"]
    file = config_folder() / "dataset" / f"{name}.yaml"
    if not file.is_file():
        raise UserError("there is no such data set", key="--dataset", value=name, see="vflbench list datasets")
    dataset = yaml.safe_load(file.read_text()) or {}
    chosen = experiment.config.get("dataset") or {}
    if dataset.get("path") == "???" and "path" not in chosen:
        if plan.data is None:
            raise UserError(f"it needs the files of {name}; name their folder", key="--data")
        words.append(f"dataset.path={data_file(plan.data / name)}")
    if "sample" in dataset and plan.scale < 1:
        words.append(f"dataset.sample={plan.scale:.3g}")
    if "min_count" in dataset and not experiment.dataset and name in _CLICKS:
        words += ["dataset.min_count=5", "dataset.numeric_transform=log"]  # with few rows, rare values are noise
    seeds = str(experiment.sweep.get("seed", "")).split(",")
    if plan.scale < 1 / 3 and len(seeds) > 2:
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
