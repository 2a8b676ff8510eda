"""Experiments that can be repeated: what configs/experiment says of them, and the published values beside the values here.

NAME.yaml is the sweep; its first comments say what it shows, its `Source:` and its `Cost:`. published_values.json has,
under NAME, what was published: `data` and `scale` of the original, `values`, and the options that `reproduce` adds on the
command line.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vflbench.errors import UserError
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.places import config_folder

if TYPE_CHECKING:
    from vflbench.report.group import Section, Setting
    from vflbench.report.tables import Table

NO_NUMBER = "no number is printed"
NOT_MEASURED = "not measured here"
OVER_DAYS = "mean over days"
"""In the words on a published value that is one."""
LOSS_OF = "loss_of:"
"""`loss_of:test_auc`: what the undefended run of the same seed has more of."""


@dataclass(frozen=True)
class Value:
    """A published number. options: dotted key -> value of the runs that repeat it.

    number: None if no number is printed; mark: the sign that is printed in its place, and reason: what it stands for, or why
    there is no number. quantity: the quantity of the runs that it is compared with, as in
    `vflbench.report.group.Section.values`, or `loss_of:` and its name for what a defense costs; None if no run measures it.
    """

    what: str
    number: float | None
    quantity: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ""
    data: str = ""
    mark: str = ""
    reason: str = ""


@dataclass(frozen=True)
class PublishedExperiment:
    """minutes: expected on 2 cores, nan if `cost` names none. sweep: option -> its values, as Hydra's sweeper takes them."""

    name: str
    does: str
    source: str
    cost: str
    config: Mapping[str, Any]
    data: str = ""
    scale: str = ""
    note: str = ""
    values: tuple[Value, ...] = ()
    reproduce: Sequence[str] = ()

    @property
    def minutes(self) -> float:
        match = re.match(r"(?:about )?([0-9.]+) minutes?\b", self.cost)
        return float(match[1]) if match else float("nan")

    @property
    def sweep(self) -> Mapping[str, Any]:
        hydra = self.config.get("hydra") or {}
        return (hydra.get("sweeper") or {}).get("params") or {}

    @property
    def is_sweep(self) -> bool:
        return (self.config.get("hydra") or {}).get("mode") == "MULTIRUN"

    @property
    def dataset(self) -> str | None:
        """The data set that the experiment chooses; None if it leaves the choice to the user."""
        entries = [entry for entry in self.config.get("defaults") or () if isinstance(entry, Mapping)]
        chosen = {key.removeprefix("override ").strip("/ "): str(value) for entry in entries for key, value in entry.items()}
        return chosen.get("dataset")


def read_experiments(folder: Path | None = None, names: Collection[str] | None = None) -> dict[str, PublishedExperiment]:
    """Name -> experiment for every YAML file in a folder; None: configs/experiment. names: those that are wanted."""
    files = sorted((folder or config_folder() / "experiment").glob("*.yaml"))
    return {file.stem: read_experiment(file) for file in files if names is None or file.stem in names}


def read_experiment(file: Path) -> PublishedExperiment:
    """file: NAME.yaml. Raises UserError if published_values.json beside it can't be read."""
    comments: dict[str, Any] = dict(comments_of(file))
    comments.pop("threat")
    beside = file.with_name("published_values.json")
    try:
        published: dict[str, Any] = json.loads(beside.read_text()).get(file.stem, {}) if beside.exists() else {}
        published["values"] = tuple(Value(**value) for value in published.get("values", ()))
        return PublishedExperiment(file.stem, config=yaml.safe_load(file.read_text()) or {}, **comments, **published)
    except (ValueError, TypeError) as error:
        raise UserError(f"this file does not have the expected content ({error})", key="experiment", value=beside) from error


def comments_of(file: Path) -> dict[str, str]:
    """source, threat, cost: the comment lines that begin with `Source: `, ...  does: the first other comment line."""
    comments = {"does": "", "source": "", "threat": "", "cost": ""}
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            label, _, text = line.lstrip("# ").partition(": ")
            key = label.lower() if label in ("Source", "Threat", "Cost") else "does"
            comments[key] = comments[key] or (text if key != "does" else line.lstrip("# "))
    return comments


def published_table(section: "Section", experiment: PublishedExperiment) -> "Table":
    """Published value, value here, and the difference; no rows if the experiment lists no values."""
    import pandas as pd

    from vflbench.report.group import at_cut
    from vflbench.report.tables import Table  # late: whoever lists experiments waits for no data frame

    section, rows = at_cut(section), []
    for value in experiment.values:
        here, number = measured(value, section), value.number
        printed = f"{value.mark} ({value.reason})" if value.mark else value.reason or NO_NUMBER
        known = number is not None and not math.isnan(here.mean)
        rows.append(
            {
                "what": value.what,
                "published": printed if number is None else float(number),
                "here": here if here.runs else NOT_MEASURED,
                "runs": here.runs,
                "here - published": moved(here, -number) if known and number is not None else None,
                "published for": value.data or experiment.data,
            }
        )
    of = f"Published on {experiment.data}, {experiment.scale}. " if experiment.data else ""
    how = "mean (95 % t-interval over seeds). The difference has the same interval, moved."
    note = f"{of}Here on {scale_of(section)}: {how} {experiment.note}".strip()
    frame = pd.DataFrame(rows, dtype=object)
    return Table(f"{section.slug}_published", "Beside the published values", frame, note, is_open=True)


def moved(value: OverRuns, by: float) -> OverRuns:
    return OverRuns(value.mean + by, value.low + by, value.high + by, value.runs)


def measured(value: Value, section: "Section") -> OverRuns:
    """The mean over the runs of the one setting of the section that has the value's options; of no runs without one.

    Only a value that was published as a mean over days is measured by settings of several days.
    """
    groups = [g for g in section.groups if all(_has(g, key, wanted) for key, wanted in value.options.items())]
    of_days = len({_but_for_the_day(group) for group in groups}) if OVER_DAYS in value.what else len(groups)
    if value.quantity is None or of_days != 1:
        return over_runs([])
    name = value.quantity.removeprefix(LOSS_OF)
    numbers = section.values(name) if name == value.quantity else losses(section, name)
    return over_runs(list(numbers[section.runs["setting"].isin([group.name for group in groups])]), range_of(name))


def losses(section: "Section", name: str) -> Any:
    """Run -> what the undefended run of the same seed, on the same day, has more of; nan of undefended ones."""
    values, runs = section.values(name), section.runs
    known = dict(zip(zip(runs["setting"], runs["seed"], strict=True), values, strict=True))
    baselines = runs["setting"].map(section.settings["baseline"]).where(lambda names: names != runs["setting"])
    return [known.get(pair, math.nan) for pair in zip(baselines, runs["seed"], strict=True)] - values


def _but_for_the_day(group: "Setting") -> str:
    """What distinguishes it from other settings, without the day on which it is tested."""
    options = sorted((key, str(v)) for key, v in group.facts["options"].items() if key != "dataset.test_day")
    return f"{group.defense} {options}"


def _has(group: "Setting", key: str, wanted: Any) -> bool:
    """Whether its option has this value; `defense` and `attack` are compared by the chosen names."""
    value = group.runs[0].option(key)
    if key in ("defense", "attack"):
        return ("+".join(value or {}) or "none") == wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return float(value) == float(wanted)
    return bool(value == wanted)


def scale_of(section: "Section") -> str:
    """The data of a section in words: rows, epochs, batches, seeds."""
    runs = list(section.runs["run"])
    rows = {run.manifest.data.train_rows for run in runs} - {None}
    epochs, batches = {run.summary.epochs for run in runs} - {0}, {run.manifest.batch_size for run in runs} - {None}
    parts = [section.title.rpartition(" on ")[2]]
    parts += [f"{_span(rows)} training rows"] if rows else []
    parts += [f"{_span(epochs)} epoch{'s' * (epochs != {1})}"] if epochs else []
    parts += [f"batches of {_span(batches)}"] if batches else []
    seeds = section.runs["seed"].nunique()
    return ", ".join([*parts, f"{seeds} seed{'s' * (seeds > 1)}"])


def _span(values: Collection[Any]) -> str:
    return f"{min(values):,}" if len(values) == 1 else f"{min(values):,} to {max(values):,}"
