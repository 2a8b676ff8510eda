"""The published values of a section's experiment beside the values here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.groups import Group
from vflbench.report.reproductions import PublishedExperiment, Value
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.table_formats import Table

NO_NUMBER = "no number is printed"
NOT_MEASURED = "not measured here"
OVER_DAYS = "mean over days"
"""In the words on a published value that is one."""
LOSS_OF = "loss_of:"
"""`loss_of:test_auc`: what the undefended run of the same seed has more of."""


@dataclass(frozen=True)
class Compared:
    """A published value beside the mean of the runs that repeat it. where: the data of these runs, in words."""

    value: Value
    here: OverRuns
    where: str = ""

    @property
    def published(self) -> Any:
        """The number, or the sign that stands in its place, with its reason."""
        if self.value.number is not None:
            return float(self.value.number)
        return f"{self.value.mark} ({self.value.reason})" if self.value.mark else self.value.reason or NO_NUMBER

    @property
    def difference(self) -> OverRuns | None:
        """Here - published; None where either is missing."""
        number, here = self.value.number, self.here
        if number is None or math.isnan(here.mean):
            return None
        return OverRuns(here.mean - number, here.low - number, here.high - number, here.runs)

    @property
    def covered(self) -> bool | None:
        """Whether the published value is in the interval; None without an interval."""
        number = self.value.number
        if number is None or math.isnan(self.here.low):
            return None
        return self.here.low <= number <= self.here.high


def published_table(section: Section, experiment: PublishedExperiment) -> Table:
    """Published value, value here, and the difference; no rows if the experiment lists no values."""
    rows = []
    for one in (compared(value, section) for value in experiment.values):
        here: Any = one.here if one.here.runs else NOT_MEASURED
        data = one.value.data or experiment.data
        rows.append([one.value.what, one.published, here, one.here.runs, one.difference, data])
    columns = ("what", "published", "here", "runs", "here - published", "published for")
    note = " ".join(
        part
        for part in (
            f"Published on {experiment.data}, {experiment.scale}." if experiment.data else "",
            f"Here on {scale_of(section)}: mean (95 % t-interval over seeds). The difference has the same interval, moved.",
            experiment.note,
        )
        if part
    )
    return Table(f"{section.slug}_published", "Beside the published values", columns, rows, note)


def compared(value: Value, section: Section) -> Compared:
    """The value beside the runs of the one group of the section that has its options.

    Only a value that was published as a mean over days is set beside the mean over groups of several days.
    """
    groups = [g for g in section.groups if all(_has(g, key, wanted) for key, wanted in value.options.items())]
    of_days = len({_but_for_the_day(group) for group in groups}) if OVER_DAYS in value.what else len(groups)
    if value.quantity is None or of_days != 1:
        return Compared(value, over_runs([]))
    name = value.quantity.removeprefix(LOSS_OF)
    if name == value.quantity:
        numbers = [quantity.value(run, name, section.layer) for group in groups for run in group.runs]
        return Compared(value, over_runs(numbers, range_of(name)), scale_of(section))
    return Compared(value, over_runs(losses(groups, section, name)), scale_of(section))


def losses(groups: Sequence[Group], section: Section, name: str) -> list[float]:
    """What the undefended run of the same seed, on the same day, has more of."""
    found = []
    for group in groups:
        baseline = section.baseline(group)
        theirs = {} if baseline in (None, group) else baseline.values(name, section.layer)
        ours = group.values(name, section.layer)
        found += [theirs[seed] - ours[seed] for seed in ours if seed in theirs]
    return found


def _but_for_the_day(group: Group) -> str:
    """What distinguishes it from other groups, without the day on which it is tested."""
    return str(
        [
            group.defense,
            group.made_by,
            sorted((key, str(v)) for key, v in group.options.items() if key != "dataset.test_day"),
        ]
    )


def over_sections(value: Value, experiment: PublishedExperiment, parts: Sequence[Section]) -> list[Compared]:
    """A comparison for each section of the experiment that repeats the value; of none, one without runs.

    A value for a data set that the sections have by name is compared on that one alone.
    """
    data = (value.data or experiment.data).lower()
    named = [part for part in parts if data.startswith(part.title.rpartition(" on ")[2].lower())]
    made = [compared(value, part) for part in named or parts]
    return [one for one in made if one.here.runs] or [Compared(value, over_runs([]))]


def _has(group: Group, key: str, wanted: Any) -> bool:
    """Whether its option has this value; `defense` and `attack` are compared by the chosen names."""
    value = group.runs[0].option(key)
    if key in ("defense", "attack"):
        return ("+".join(value or {}) or "none") == wanted
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return float(value) == float(wanted)
    return bool(value == wanted)


def scale_of(section: Section) -> str:
    """The data of a section in words: rows, epochs, batches, seeds."""
    data = [run.manifest.get("data") or {} for run in section.runs]
    rows = sorted({int(d["train_rows"]) for d in data if isinstance(d.get("train_rows"), int)})
    parts = [section.title.rpartition(" on ")[2]]
    parts += [f"{_span(rows)} training rows"] if rows else []
    epochs = sorted({int(e) for run in section.runs if isinstance(e := run.summary.get("epochs"), int)})
    parts += [_counted(epochs, "epoch")] if epochs else []
    batches = sorted({b for run in section.runs if isinstance(b := run.manifest.get("batch_size"), int)})
    parts += [f"batches of {_span(batches)}"] if batches else []
    seeds = {str(seed) for g in section.groups for seed in g.seeds}
    return ", ".join([*parts, _counted([len(seeds)], "seed")])


def _counted(values: list[int], noun: str) -> str:
    return f"{_span(values)} {noun}{'' if values == [1] else 's'}"


def _span(values: list[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
