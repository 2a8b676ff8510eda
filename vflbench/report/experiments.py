"""Tables and figures of special experiments: published values, the matrix, the price of privacy, alarms.

Each of the last is one frame, of which its table and its figure are made.
"""

import itertools
import math
import re
import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.interval import POLICIES, OverRuns, alarm, over_runs, range_of
from vflbench.report.charts import Figure, curves, heat_map, names_axis, numbers
from vflbench.report.group import Section, Setting
from vflbench.report.published import LOSS_OF, OVER_DAYS, PublishedExperiment, Value
from vflbench.report.tables import Table, by_attack
from vflbench.report.tables import table as made_table
from vflbench.report.words import in_words
from vflbench.results.folder import HONEST, LOG, read_head
from vflbench.results.runs import Run
from vflbench.results.schema import REFERENCE

MATRIX, PRICE = "matrix", "price_of_privacy"
_CEILINGS = (("dp.eps", "0.753", "1.076"), ("gdp.mu", "0.661", "0.935"))
_OTHER_CEILING = {f"defense.label_{a}={b}": f"defense.label_{a}={c}" for a, b, c in _CEILINGS}
"""The experiment's options -> those of the second ceiling, leak AUC 0.746, of the runs that `commands` makes."""


def special(section: Section, experiment: PublishedExperiment | None = None) -> list[Table | Figure]:
    """The tables and figures of what this section is one of, or has the runs for. experiment: of which it is."""
    made = [*matrix(section), *price_of_privacy(section), _alarms(section)]
    made += [published_table(section, experiment)] if experiment else []
    return [one for one in made if isinstance(one, Figure) or len(one.frame)]


def _table(section: Section, name: str, title: str, rows: Any, note: str) -> Table:
    """Cells keep their types: counts beside missing ones stay whole numbers."""
    return made_table(section, name, title, pd.DataFrame(rows, dtype=object), note, is_open=True)


# Published values


def published_table(section: Section, experiment: PublishedExperiment) -> Table:
    """Published value, value here, and the difference; no rows if the experiment lists no values."""
    section, rows = replace(section, layer=section.layer or "cut"), []  # as papers report leaks, unless a layer was chosen
    for value in experiment.values:
        here, number = measured(value, section), value.number
        printed = f"{value.mark} ({value.reason})" if value.mark else value.reason or "no number is printed"
        what = f"{value.what} [{value.data}]" if value.data else value.what
        row: dict[str, Any] = {"what": what, "published": printed if number is None else float(number)}
        row |= {"here": here if here.runs else "not measured here", "runs": here.runs}
        rows.append(row | {"here - published": here.mean - number if here.runs and number is not None else None})
    of = f"Published on {experiment.data}, {experiment.scale}. " if experiment.data else ""
    note = f"{of}Here on {scale_of(section)}: mean (95 % t-interval over seeds). {experiment.note}".strip()
    return _table(section, "published", "Beside the published values", rows, note)


def measured(value: Value, section: Section) -> OverRuns:
    """The mean over the runs of the one setting of the section that has the value's options; of no runs without one.

    Only a value that was published as a mean over days is measured by settings of several days.
    """
    groups = [g for g in section.groups if all(_has(g, key, wanted) for key, wanted in value.options.items())]
    over_days = {(g.defense, str({**g.options, "dataset.test_day": ""})) for g in groups}
    if value.quantity is None or (len(over_days) if OVER_DAYS in value.what else len(groups)) != 1:
        return over_runs([])
    name = value.quantity.removeprefix(LOSS_OF)
    numbers = section.values(name)
    if name != value.quantity:
        numbers = section.of_baseline(numbers).where(~section.runs.undefended) - numbers
    return over_runs(numbers[section.runs.setting.isin([group.name for group in groups])], range_of(name))


def _has(group: Setting, key: str, wanted: Any) -> bool:
    """Whether its option has this value; `defense` and `attack` are compared by the chosen names."""
    value = group.runs[0].option(key)
    return bool(("+".join(value or {}) or "none" if key in ("defense", "attack") else value) == wanted)


def scale_of(section: Section) -> str:
    """The data of a section in words: rows, epochs, batches, seeds."""
    manifests = [run.manifest for run in section.runs.run]
    rows, batches = _span(one.data.train_rows for one in manifests), _span(one.batch_size for one in manifests)
    epochs, seeds = _span(run.summary.epochs for run in section.runs.run), section.runs.seed.nunique()
    parts = [section.title.rpartition(" on ")[2], rows and f"{rows} training rows"]
    parts += [epochs and f"{epochs} epoch{'s' * (epochs != '1')}", batches and f"batches of {batches}"]
    return ", ".join([*filter(None, parts), f"{seeds} seed{'s' * (seeds > 1)}"])


def _span(values: Iterable[int | None]) -> str:
    known = sorted({value for value in values if value})
    return " to ".join(f"{value:,}" for value in dict.fromkeys([*known[:1], *known[-1:]]))


# Every attack against every defense


def matrix(section: Section) -> Iterator[Figure]:
    """Two-sided leak AUC at the worst visible layer: a line a setting, a column an attack, and the strongest of each level.

    Of every section with many attacks. Undefended settings first, then from what leaves most to what leaves least without
    labels.
    """
    several = 3 <= len(section.settings) <= 80 and section.counted.name.nunique() >= 5
    if section.leaks.empty or (section.experiment != MATRIX and not several):
        return
    cells = by_attack(section, "leak_two_sided", "name")
    means = cells.map(lambda cell: getattr(cell, "mean", math.nan))
    levels = list(dict.fromkeys(level for level, _ in cells))
    order = means.T.groupby(level=0).max().T[levels].join(section.settings.undefended).rename_axis("name").reset_index()
    order = order.sort_values(["undefended", *levels, "name"], ascending=[*[False] * (len(levels) + 1), True]).name
    title, promised = section.titled(section.utility), ceilings(section)
    drawn = {("", title): section.over_seeds(section.utility)[order].map(lambda auc: f"{auc.mean:.3f}")}
    drawn |= {("", "ceiling"): pd.Series(promised, dtype=object).reindex(order)} if promised else {}
    drawn |= dict(cells.loc[order].items())
    words: dict[tuple[str, tuple[str, str]], str] = {}
    for level in [level for level in levels if level != REFERENCE]:
        which = means.loc[order, level].dropna(how="all").idxmax(axis=1)
        drawn["strongest", level] = pd.Series({name: cells.at[name, (level, attack)] for name, attack in which.items()})
        words |= {(n, ("strongest", level)): f"{means.at[n, (level, attack)]:.2f} {attack}" for n, attack in which.items()}
    note = (
        f"Two-sided leak AUC {section.where}, mean over seeds; 0.5 is a coin, 1 reads every label. A ceiling bounds what "
        "messages add about a label, and not what features predict; refuted: what it assumes did not hold. References are "
        "no attacks: the best of the probes, and the strongest attack on the party's own columns."
    )
    yield heat_map(pd.DataFrame(drawn), f"{section.slug}_matrix", "Every attack against every defense", note, words=words)


def ceilings(section: Section) -> dict[str, float | str]:
    """Setting -> the leak AUC that its defenses promise of all messages, of its runs the highest, if it says anything;
    `refuted` if what they assume did not hold.
    """
    highest: dict[str, float | str] = {}
    for group in section.groups:
        every = [[one for one in run.summary.guarantees.values() if one is not None] for run in group.runs]
        stands = [[one.leak_auc_all_messages for one in of if one.assumption_holds is not False] for of in every]
        heights = [min(known) for of in stands if (known := [height for height in of if height is not None and height < 1])]
        if heights or any(one.assumption_holds is False for of in every for one in of):
            highest[group.name] = max(heights, default="refuted")
    return highest


# The price of privacy

_CURVE = ["ceiling", "label", "made_by"]


def price(section: Section) -> pd.DataFrame:
    """A line for each defense and number of epochs: the setting at the rate with the best validation AUC in the first seed.

    Test rows choose nothing. Empty for sections of other experiments, and without validation rows. label: the defense;
    ceiling: of the leak AUC from all messages, 1 where nothing is promised; epochs, rate, setting; run: the first seed's.
    """
    runs = section.runs if section.experiment == PRICE else section.runs[:0]
    known = runs.assign(validation=section.values("validation_auc")).dropna(subset="validation")
    table = known.sort_values("seed").drop_duplicates("setting")

    def label(run: Run, options: Mapping[str, Any]) -> str:
        others = {k: v for k, v in options.items() if not k.startswith(("defense", "attack", "epochs", "optimizer.lr"))}
        return ", ".join([_method(run.config.get("defense") or {}), *in_words(others)])

    table["label"] = [label(run, section.settings.options[name]) for run, name in zip(table.run, table.setting, strict=True)]
    table["ceiling"] = table["ceiling.all_messages"].fillna(1.0).round(3)
    table["epochs"] = [run.config["epochs"] for run in table.run]
    table["rate"] = [run.config["optimizer"]["lr"] for run in table.run]
    table = table.sort_values(["seed", "validation"], ascending=[True, False], kind="stable")
    table = table.drop_duplicates([*_CURVE, "epochs"])
    return table.sort_values([*_CURVE, "epochs"], ascending=[False, True, True, True], ignore_index=True)


def price_of_privacy(section: Section) -> Iterator[Table | Figure]:
    """A line for each defense and number of epochs; a colour for each defense, a kind of line for each ceiling."""
    table = price(section)
    if table.empty:
        return
    table["y"] = table.setting.map(section.over_seeds("test_auc"))
    note = (
        "Test AUC: mean (95 % t-interval over seeds) at the learning rate with the highest validation AUC in the first "
        "seed, which has them all. Ceiling: of the leak AUC from all messages of a run. "
        "`vflbench report DIR --commands` prints the commands for the other seeds at these rates."
    )
    title, rows = "The price of label privacy", table[["label", "ceiling", "epochs", "y", "rate"]].astype(object)
    rows["ceiling"], rows["rate"] = table.ceiling.where(table.ceiling < 1), table.rate.map("{:g}".format)
    rows = rows.rename(columns={"label": "defense", "y": "test AUC", "rate": "learning rate"})
    yield _table(section, "price", title, rows.assign(runs=[auc.runs for auc in table.y]), note)
    lower = table.ceiling < table.ceiling[table.ceiling < 1].max()
    points = table.assign(
        label=table.label + [f", ceiling {value:.3f}" * (value < 1) for value in table.ceiling],
        style=table.groupby("label").setting.transform("first"),
        x=table.epochs.astype(str),
        line=lower.map({False: "solid", True: "dashed"}),
        hollow=lower,
    )
    axes = names_axis(alt.X, "epochs", list(map(str, sorted(set(table.epochs))))), numbers(alt.Y, "test AUC")
    note = "At the learning rates that validation rows chose. Means over seeds with 95 % t-intervals."
    yield curves(points, section.styles, *axes, f"{section.slug}_price", title, note)


def commands(section: Section) -> list[str]:
    """Two for each setting: other seeds, and all seeds at the second ceiling.

    They skip runs that are there. Empty for sections of other experiments.
    """
    lines = []
    for p in price(section).itertuples():
        keys = [f"dataset.{key}" for key in ("path", "rows", "min_count", "numeric_transform")]
        given = [f"{key}={value}" for key in keys if (value := p.run.option(key)) is not None]
        words = [f"dataset={p.run.dataset}", *given, f"epochs={p.epochs}", f"optimizer.lr={p.rate:g}"]
        defense = [word for word in p.run.manifest.overrides if word.startswith("defense")]
        others = [_OTHER_CEILING.get(word, word) for word in defense]
        if not {*_OTHER_CEILING.values()} & {*defense}:
            lines.append([*words, "seed=1,2", *(defense or ["defense=none"])])
        if others != defense:
            lines.append([*words, f"seed={p.run.seed},1,2", *others])
    return [shlex.join(["vflbench", "train", f"experiment={PRICE}", *line]) for line in lines]


def _method(defense: Mapping[str, Any]) -> str:
    """`label_gdp`, `gaussian labels`: names with the options that say which mechanism it is."""
    made = []
    for name, node in defense.items():
        words = [str((node or {}).get(key) or "auto") for key in ("mechanism", "target", "noise")]
        made.append(" ".join([name, *(word for word in words if word not in ("auto", "randomized_response"))]))
    return " + ".join(made) or "none"


# When SplitGuard notices a label party that cheats, and how often it accuses an honest one


_SCORE = re.compile(r"party (\S{1,200}): split_guard score (\d{1,3}(?:\.\d{1,20})?) at batch (\d{1,12})$", re.MULTILINE)
_THRESHOLDS = [step / 10 for step in range(1, 10)]
_WHEN: dict[str, Callable[[list[int]], float]] = {"at batch (median)": statistics.median, "first": min, "last": max}


def _alarms(section: Section) -> Table:
    """From the scores in the logs, without computing a run again: a line for each setting, policy and threshold.

    Cheating are runs with an adversary; honest those without, also those beside the others.
    """
    lines: list[dict[str, Any]] = []
    for group in section.groups:
        defense = group.runs[0].config.get("defense") or {}
        if "split_guard" not in defense:
            continue
        options = defense["split_guard"] or {}
        window = options.get("window") or 10
        cheating = [scores for run in group.runs if run.manifest.adversary and (scores := _scores(run, ""))]
        honest = [scores for run in group.runs if (scores := _scores(run, HONEST if run.manifest.adversary else ""))]
        for policy, threshold in itertools.product(POLICIES if cheating or honest else (), _THRESHOLDS):
            batches, accused = (
                [batch for scores in of if (batch := _noticed(scores, policy, window, threshold)) is not None]
                for of in (cheating, honest)
            )
            line = {"setting": group.name, "policy": policy, "window": window, "threshold": threshold}
            line |= {"noticed": f"{len(batches)} of {len(cheating)}"}
            line |= {name: pick(batches) if batches else None for name, pick in _WHEN.items()}
            lines.append(line | {"false alarms": f"{len(accused)} of {len(honest)}"})
    note = (
        "Runs with an adversary that were noticed, and at which batch; honest runs, also those beside the others, that "
        "raised an alarm. Each policy at each threshold is applied to the scores in the logs."
    )
    return _table(section, "alarms", "When split_guard raises an alarm", lines, note)


def _scores(run: Run, within: str) -> list[pd.Series]:
    """Of each party, batch -> score of a fake batch."""
    try:
        log = read_head(run.folder / within / LOG, 16_000_000)
    except (OSError, UserError):
        return []
    scores = pd.DataFrame(_SCORE.findall(log), columns=["party", "score", "batch"]).astype({"score": float, "batch": int})
    of_parties = scores.drop_duplicates(["party", "batch"], keep="last").sort_values("batch").groupby("party")
    return [of.set_index("batch").score for _, of in of_parties]  # a run that went on has written a batch twice, alike


def _noticed(run: list[pd.Series], policy: str, window: int, threshold: float) -> int | None:
    """The first batch with an alarm at any party; None for no alarm."""
    parties = [(of.index, list(of)) for of in run]
    every = (at for places, s in parties for n, at in enumerate(places, 1) if alarm(s[:n], policy, window, threshold))
    return min(every, default=None)
