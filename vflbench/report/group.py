"""The runs of a page as data frames: settings and their seeds, what is compared with what, and how each looks in figures.

A **setting** is what differs in nothing but the seed; its runs are averaged, and nothing else is (`over_seeds`). The frames
of a `Section` have one index, the number of the run, so that what is computed from one of them is a column of another.
"""

import itertools
import json
import math
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.report.words import in_words, within
from vflbench.results.folder import digest, essential
from vflbench.results.runs import Run, made_by, may_be_compared, names_of
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
_OWN_TABLES = ("csv", "parquet")
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
    `test_auc`, `seconds`, `bytes_sent.gradient`; `bytes_sent` is the sum.

    leaks: a line a leak of the last epoch. `setting`, `defense`, `seed`; `attack` (`norm on gradients`), `name` (`norm`),
    `message`, `party`, `layer`, `visible`, `at_cut`, `level`, `is_reference`, `counts` (whether it is at the layers where
    leaks are taken, references too), `batches`, and a column for each of LEAKS.

    rebuilt: a line for what an attack rebuilt at a place. `setting`, `defense`, `seed`, `attack`, `message`, `party`,
    `layer`, `visible`, `rows`, `batches`, `beats_every_guess`, and a column `rebuilt.FIGURE` for the mean of each figure.

    settings: a line a setting, by its name, in the order of `runs`. `defense`, `adversary`, `undefended`, `is_audit`,
    `seeds` (their number), `baseline` (the undefended setting that it is compared with; missing if there is none), `options`
    (those that distinguish it, dotted key -> value), `config` (of its first run).

    x, y: the columns of its plane, as `values` takes them. layer: where leaks are taken: None: at any layer that an attacker
    sees; `cut`; or a layer's name. by: keys of options. styles: name of a defense, a setting, an attack -> its look, which
    is the same in all sections of a page.
    """

    title: str
    slug: str
    experiment: str
    runs: pd.DataFrame
    leaks: pd.DataFrame
    rebuilt: pd.DataFrame
    settings: pd.DataFrame
    x: str
    y: str
    layer: str | None
    by: tuple[str, ...]
    styles: Mapping[str, Style]

    @property
    def where(self) -> str:
        """The layer at which leaks are taken, in words."""
        named = {None: "at any layer that an attacker sees", "cut": "at the cut layer"}
        return named.get(self.layer, f"at layer {self.layer}")

    @property
    def utility(self) -> str:
        """The column of headline numbers for the model's utility, whatever the plane shows."""
        return self.x if self.x in ("test_auc", "test_accuracy") else default_x(self.runs)

    @property
    def leak(self) -> str:
        """The column of headline numbers for the leak."""
        return self.y if self.y.partition(":")[0] in LEAKS else default_y(self.leaks, self.rebuilt)

    @property
    def worst(self) -> pd.Series:
        """Run -> the attack that reads most in it, of those that count; None where none was scored."""
        figure = "leak_auc" if self.leak_column in ("leak_distance", "leak_coin") else self.leak_column
        leaks = self.counted
        leaks = leaks[leaks[figure].notna()]
        return leaks.sort_values(figure).groupby(level=0)["attack"].last().reindex(self.runs.index)

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
            numbers = self.runs[name] if name in self.runs and name not in _OF_RUNS else pd.Series(math.nan, self.runs.index)
            return pd.to_numeric(numbers, errors="coerce")
        return lines.groupby(level=0)[head].max().reindex(self.runs.index)

    def of_baseline(self, values: pd.Series) -> pd.Series:
        """Run -> the value of the undefended run of the same seed; nan without one."""
        keys = self.runs["setting"], self.runs["seed"]
        known = dict(zip(zip(*keys, strict=True), values, strict=True))
        baselines = keys[0].map(self.settings["baseline"])
        pairs = zip(baselines, keys[1], strict=True)
        return pd.Series([known.get(pair, math.nan) for pair in pairs], self.runs.index, dtype=float)

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

    @cached_property
    def groups(self) -> "list[Setting]":
        """The settings with their runs, for what is told about one."""
        runs = dict(list(self.runs.groupby("setting", sort=False)["run"]))
        return [
            Setting(p.Index, tuple(runs[p.Index]), p.defense, p.adversary, p.undefended, p.options)
            for p in self.settings.itertuples()
        ]

    def baseline(self, setting: "Setting") -> "Setting | None":
        return next((other for other in self.groups if other.name == self.settings.at[setting.name, "baseline"]), None)

    @cached_property
    def front(self) -> "Front":
        """The settings that may stand on one front."""
        return _front(self)


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that differ in nothing but the seed, with some of its line of `Section.settings`."""

    name: str
    runs: tuple[Run, ...]
    defense: str
    adversary: str
    undefended: bool
    options: Mapping[str, Any]


class Front(NamedTuple):
    """settings: those that the same attacks read on the same data, for as many epochs, whose models learned something.

    left_out: each other setting that was measured -> why it stands on no front with them.
    """

    settings: list[str]
    left_out: dict[str, str]


_OF_RUNS = ("run", "setting", "defense", "adversary", "seed", "is_audit", "undefended", "made_by", "learned")


def over_seeds(frame: pd.DataFrame, by: Sequence[str], column: str, figure: str = "") -> pd.Series:
    """Mean and Student's 95 % interval of a column over the runs of each group, within the range of the figure.

    by: columns. figure: what `range_of` knows, if it isn't the column's name. Groups keep their order.
    """
    limits = range_of(figure or column)
    return frame.groupby(list(by), sort=False, dropna=False)[column].apply(lambda values: over_runs(values, limits))


def paired(section: Section, setting: str, baseline: str, name: str) -> OverRuns:
    """Mean and 95 % interval of a quantity minus its value in the baseline with the same seed."""
    values = section.values(name).set_axis(pd.MultiIndex.from_frame(section.runs[["setting", "seed"]]))
    low, high = range_of(name)
    return over_runs((values[setting] - values[baseline]).dropna(), (low - high, high - low))


def sections(
    runs: Sequence[Run], *, x: str = "", y: str = "", layer: str | None = None, by: tuple[str, ...] = ()
) -> list[Section]:
    """In the order of experiments and data sets; runs without an experiment share a section for each data set.

    x, y: quantities of the plane; empty: those that the runs have. Raises UserError if no run has what the user asks for.
    """
    made: list[Section] = []
    styles = _styles([frame_of(members) for _, _, members in data_parts(runs)])
    for experiment, data, members in data_parts(runs):
        frame = frame_of(members)
        leaks, rebuilt = leaks_of(frame, layer), rebuilt_of(frame)
        title = f"{experiment or 'Runs'} on {data}"
        slug = _slug("_".join([experiment or "runs", *re.split(r"[ ,.]+", data)]), {one.slug for one in made})
        axes = x or default_x(frame), y or default_y(leaks, rebuilt)
        made.append(Section(title, slug, experiment, frame, leaks, rebuilt, settings_of(frame), *axes, layer, by, styles))
    _refuse_unknown(made, x, y, layer)
    return made


def at_cut(section: Section) -> Section:
    """The same section with leaks taken at the cut layer, unless a layer was chosen: as papers report them."""
    return section if section.layer else replace(section, layer="cut", leaks=leaks_of(section.runs, "cut"))


def beside_honest(section: Section) -> Section:
    """The same section of the honest runs that runs with an adversary keep; of the others nothing is measured."""
    kept = section.runs[[run.honest is not None for run in section.runs["run"]]]
    frame = _frame([run.honest for run in kept["run"]], list(kept["setting"])).set_axis(kept.index)
    leaks, rebuilt = leaks_of(frame, section.layer), rebuilt_of(frame)
    return replace(section, runs=frame.reindex(section.runs.index), leaks=leaks, rebuilt=rebuilt)


def frame_of(runs: Sequence[Run]) -> pd.DataFrame:
    """`Section.runs` of some runs, in the order of settings and seeds."""
    frame = _frame(runs, _names(runs))

    def order(p: Any) -> tuple[Any, ...]:
        return p.defense != "none", p.defense, p.adversary != "none", _rank(p.setting), str(p.seed)

    return frame.loc[[p.Index for p in sorted(frame.itertuples(), key=order)]].reset_index(drop=True)


def _frame(runs: Sequence[Run], names: Sequence[str]) -> pd.DataFrame:
    numbers = pd.json_normalize([_numbers(run) for run in runs]).reindex(range(len(runs)))
    lines = [
        (run, name, run.defense, run.adversary, run.seed, run.is_audit, _is_undefended(run), made_by(run), _learned(run))
        for run, name in zip(runs, names, strict=True)
    ]
    return pd.concat([pd.DataFrame(lines, columns=list(_OF_RUNS)).astype({"run": object}), numbers], axis=1)


def _learned(run: Run) -> bool:
    auc = run.summary.test_auc
    return run.summary.learned is not False and (auc is None or auc > 0.5)


def leaks_of(frame: pd.DataFrame, layer: str | None) -> pd.DataFrame:
    """`Section.leaks` of the runs of a frame."""
    lines, index = [], []
    for number, run in frame["run"].items():
        for leak in run.summary.leaks:
            line = {key: getattr(leak, key) for key in ("message", "party", "layer", "visible", "batches")}
            line |= {"attack": attack_on(leak.attack, leak.message), "name": leak.attack}
            line |= {"level": level_of(leak.attack, run.threats), "at_cut": run.layers.crosses(leak.party, leak.layer)}
            line |= {f"leak_{name}": getattr(leak, name).mean for name in ("raw", "two_sided", "oriented", "net")}
            line |= {f"leak_{name}": figure.mean for name, figure in leak.classes.items()} | {"leak_coin": leak.coin}
            lines.append(line)
            index.append(number)
    numbers = [name for name in LEAKS if name not in ("leak_auc", "leak_distance")]
    leaks = pd.DataFrame(lines, index=index, columns=[*_OF_LEAKS, *numbers])
    leaks[numbers] = leaks[numbers].astype(float)
    leaks[["visible", "at_cut"]] = leaks[["visible", "at_cut"]].astype(bool)
    leaks["leak_auc"] = leaks[["leak_two_sided", "leak_net"]].max(axis=1)
    leaks["leak_distance"] = (leaks["leak_raw"] - 0.5).abs()
    no_message = leaks["message"] == "none"
    leaks["is_reference"] = no_message | (leaks["level"] == REFERENCE)
    place = leaks["layer"] == layer
    if layer in (None, "all", "cut"):
        place = leaks["visible"] & (leaks["at_cut"] if layer == "cut" else True)
    leaks["counts"] = place | no_message
    return leaks.join(frame[["setting", "defense", "seed"]])


_OF_LEAKS = ("attack", "name", "level", "message", "party", "layer", "visible", "batches", "at_cut")


def rebuilt_of(frame: pd.DataFrame) -> pd.DataFrame:
    """`Section.rebuilt` of the runs of a frame."""
    keys = ("attack", "message", "party", "layer", "visible", "rows", "batches", "beats_every_guess")
    lines, index = [], []
    for number, run in frame["run"].items():
        for entry in run.summary.reconstructions:
            figures = {f"rebuilt.{name}": figure.mean for name, figure in entry.figures.items()}
            lines.append({key: getattr(entry, key) for key in keys} | figures)
            index.append(number)
    rebuilt = pd.DataFrame(lines, index=index) if lines else pd.DataFrame(columns=list(keys), index=pd.Index([], dtype=int))
    numbers = [name for name in rebuilt if name.startswith("rebuilt.")]
    rebuilt[numbers] = rebuilt[numbers].astype(float)
    return rebuilt.join(frame[["setting", "defense", "seed"]])


def settings_of(frame: pd.DataFrame) -> pd.DataFrame:
    """`Section.settings` of the runs of a frame."""
    columns = ["defense", "adversary", "undefended", "is_audit", "run"]
    firsts = frame.groupby("setting", sort=False)[columns].first()
    firsts["seeds"] = frame.groupby("setting", sort=False).size()
    firsts["config"] = [run.config for run in firsts["run"]]
    firsts["options"] = pd.Series(_distinguishing(list(firsts["run"])), firsts.index)
    firsts["baseline"] = [_baseline(name, firsts) for name in firsts.index]
    return firsts.drop(columns="run")


def _baseline(name: str, firsts: pd.DataFrame) -> str | None:
    """The undefended setting with all other options equal and of the same origin; itself if it is undefended."""
    mine = firsts.loc[name]
    if mine["undefended"]:
        return name
    without = ("seed", "defense")
    rest = options_key(mine["config"], without)
    others = firsts[firsts["undefended"]]
    names = [other for other in others.index if options_key(others.at[other, "config"], without) == rest]
    names = [other for other in names if may_be_compared(mine["run"], others.at[other, "run"])]
    same = [other for other in names if made_by(others.at[other, "run"]) == made_by(mine["run"])]
    return min(same or names, key=lambda other: others.at[other, "defense"] != "none", default=None)


def _front(section: Section) -> Front:
    """The largest set of settings whose runs of one seed read the same rows with the same attacks for as many epochs."""
    measured = section.runs[section.values(section.y).notna() & section.values(section.x).notna()]
    facts = {name: _Read.of(list(group)) for name, group in measured.groupby("setting", sort=False)["run"]}
    left_out = {}
    for name, good in measured.groupby("setting", sort=False)["learned"]:
        if not good.all():
            seeds = "" if not good.any() else f" in {(~good).sum()} of {len(good)} seeds"
            left_out[str(name)] = f"its model learned nothing{seeds}"
    candidates = {name: read for name, read in facts.items() if name not in left_out}
    alike = {
        name: [other for other in candidates if not read.differs(candidates[other])] for name, read in candidates.items()
    }
    best = max(alike, key=lambda name: (len(alike[name]), len(candidates[name].attacks)), default=None)
    if best is None:
        return Front([], left_out)
    left_out |= {name: candidates[best].differs(read) for name, read in candidates.items() if name not in alike[best]}
    return Front(alike[best], left_out)


@dataclass(frozen=True)
class _Read:
    """What was attacked, and by what. rows: seed -> fingerprint of the rows."""

    rows: Mapping[Any, str]
    epochs: int
    attacks: Mapping[str, str]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "_Read":
        ran = [{a: o for a, o in (run.config.get("attack") or {}).items() if a not in run.skipped} for run in runs]
        rows = {run.seed: f"{run.manifest.data.fingerprint} {run.manifest.data.train_rows}" for run in runs}
        attacks = {name: json.dumps(options, sort_keys=True, default=str) for one in ran for name, options in one.items()}
        return cls(rows, runs[0].summary.epochs, attacks)

    def differs(self, other: "_Read") -> str:
        """In what the other differs, in words; '' in nothing."""
        shared = self.rows.keys() & other.rows.keys()
        same = (
            all(self.rows[seed] == other.rows[seed] for seed in shared)
            if shared
            else {*self.rows.values()} & {*other.rows.values()}
        )
        missing = [name for name in self.attacks if name not in other.attacks]
        more = [name for name in other.attacks if name not in self.attacks]
        changed = [name for name, options in other.attacks.items() if self.attacks.get(name, options) != options]
        parts = ["it has other rows"] * (not same)
        parts += [f"it was trained for {other.epochs} epoch{'s' * (other.epochs != 1)}"] * (self.epochs != other.epochs)
        parts += [f"it wasn't attacked by {', '.join(missing)}"] * bool(missing)
        parts += [f"it was also attacked by {', '.join(more)}"] * bool(more)
        parts += [f"{', '.join(changed)} had other options"] * bool(changed)
        return ", and ".join(parts)


def data_parts(runs: Sequence[Run]) -> list[tuple[str, str, list[Run]]]:
    """(experiment or '', data set in words, runs), sorted: runs that may share a plane.

    A table of the user's own is named by its file. Files are named too where runs of one kind of data set read different
    ones: `criteo, day_0.gz` beside `criteo, day_1.gz`; `my.csv, 620f63d7` where the content differs as well. Audits of
    recordings of the same rows are one part.
    """
    facts = pd.DataFrame([_data_facts(run) for run in runs], columns=["experiment", "data", "files", "content"])
    whole = facts.groupby(["experiment", "data"])
    several = whole["files"].transform("nunique") > 1
    contents = facts["content"].mask(facts["content"] == "").groupby([facts[key] for key in ("experiment", "data", "files")])
    differ = contents.transform("nunique") > 1
    facts["content"] = facts["content"].replace("", "not recorded").where(differ, "")
    made = []
    for (experiment, data, files, content), of in facts.groupby(list(facts), sort=True):
        named = [files or "files not recorded"] * bool((several | differ)[of.index[0]])
        words = [data, *(name for name in named if name != data), *filter(None, [content[:12]])]
        made.append((experiment, ", ".join(words), [runs[i] for i in of.index]))
    return made


def _data_facts(run: Run) -> tuple[str, str, str, str]:
    """(experiment, data set, names of its files, their digests)."""
    data = run.manifest.data.model_dump()
    if run.is_audit:
        rows = run.manifest.data.fingerprint
        return run.experiment, f"recorded rows {rows[:8]}" if rows else run.dataset, "", ""
    of_parties = data.get("party_files") or {}
    files = [of_parties[party] for party in sorted(of_parties)] or [data]
    paths = [path if isinstance(path, list) else [path] for file in files if (path := file.get("path"))]
    names = "+".join(PurePath(str(path)).name for path in itertools.chain(*paths))
    content = " ".join(str(file["file_sha256"]) for file in files if file.get("file_sha256"))
    return run.experiment, names if run.dataset in _OWN_TABLES and names else run.dataset, names, content


def default_x(frame: pd.DataFrame) -> str:
    """The first utility that the runs have: test accuracy for more than two classes, else test AUC."""
    several = any((run.manifest.data.classes or 0) > 2 for run in frame["run"])
    names = ("test_accuracy", "test_auc") if several else ("test_auc", "test_accuracy")
    return next((name for name in names if name in frame and frame[name].notna().any()), "test_auc")


def default_y(leaks: pd.DataFrame, rebuilt: pd.DataFrame) -> str:
    """The first leak that the runs have."""
    counted = leaks[leaks["counts"] & ~leaks["is_reference"]]
    known = [name for name in ("leak_auc", "leak_ami", "leak_accuracy") if counted[name].notna().any()]
    names = ("rebuilt.recognised", "rebuilt.entries_right", "rebuilt.r2")
    return next(iter([*known, *(name for name in names if name in rebuilt and rebuilt[name].notna().any())]), "leak_auc")


def attack_on(attack: str, message: str) -> str:
    """`norm on gradients`; the name alone of an attack that reads no message."""
    return attack if message in ("", "none") else f"{attack} on {message}s"


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value of the options that a result depends on."""
    return pd.json_normalize([essential(config)]).iloc[0].to_dict() if config else {}


def options_key(config: Mapping[str, Any], without: Collection[str]) -> str:
    rest = {key: value for key, value in essential(config).items() if key not in without}
    return json.dumps(rest, sort_keys=True, default=str)


def _names(runs: Sequence[Run]) -> list[str]:
    """For each run the name of its setting: its defenses, what distinguishes it, and what of its origin does."""
    keys = [(options_key(run.config, ("seed",)), made_by(run), run.dataset if run.is_audit else "") for run in runs]
    firsts = dict(zip(keys, runs, strict=True))
    options = dict(zip(firsts, _distinguishing(list(firsts.values())), strict=True))
    names: dict[Hashable, str] = {}
    for key, run in firsts.items():
        alike = [other for other in firsts if other[0] == key[0] and other[2] == key[2]]
        origins = dict(zip(alike, names_of([firsts[other] for other in alike]), strict=True))
        parts = [within(_settings_name(run, options[key]), _MOST_NAME), *filter(None, [origins[key]])]
        name = ", ".join(parts)
        names[key] = name if name not in names.values() else f"{name}, options {digest({**run.config, 'seed': None})}"
    return [names[key] for key in keys]


def _settings_name(run: Run, options: Mapping[str, Any]) -> str:
    """Its defenses, and these options, in words; an audit is named by its recording, which is that of a run by the run."""
    words = in_words({k: v for k, v in options.items() if k.split(".")[0] not in ("attack", "adversary", "recording")})
    if run.adversary != "none" and any(key.startswith("adversary") for key in options):
        words.append(f"adversary {run.adversary}{_inner(options, 'adversary')}")
    if any(key.startswith("attack") for key in options):
        attacks = list(run.config.get("attack") or {})
        attacks = attacks if len(attacks) <= 4 else [*attacks[:2], f"{len(attacks) - 2} more"]
        words.append("attacked by " + ("+".join(attacks) or "none") + _inner(options, "attack"))
    name = run.dataset.removeprefix("recording ").removesuffix("/recording").rpartition("/")[2]
    return ", ".join([name if run.is_audit and "recording" in options else run.defense, *words])


def _inner(options: Mapping[str, Any], head: str) -> str:
    """The distinguishing options of attacks or adversaries in brackets, if they are few."""
    words = in_words({k: v for k, v in options.items() if k.startswith(f"{head}.") and not k.endswith("_target_")})
    return f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""


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
    return not run.is_audit and all(_is_neutral(*item) for item in (run.config.get("defense") or {}).items())


def _is_neutral(name: str, options: Mapping[str, Any] | None) -> bool:
    options = options or {}
    if name not in _NEUTRAL or options.get("error_bound") is not None or options.get("power") is not None:
        return False
    key, value = _NEUTRAL[name]
    return isinstance(options.get(key), int | float) and options[key] == value


def _numbers(run: Run) -> dict[str, Any]:
    """The numbers of summary.json; the counts of bytes add up."""
    known = run.summary.model_dump(exclude=_NO_NUMBERS)
    sent = {f"bytes_sent.{kind}": count for kind, count in known.pop("bytes_sent", {}).items()}
    plain = {key: value for key, value in known.items() if not isinstance(value, str | list)}
    return plain | sent | {"bytes_sent": sum(sent.values()) if sent else None}


def _rank(name: str) -> list[Any]:
    """Numbers in a name are sorted as numbers."""
    is_number = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?").fullmatch
    return [(1, float(part), "") if is_number(part) else (0, 0.0, part) for part in re.split(r"[ ,]+", name)]


def _styles(frames: Iterable[pd.DataFrame]) -> dict[str, Style]:
    """A colour for each defense, and a shape for each of its settings, so that print without colours has them too."""
    frames = list(frames)
    made: dict[str, Style] = {}
    shapes = itertools.cycle(_SHAPES)
    defenses = list(dict.fromkeys(defense for frame in frames for defense in frame["defense"]))
    for place, defense in enumerate(sorted(defenses, key=lambda name: name != "none")):
        colour = _COLOURS[place % len(_COLOURS)]
        names = dict.fromkeys(name for frame in frames for name in frame.loc[frame["defense"] == defense, "setting"])
        of_settings = {name: Style(colour, next(shapes)) for name in names}
        made |= {defense: next(iter(of_settings.values())), **of_settings}
    runs = [run for frame in frames for run in frame["run"]]
    attacks = dict.fromkeys(attack_on(leak.attack, leak.message) for run in runs for leak in run.summary.leaks)
    attacks |= dict.fromkeys(entry.attack for run in runs for entry in run.summary.reconstructions)
    looks = [Style(_OF_ATTACKS[i % len(_OF_ATTACKS)], _SHAPES[i % len(_SHAPES)]) for i in range(len(attacks))]
    return dict(zip(attacks, looks, strict=True)) | made


def _slug(name: str, taken: Collection[str]) -> str:
    """A name for files: ASCII letters, digits and ._- alone, not of another section."""
    slug = re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).lstrip(".-")[:100] or "runs"
    lower = {other.lower() for other in taken}
    return next(s for s in (slug, *(f"{slug}_{i}" for i in range(2, len(taken) + 3))) if s.lower() not in lower)


def _refuse_unknown(made: Sequence[Section], x: str, y: str, layer: str | None) -> None:
    for option, name in (("--x", x), ("--y", y)):
        if made and name and not any(one.values(name).notna().any() for one in made):
            columns = [c for one in made for c in one.runs if c not in _OF_RUNS]
            names = dict.fromkeys([*LEAKS, *columns, *(c for one in made for c in one.rebuilt if c.startswith("rebuilt."))])
            there = [name for name in names if any(one.values(name).notna().any() for one in made)]
            raise UserError(f"no run has this quantity; they have {', '.join(there[:_MOST_NAMED])}", key=option, value=name)
    layers = list(dict.fromkeys(layer for one in made for layer in one.leaks["layer"] if layer))
    if made and layer not in (None, "all", "cut", *layers):
        known = f"they are {', '.join([*layers[:_MOST_NAMED], 'cut', 'all'])}" if layers else "no layer was attacked"
        raise UserError(f"no run has a leak at this layer; {known}", key="--layer", value=layer)
