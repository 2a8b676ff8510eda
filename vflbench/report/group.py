"""The runs of a page as data frames: settings and their seeds, what is compared with what, and how each looks in figures.

A **setting** is what differs in nothing but the seed; its runs are averaged, and nothing else is (`over_seeds`). The frames
of a `Section` have one index, the number of the run, so that what is computed from one of them is a column of another.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.interval import over_runs, range_of
from vflbench.report.words import in_words, within
from vflbench.results.folder import digest, essential
from vflbench.results.runs import Run, may_be_compared, names_of_runs
from vflbench.results.schema import REFERENCE, level_of

LEAKS = {
    "leak_auc": "leak AUC",
    "leak_two_sided": "two-sided leak AUC",
    "leak_raw": "one-sided leak AUC",
    "leak_oriented": "oriented leak AUC",
    "leak_coin": "a coin's oriented leak AUC",
    "leak_net": "leak AUC net of a coin's",
    "leak_distance": "|leak AUC - 0.5|",
    "leak_accuracy": "accuracy of the attack",
    "leak_ami": "adjusted mutual information",
    "leak_macro_auc": "macro AUC of the attack",
}
"""Columns of `Section.leaks` -> their titles. leak_auc: what a leak counts as, max(two-sided, net)."""
TITLES = LEAKS | {
    "test_auc": "test AUC",
    "train_auc": "train AUC",
    "test_calibration": "calibration",
    "test_ece": "ECE",
    "test_log_loss": "log loss",
    "bytes_sent": "bytes sent in training",
    "rebuilt.recognised": "rebuilt pictures that are recognised",
    "rebuilt.entries_right": "entries of a private batch that are right",
}
_NO_NUMBERS = {
    *("leaks", "reconstructions", "verdict", "guarantees", "figures", "links", "skipped", "unscored", "facts"),
    *("leak_auc", "leak_auc_two_sided", "leak_accuracy", "leak_ami", "leak_macro_auc", "honest", "observed_privacy"),
}
"""Of a summary: what isn't a number of the whole run."""
_NEUTRAL = {"dcor": ("alpha_d", 0.0), "marvell": ("sumkl", math.inf)}
"""Defense -> the option and the value at which it changes nothing, if no other option asks for noise."""
_MOST_NAME, _MOST_NAMED = 300, 100
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b7578f", "#b27700", "#2f8fc4", "#7a7a7a")
"""Okabe and Ito's colours, which people of every colour vision can distinguish, with a contrast of 3 to white and black."""
_OF_ATTACKS = ("#56459e", "#8a3b12", "#1f7a7a", "#a83279", "#5e7d14", "#a0522d", "#44617b")
"""Other hues for attacks, so that no colour is that of a defense; with the same contrast."""
_SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")


class Style(NamedTuple):
    """How a defense, a setting or an attack looks in every figure of a page. shape: as Vega names it."""

    colour: str
    shape: str


@dataclass(frozen=True)
class Section:
    """An experiment on some rows, as the frames of its runs.

    runs: a line a run, in the order of settings and seeds. `run` (a `Run`), `setting` (its name in words), `defense`,
    `adversary`, `seed`, `is_audit`, `undefended`, `made_by`, `learned` (False: its model is no better than a coin, as far as
    its test rows say; it never counts as a good defense), and every number of summary.json under its dotted name, as
    `test_auc`, `seconds`, `bytes_sent.gradient`; `bytes_sent` is the sum. `ceiling.one_message`,
    `ceiling.all_messages`: what is promised.

    x, y: the columns of its plane, as `values` takes them. layer: where leaks are taken: None: at any layer that an attacker
    sees; `cut`; or a layer's name. by: keys of options. styles: name of a defense, a setting, an attack -> its look, which
    is the same in all sections of a page.
    """

    title: str
    slug: str
    experiment: str
    runs: pd.DataFrame
    x: str
    y: str
    layer: str | None
    by: tuple[str, ...]
    styles: Mapping[str, Style]

    def lines(self, of: Callable[[Run], Iterable[Mapping[str, Any]]], columns: Sequence[str] = ()) -> pd.DataFrame:
        """A line for each entry of what `of` gives of a run, with the run's number, setting, defense and seed.

        columns: those that it has where there is no line.
        """
        made = [(number, line) for number, run in self.runs["run"].dropna().items() for line in of(run)]
        names = list(dict.fromkeys([*columns, *(name for _, line in made for name in line)]))
        frame = pd.DataFrame([line for _, line in made], pd.Index([number for number, _ in made], dtype=int), names)
        return frame.join(self.runs[["setting", "defense", "seed"]])

    @cached_property
    def leaks(self) -> pd.DataFrame:
        """A line a leak of the last epoch.

        `setting`, `defense`, `seed`; `attack` (`norm on gradients`), `name` (`norm`), `message`, `party`, `layer`,
        `visible`, `at_cut`, `level`, `is_reference`, `counts` (whether it is at the layers where leaks are taken, references
        too), `batches`, and a column for each of LEAKS.
        """
        numbers = [name for name in LEAKS if name not in ("leak_auc", "leak_distance")]
        leaks = self.lines(_leaks, [*_OF_LEAKS, *numbers])
        leaks = leaks.astype(dict.fromkeys(numbers, float) | {"visible": bool, "at_cut": bool})
        leaks["leak_auc"] = leaks[["leak_two_sided", "leak_net"]].max(axis=1)
        leaks["leak_distance"] = (leaks["leak_raw"] - 0.5).abs()
        no_message = leaks["message"] == "none"
        leaks["is_reference"] = no_message | (leaks["level"] == REFERENCE)
        place = leaks["layer"] == self.layer
        if self.layer in (None, "all", "cut"):
            place = leaks["visible"] & (leaks["at_cut"] if self.layer == "cut" else True)
        leaks["counts"] = place | no_message
        return leaks

    @cached_property
    def rebuilt(self) -> pd.DataFrame:
        """A line for what an attack rebuilt at a place.

        `setting`, `defense`, `seed`, `attack`, `message`, `party`, `layer`, `visible`, `rows`, `batches`,
        `beats_every_guess`, and a column `rebuilt.FIGURE` for the mean of each figure.
        """
        rebuilt = self.lines(_rebuilt, _OF_REBUILT)
        return rebuilt.astype({name: float for name in rebuilt if name.startswith("rebuilt.")})

    @cached_property
    def groups(self) -> "list[Setting]":
        """The settings with their runs, for what is told about one."""
        runs = {str(name): tuple(of) for name, of in self.runs.groupby("setting", sort=False)["run"]}
        firsts = [of[0] for of in runs.values()]
        return [
            Setting(name, of, first.defense, first.adversary, _is_undefended(first), first.is_audit, len(of), options)
            for (name, of), first, options in zip(runs.items(), firsts, _distinguishing(firsts), strict=True)
        ]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """A line a setting, by its name, in the order of `runs`: the fields of `Setting`, and its `baseline`.

        That is the undefended setting with all other options equal and of the same origin; itself if it is undefended;
        missing if there is none.
        """
        keys = {one.name: options_key(one.runs[0].config, ("seed", "defense")) for one in self.groups}

        def baseline(one: Setting) -> str | None:
            those = [other for other in self.groups if other.undefended and keys[other.name] == keys[one.name]]
            those = [other for other in those if may_be_compared(one.runs[0], other.runs[0])]
            made_by = one.runs[0].made_by
            those.sort(key=lambda other: (other is not one, other.runs[0].made_by != made_by, other.defense != "none"))
            return those[0].name if those else None

        return pd.DataFrame(self.groups).set_index("name").assign(baseline=[baseline(one) for one in self.groups])

    @property
    def where(self) -> str:
        """The layer at which leaks are taken, in words."""
        named = {None: "at any layer that an attacker sees", "cut": "at the cut layer"}
        return named.get(self.layer, f"at layer {self.layer}")

    @cached_property
    def default_x(self) -> str:
        """The first utility that the runs have: test accuracy for more than two classes, else test AUC."""
        several = any((run.manifest.data.classes or 0) > 2 for run in self.runs["run"])
        return self._first("test_accuracy", "test_auc") if several else self._first("test_auc", "test_accuracy")

    @cached_property
    def default_y(self) -> str:
        """The first leak that the runs have."""
        leaks = "leak_auc", "leak_ami", "leak_accuracy"
        return self._first(*leaks, "rebuilt.recognised", "rebuilt.entries_right", "rebuilt.r2")

    def _first(self, *names: str) -> str:
        return next((name for name in names if self.values(name).notna().any()), names[0])

    @property
    def utility(self) -> str:
        """The column of headline numbers for the model's utility, whatever the plane shows."""
        return self.x if self.x in ("test_auc", "test_accuracy") else self.default_x

    @property
    def leak(self) -> str:
        """The column of headline numbers for the leak."""
        return self.y if self.y.partition(":")[0] in LEAKS else self.default_y

    @property
    def worst(self) -> pd.Series:
        """Run -> the attack that reads most in it, of those that count; None where none was scored."""
        figure = "leak_auc" if self.leak_column in ("leak_distance", "leak_coin") else self.leak_column
        leaks = self.counted.dropna(subset=figure).sort_values(figure)
        return leaks.groupby(level=0)["attack"].last().reindex(self.runs.index)

    @property
    def counted(self) -> pd.DataFrame:
        """The leaks of attacks, where leaks are taken."""
        return self.leaks[self.leaks["counts"] & ~self.leaks["is_reference"]]

    @property
    def leak_column(self) -> str:
        """The column of `leaks` that the leak is read from."""
        head = self.leak.partition(":")[0]
        return head if head in LEAKS else "leak_auc"

    def values(self, name: str) -> pd.Series:
        """Run -> a quantity, as a user names it; nan where a run has none.

        `leak_auc` and the other LEAKS: of the attack that reads most; `leak_auc:norm`: of that attack. `rebuilt.recognised`,
        `rebuilt.exact:ATTACK`: a figure of what was rebuilt from messages, the largest. Other names: columns of `runs`.
        """
        head, _, attack = name.partition(":")
        if head in LEAKS:
            leaks = self.leaks[self.leaks["counts"]] if attack else self.counted
            lines = leaks[(leaks["attack"] == attack) | (leaks["name"] == attack)] if attack else leaks
            if head in ("leak_distance", "leak_coin", "leak_raw") and not attack:
                lines = lines.sort_values("leak_auc").groupby(level=0).tail(1)
        elif head in self.rebuilt:
            lines = self.rebuilt[(self.rebuilt["message"] != "none") & (self.rebuilt["attack"].eq(attack) | (not attack))]
        else:
            return pd.to_numeric(self.runs.get(name, pd.Series(math.nan, self.runs.index)), errors="coerce")
        return lines.groupby(level=0)[head].max().reindex(self.runs.index)

    def of_baseline(self, values: pd.Series, baselines: pd.Series | None = None) -> pd.Series:
        """Run -> the value of the undefended run of the same seed; nan without one. baselines: setting -> another one."""
        keys, baselines = ["setting", "seed"], self.settings["baseline"] if baselines is None else baselines
        known = self.runs[keys].assign(value=values).drop_duplicates(keys)
        baseline = self.runs[keys].assign(setting=self.runs["setting"].map(baselines))
        return baseline.merge(known, "left", keys)["value"].set_axis(self.runs.index)

    def titled(self, name: str) -> str:
        """The quantity in words, of a leak with the layer at which it is taken: `leak AUC at the cut layer, norm`."""
        head, _, attack = name.partition(":")
        words = TITLES.get(head, head.replace("_", " ").replace(".", " "))
        words = f"{words} {self.where}" if head in LEAKS and self.layer is not None else words
        return f"{words}, {attack}" if attack else words

    def over_seeds(self, name: str) -> pd.Series:
        """Setting -> mean and 95 % interval of a quantity over its seeds (`OverRuns`)."""
        made = over_seeds(self.runs.assign(value=self.values(name)), ["setting"], "value", name)
        return made.reindex(self.settings.index)

    def changes(self, name: str, baseline: pd.Series) -> pd.Series:
        """Setting -> mean and 95 % interval, over its runs, of a quantity less what it is beside. baseline: run -> value."""
        low, high = range_of(name)
        change = (self.values(name) - baseline).groupby(self.runs["setting"], sort=False)
        return change.apply(over_runs, limits=(low - high, high - low)).reindex(self.settings.index)

    @cached_property
    def front(self) -> "Front":
        """The largest set of settings whose runs of one seed read the same rows with the same attacks for as many epochs."""
        measured = self.runs[self.values(self.y).notna() & self.values(self.x).notna()]
        runs: dict[str, list[Run]] = {}
        left_out: dict[str, str] = {}
        for name, of in measured.groupby("setting", sort=False):
            seeds = f" in {(~of['learned']).sum()} of {len(of)} seeds" * bool(of["learned"].any())
            if of["learned"].all():
                runs[str(name)] = list(of["run"])
            else:
                left_out[str(name)] = f"its model learned nothing{seeds}"
        alike = {name: [other for other in runs if not _differ(of, runs[other])] for name, of in runs.items()}
        best = max(alike, key=lambda name: (len(alike[name]), len(_attacks(runs[name][0]))), default=None)
        if best is not None:
            left_out |= {name: why for name, of in runs.items() if (why := _differ(runs[best], of))}
        return Front(alike[best] if best else [], left_out)


class Setting(NamedTuple):
    """Runs that differ in nothing but the seed. seeds: their number. options: those that distinguish it, by dotted key."""

    name: str
    runs: tuple[Run, ...]
    defense: str
    adversary: str
    undefended: bool
    is_audit: bool
    seeds: int
    options: Mapping[str, Any]


class Front(NamedTuple):
    """settings: those that the same attacks read on the same data, for as many epochs, whose models learned something.

    left_out: each other setting that was measured -> why it stands on no front with them.
    """

    settings: list[str]
    left_out: dict[str, str]


def over_seeds(frame: pd.DataFrame, by: Sequence[str], column: str, figure: str = "") -> pd.Series:
    """Mean and Student's 95 % interval of a column over the runs of each group, within the range of the figure.

    by: columns. figure: what `range_of` knows, if it isn't the column's name. Groups keep their order.
    """
    limits = range_of(figure or column)
    return frame.groupby(list(by), sort=False, dropna=False)[column].apply(lambda values: over_runs(values, limits))


def sections(
    runs: Sequence[Run], *, x: str = "", y: str = "", layer: str | None = None, by: tuple[str, ...] = ()
) -> list[Section]:
    """In the order of experiments and data sets; runs without an experiment share a section for each data set.

    x, y: quantities of the plane; empty: those that the runs have. Raises UserError if no run has what the user asks for.
    """
    made: list[Section] = []
    parts = [(experiment, data, frame_of(members)) for experiment, data, members in data_parts(runs)]
    styles = _styles([frame for _, _, frame in parts])
    for experiment, data, frame in parts:
        name, taken = slugged(f"{experiment or 'runs'} {data}"), {one.slug for one in made}
        slug = next(s for s in (name, *(f"{name}_{i}" for i in range(2, len(made) + 3))) if s not in taken)
        one = Section(f"{experiment or 'Runs'} on {data}", slug, experiment, frame, x, y, layer, by, styles)
        made.append(replace(one, x=x or one.default_x, y=y or one.default_y))
    _refuse_unknown(made, x, y, layer)
    return made


def with_honest_runs(section: Section) -> Section:
    """The same section of the honest runs that runs with an adversary keep; of the others nothing is measured."""
    names = zip(section.runs["run"], section.runs["setting"], strict=True)
    lines = [_line(run.honest, name) if run.honest else {"run": None} for run, name in names]
    frame = pd.json_normalize(lines).set_index(section.runs.index)
    return replace(section, runs=frame.reindex(columns=section.runs.columns))


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """`Section.runs` of some runs, in the order of settings and seeds."""

    def order(run: Run, name: str) -> tuple[Any, ...]:
        return run.defense != "none", run.defense, run.adversary != "none", _rank(name), str(run.seed)

    pairs = sorted(zip(runs, _names(runs), strict=True), key=lambda pair: order(*pair))
    return pd.json_normalize([_line(*pair) for pair in pairs])


def _line(run: Run, name: str) -> dict[str, Any]:
    """Of `Section.runs`."""
    auc, sent, numbers = run.summary.test_auc, run.summary.bytes_sent, run.summary.model_dump(exclude=_NO_NUMBERS)
    line = {key: value for key, value in numbers.items() if not isinstance(value, str | list)}
    line |= {key: getattr(run, key) for key in ("defense", "adversary", "seed", "is_audit", "made_by")}
    line |= {f"bytes_sent.{kind}": count for kind, count in sent.items()}
    line |= {"run": run, "setting": name, "undefended": _is_undefended(run), "bytes_sent": sum(sent.values()) or None}
    line |= {f"ceiling.{which}": ceiling(run, f"leak_auc_{which}") for which in ("one_message", "all_messages")}
    return line | {"learned": run.summary.learned is not False and (auc is None or auc > 0.5)}


def ceiling(run: Run, key: str) -> float:
    """The lowest leak AUC that any of its defenses promises; nan without a promise."""
    heights = [getattr(promise, key) for promise in run.summary.guarantees.values() if promise is not None]
    return min((height for height in heights if height is not None), default=math.nan)


_OF_LEAKS = ("message", "party", "layer", "visible", "batches", "attack", "name", "level", "at_cut")
_OF_REBUILT = ("attack", "message", "party", "layer", "visible", "rows", "batches", "beats_every_guess")


def _leaks(run: Run) -> Iterator[dict[str, Any]]:
    """Of `Section.leaks`."""
    for one in run.summary.leaks:
        line = {key: getattr(one, key) for key in _OF_LEAKS[:5]}
        line |= {"attack": attack_on(one.attack, one.message), "name": one.attack}
        line |= {"level": level_of(one.attack, run.manifest.threats), "at_cut": run.crosses(one.party, one.layer)}
        figures = {"raw": one.raw, "two_sided": one.two_sided, "oriented": one.oriented, "net": one.net, **one.classes}
        yield line | {f"leak_{name}": figure.mean for name, figure in figures.items()} | {"leak_coin": one.coin}


def _rebuilt(run: Run) -> Iterator[dict[str, Any]]:
    """Of `Section.rebuilt`."""
    for one in run.summary.reconstructions:
        figures = {f"rebuilt.{name}": figure.mean for name, figure in one.figures.items()}
        yield {key: getattr(one, key) for key in _OF_REBUILT} | figures


def _attacks(run: Run) -> dict[str, Any]:
    """The attacks that ran -> their options."""
    return {name: of for name, of in (run.config.get("attack") or {}).items() if name not in run.summary.skipped}


def _differ(base: Sequence[Run], other: Sequence[Run]) -> str:
    """In what the runs of another setting differ, in words; '' in nothing. Rows are compared between runs of one seed."""
    ours, theirs, epochs = _attacks(base[0]), _attacks(other[0]), other[0].summary.epochs
    data = ({run.seed: (run.manifest.data.fingerprint, run.manifest.data.train_rows) for run in of} for of in (base, other))
    one, two = data
    common = one.keys() & two.keys()
    same = all(one[seed] == two[seed] for seed in common) if common else {*one.values()} & {*two.values()}
    missing = [name for name in ours if name not in theirs]
    besides = [name for name, options in theirs.items() if name not in ours or ours[name] != options]
    parts = ["it has other rows"] * (not same)
    parts += [f"it was trained for {epochs} epoch{'s' * (epochs != 1)}"] * (epochs != base[0].summary.epochs)
    parts += [f"it wasn't attacked by {', '.join(missing)}"] * bool(missing)
    parts += [f"it was also attacked by {', '.join(besides)}, or with other options"] * bool(besides)
    return ", and ".join(parts)


def data_parts(runs: Sequence[Run]) -> list[tuple[str, str, list[Run]]]:
    """(experiment or '', data set in words, runs), sorted: runs that may share a plane.

    A table of the user's own is named by its file. Files are named too where runs of one kind of data set read different
    ones: `criteo, day_0.gz` beside `criteo, day_1.gz`; `my.csv, 620f63d7` where the content differs as well. Audits of
    recordings of the same rows are one part.
    """
    facts = pd.DataFrame([_data_facts(run) for run in runs], columns=["experiment", "data", "files", "content"])
    of_data = facts.groupby(["experiment", "data"])
    several = of_data["files"].transform("nunique") > 1
    differ = facts.groupby(["experiment", "data", "files"])["content"].transform("nunique") > 1
    made, facts["content"] = [], facts["content"].where(differ, "")
    for (experiment, data, files, content), of in facts.groupby(list(facts)):
        named = [files] * bool(files != data and (several | differ)[of.index[0]])
        made.append((experiment, ", ".join([data, *named, *filter(None, [content[:12]])]), [runs[i] for i in of.index]))
    return made


def _data_facts(run: Run) -> tuple[str, str, str, str]:
    """(experiment, data set, names of its files, their digests)."""
    data = run.manifest.data.model_dump()
    if run.is_audit:
        rows = run.manifest.data.fingerprint
        return run.experiment, f"recorded rows {rows[:8]}" if rows else run.dataset, "", ""
    files = list(dict(sorted((data.get("party_files") or {"": data}).items())).values())
    paths = [path if isinstance(path, list) else [path] for file in files if (path := file.get("path"))]
    names = "+".join(PurePath(str(path)).name for path in itertools.chain(*paths))
    content = " ".join(str(file["file_sha256"]) for file in files if file.get("file_sha256"))
    return run.experiment, names if run.dataset in ("csv", "parquet") and names else run.dataset, names, content


def attack_on(attack: str, message: str) -> str:
    """`norm on gradients`; the name alone of an attack that reads no message."""
    return attack if message in ("", "none") else f"{attack} on {message}s"


def slugged(text: str) -> str:
    """The text as part of a file name: lower case letters, digits and _."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "x"


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of the options that a result depends on."""
    return pd.json_normalize([essential(config)]).iloc[0].to_dict() if config else {}


def options_key(config: Mapping[str, Any], without: Collection[str]) -> str:
    rest = {key: value for key, value in essential(config).items() if key not in without}
    return json.dumps(rest, sort_keys=True, default=str)


def _names(runs: Sequence[Run]) -> list[str]:
    """For each run the name of its setting: its defenses, what distinguishes it, and what of its origin does."""
    keys = [(options_key(run.config, ("seed",)), run.made_by, run.dataset if run.is_audit else "") for run in runs]
    firsts = dict(zip(keys, runs, strict=True))
    options = dict(zip(firsts, _distinguishing(list(firsts.values())), strict=True))
    names: dict[Hashable, str] = {}
    for key, run in firsts.items():
        alike = [other for other in firsts if other[0] == key[0] and other[2] == key[2]]
        origins = dict(zip(alike, names_of_runs([firsts[other] for other in alike]), strict=True))
        parts = [within(_settings_name(run, options[key]), _MOST_NAME), *filter(None, [origins[key]])]
        name = ", ".join(parts)
        names[key] = name if name not in names.values() else f"{name}, options {digest({**run.config, 'seed': None})}"
    return [names[key] for key in keys]


def _settings_name(run: Run, options: Mapping[str, Any]) -> str:
    """Its defenses, and these options, in words; an audit is named by its recording, which is that of a run by the run."""
    words = in_words({k: v for k, v in options.items() if k.split(".")[0] not in ("attack", "adversary", "recording")})
    for head, named in (("adversary", "adversary"), ("attack", "attacked by")):
        if chosen := [key for key in options if key.startswith(head)]:
            names = list(run.config.get(head) or {})
            names = names if len(names) <= 4 else [*names[:2], f"{len(names) - 2} more"]
            inner = in_words({key: options[key] for key in chosen if not key.endswith("_target_")})
            words.append(f"{named} {'+'.join(names) or 'none'}" + f" ({', '.join(inner)})" * (0 < len(inner) <= 3))
    name = run.dataset.removeprefix("recording ").removesuffix("/recording").rpartition("/")[2]
    return ", ".join([name if run.is_audit and "recording" in options else run.defense, *words])


def _distinguishing(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run: the options that differ among the runs with the same defenses."""
    options = pd.json_normalize([essential(run.config) for run in runs]).drop(columns="seed", errors="ignore").astype(object)
    texts = options.map(lambda value: json.dumps(value, default=str))
    differ = texts.groupby(pd.Series([run.defense for run in runs])).transform("nunique") > 1
    made = []
    for place in options.index:
        kept = [key for key in options if differ.at[place, key] and (v := options.at[place, key]) == v]  # nan: it has none
        classes = tuple(key.removesuffix("_target_") for key in kept if key.endswith("._target_"))
        kept = [key for key in kept if key.endswith("_target_") or not key.startswith(classes)]
        made.append({key: options.at[place, key] for key in sorted(kept, key=_weight)})
    return made


def _weight(key: str) -> int:
    """The order in a name: the defense's options, then the others, then those of attacks."""
    return ("defense", "", "attack").index(head if (head := key.split(".")[0]) in ("defense", "attack") else "")


def _is_undefended(run: Run) -> bool:
    """Whether it has no defense, or only defenses that change nothing; of an audit nobody knows."""

    def is_neutral(name: str, options: Mapping[str, Any]) -> bool:
        key, value = _NEUTRAL.get(name, ("", None))
        asked = [options.get(other) for other in (key, "error_bound", "power")]
        return name in _NEUTRAL and asked == [value, None, None]

    return not run.is_audit and all(is_neutral(name, of or {}) for name, of in (run.config.get("defense") or {}).items())


def _rank(name: str) -> list[Any]:
    """Numbers in a name are sorted as numbers."""
    is_number = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?").fullmatch
    return [(1, float(part), "") if is_number(part) else (0, 0.0, part) for part in re.split(r"[ ,]+", name)]


def _styles(frames: Sequence[pd.DataFrame]) -> dict[str, Style]:
    """A colour for each defense, and a shape for each of its settings, so that print without colours has them too."""
    every, shapes = pd.concat([pd.DataFrame(columns=["run", "defense", "setting"]), *frames]), itertools.cycle(_SHAPES)
    runs: list[Run] = list(every["run"])
    attacks = dict.fromkeys(attack_on(leak.attack, leak.message) for run in runs for leak in run.summary.leaks)
    attacks |= dict.fromkeys(entry.attack for run in runs for entry in run.summary.reconstructions)
    looks_of_attacks = zip(itertools.cycle(_OF_ATTACKS), itertools.cycle(_SHAPES), strict=False)
    made = {name: Style(*look) for name, look in zip(attacks, looks_of_attacks, strict=False)}
    of_defenses = sorted(every.groupby("defense", sort=False), key=lambda one: one[0] != "none")
    for place, (defense, of) in enumerate(of_defenses):
        looks = {name: Style(_COLOURS[place % len(_COLOURS)], next(shapes)) for name in of["setting"].unique()}
        made |= {defense: next(iter(looks.values())), **looks}
    return made


def _refuse_unknown(made: Sequence[Section], x: str, y: str, layer: str | None) -> None:
    for option, name in (("--x", x), ("--y", y)):
        if made and name and not any(one.values(name).notna().any() for one in made):
            names = dict.fromkeys(name for one in made for name in (*LEAKS, *one.runs.select_dtypes("number"), *one.rebuilt))
            there = [name for name in names if any(one.values(name).notna().any() for one in made)]
            raise UserError(f"no run has this quantity; they have {', '.join(there[:_MOST_NAMED])}", key=option, value=name)
    layers = list(dict.fromkeys(layer for one in made for layer in one.leaks["layer"] if layer))
    if made and layer not in (None, "all", "cut", *layers):
        known = f"they are {', '.join([*layers[:_MOST_NAMED], 'cut', 'all'])}" if layers else "no layer was attacked"
        raise UserError(f"no run has a leak at this layer; {known}", key="--layer", value=layer)
