"""One section of a report: an experiment on a data set, its groups of runs, and the quantities that it shows."""

import functools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.report.data_parts import data_parts
from vflbench.report.groups import Group, baseline_of, flatten, group_runs
from vflbench.report.option_words import in_words
from vflbench.results import quantity
from vflbench.results.runs import Run

MOST_LINES = 7
"""So many lines of a chart can be distinguished."""
_MOST_NAMED = 100  # quantities in an error


@dataclass(frozen=True)
class Wishes:
    """What a user asks of a report.

    x, y: quantities of the plane; empty: those that the runs have. by: options along which sweeps are drawn; empty: all that
    vary. gates: what thresholds came to, a line each. layer: where leaks are taken in place of the cut; `all`: at the worst
    visible layer. page: the file's name. formats: of the figures' files, svg | png | pdf; none of them: no files.
    """

    x: str = ""
    y: str = ""
    by: tuple[str, ...] = ()
    layer: str | None = None
    title: str = "Label leakage and its price"
    notes: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    page: str = "report.html"
    formats: tuple[str, ...] = ("svg", "png", "pdf")


@dataclass(frozen=True)
class Section:
    """x, y: the quantities of its plane. experiment: its name in configs/experiment, or empty."""

    title: str
    slug: str
    experiment: str
    groups: tuple[Group, ...]
    x: str
    y: str
    layer: str | None
    by: tuple[str, ...] = ()

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def where(self) -> str:
        """The layer at which leaks are taken, in words."""
        return {None: "at the cut layer", "all": "at any layer that an attacker sees"}.get(
            self.layer, f"at layer {self.layer}"
        )

    @property
    def place(self) -> str:
        """`where` in short, for columns and axes."""
        return {None: "at the cut", "all": "at any layer"}.get(self.layer, f"at layer {self.layer}")

    def titled(self, name: str, *, plain: bool = False) -> str:
        """The quantity in words, of a leak with the layer at which it is taken: `leak AUC at the cut, worst attack`.

        plain: without the words on the worst attack, where it has a column of its own.
        """
        if name.partition(":")[0] not in quantity.LEAKS:
            return quantity.title(name)
        what, comma, attack = (quantity.plain_title if plain else quantity.title)(name).partition(", ")
        return f"{what} {self.place}{comma}{attack}"

    @property
    def utility(self) -> str:
        """The quantity of headline numbers for the model's utility, whatever the plane shows."""
        return self.x if self.x in ("test_auc", "test_accuracy") else default_x(self.runs)

    @property
    def leak(self) -> str:
        """The quantity of headline numbers for the leak."""
        return default_y(self.runs, self.layer)

    def baseline(self, group: Group) -> Group | None:
        """Of one of its groups: the undefended group that it is compared with."""
        return self._baselines[id(group)]

    @functools.cached_property
    def _baselines(self) -> Mapping[int, Group | None]:
        return {id(group): baseline_of(group, self.groups) for group in self.groups}

    def attacks(self) -> list[str]:
        return list(dict.fromkeys(attack for group in self.groups for attack in group.attacks()))


def sections(runs: Sequence[Run], wishes: Wishes) -> list[Section]:
    """In the order of experiments and data sets; runs without an experiment share one section per data set (`data_parts`).

    Raises UserError if no run has a quantity that the user asks for.
    """
    _refuse_unknown(runs, wishes)
    made: list[Section] = []
    for experiment, data, members in data_parts(runs):
        x, y = wishes.x or default_x(members), wishes.y or default_y(members, wishes.layer)
        title = f"{experiment or 'Runs'} on {data}"
        dataset, *files = data.split(", ")
        name = "_".join([experiment or "runs", dataset, *(file.replace(".", "_") for file in files)])
        slug = _slug(name, {section.slug for section in made})
        made.append(Section(title, slug, experiment, tuple(group_runs(members)), x, y, wishes.layer, wishes.by))
    return made


def _slug(name: str, taken: Collection[str]) -> str:
    """A name for files: ASCII letters, digits and ._- alone, not of another section."""
    slug = re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).lstrip(".-")[:100] or "runs"
    lower = {other.lower() for other in taken}
    return next(s for s in (slug, *(f"{slug}_{i}" for i in range(2, len(taken) + 3))) if s.lower() not in lower)


def _refuse_unknown(runs: Sequence[Run], wishes: Wishes) -> None:
    for option, name in (("--x", wishes.x), ("--y", wishes.y)):
        if runs and name and _first((name,), runs, wishes.layer) is None:
            names = dict.fromkeys((*(n for run in runs for n in run.quantities), *quantity.TITLES))
            there = ", ".join([n for n in names if _first((n,), runs, wishes.layer)][:_MOST_NAMED])
            raise UserError(f"no run has this quantity; they have {there}", key=option, value=name)
    if runs and wishes.layer not in (None, "all"):
        layers = list(dict.fromkeys(str(leak["layer"]) for run in runs for leak in quantity.leaks(run) if leak["layer"]))
        if wishes.layer not in layers:
            there = f"they are {', '.join([*layers[:_MOST_NAMED], 'all'])}" if layers else "no layer was attacked"
            raise UserError(f"no run has a leak at this layer; {there}", key="--layer", value=wishes.layer)


def default_x(runs: Sequence[Run]) -> str:
    """The first utility that the runs have: test accuracy for more than two classes, else test AUC."""
    several = any(quantity.number((run.manifest.get("data") or {}).get("classes")) > 2 for run in runs)
    names = ("test_accuracy", "test_auc") if several else ("test_auc", "test_accuracy")
    return _first(names, runs, None) or "test_auc"


def default_y(runs: Sequence[Run], layer: str | None) -> str:
    """The first leak that the runs have."""
    names = ("leak_auc", "leak_ami", "leak_accuracy", "rebuilt.recognised", "rebuilt.entries_right", "rebuilt.r2")
    return _first(names, runs, layer) or "leak_auc"


def _first(names: Sequence[str], runs: Sequence[Run], layer: str | None) -> str | None:
    return next((n for n in names if any(not math.isnan(quantity.value(run, n, layer)) for run in runs)), None)


def sweeps(section: Section) -> list[tuple[str, str, list[Group]]]:
    """(option, what stays the same, groups in the order of its values), for each option that varies as a number."""
    leaves = {id(g): flatten(g.config) for g in section.groups}
    keys = dict.fromkeys(section.by or (key for g in section.groups for key in g.options))
    made = []
    for key in keys:
        families: dict[tuple[str, str], list[Group]] = {}
        for g in section.groups:
            value = leaves[id(g)].get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                families.setdefault(_others(g, key, leaves[id(g)]), []).append(g)
        for (rest, _), members in families.items():
            members = sorted(members, key=lambda g: leaves[id(g)][key])
            if len({leaves[id(g)][key] for g in members}) > 1:
                made.append((key, rest, members))
    return sorted(made, key=lambda entry: -len(entry[2]))


def _others(group: Group, key: str, leaves: Mapping[str, Any]) -> tuple[str, str]:
    """What stays the same along an option, in words and in full."""
    others = {k: leaves.get(k) for k in group.options if k != key}
    words = ", ".join([group.defense, *in_words(others), *filter(None, [group.made_by])])
    return words, json.dumps(others, default=str)


def relative(folder: Path, base: Sequence[Path]) -> str:
    """A path from the folder that the reader named."""
    for root in base:
        if folder.is_relative_to(root.resolve()):
            return str(folder.relative_to(root.resolve().parent))
    return folder.name


def chosen(section: Section) -> tuple[list[Group], str]:
    """At most MOST_LINES groups, the first and the last among them, and a sentence on the others."""
    groups = list(section.groups)
    if len(groups) <= MOST_LINES:
        return groups, ""
    places = sorted({round(i * (len(groups) - 1) / (MOST_LINES - 1)) for i in range(MOST_LINES)})
    return [groups[i] for i in places], f" {len(places)} of {len(groups)} settings, evenly chosen; the tables have all."
