"""Tables and figures of special experiments: every attack against every defense, the price of privacy, solvers, alarms."""

import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.alarm import POLICIES, alarm
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.places import config_folder
from vflbench.report.charts import MOST_LINES, Figure, curves, heat_map, names, numbers
from vflbench.report.group import Section, options_key, over_seeds
from vflbench.report.published import Value, read_experiment
from vflbench.report.tables import Table, text_of
from vflbench.report.tables import table as made_table
from vflbench.report.words import in_words
from vflbench.results.folder import HONEST, LOG, read_head
from vflbench.results.runs import Run
from vflbench.results.schema import LEVELS, PROBE, REFERENCE, base_name

MATRIX, PRICE, SOLVERS = "matrix", "price_of_privacy", ("quantification_table1", "quantification_programme")
_CEILINGS = (("dp.eps", "0.753", "1.076"), ("gdp.mu", "0.661", "0.935"))
_OTHER_CEILING = {f"defense.label_{a}={b}": f"defense.label_{a}={c}" for a, b, c in _CEILINGS}
"""The experiment's options -> those of the second ceiling, leak AUC 0.746, of the runs that `commands` makes."""
_LINES = ("solid", "dashed", "dotted", "dashdot")


def experiment_tables(section: Section) -> list[Table]:
    return [
        table
        for table in (matrix_table(section), price_table(section), alarm_table(section), *solver_tables(section))
        if len(table.frame)
    ]


def experiment_figures(section: Section) -> list[Figure]:
    made = [price_figure(section), alarm_figure(section), matrix_figure(section)]
    return [figure for figure in (*made, *solver_figures(section)) if figure is not None]


def _table(section: Section, name: str, title: str, rows: Sequence[Any], columns: Sequence[str], note: str) -> Table:
    """Cells keep their types: counts beside missing ones stay whole numbers."""
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    return made_table(section, name, title, frame, note, is_open=True)


# Every attack against every defense


def matrix(section: Section) -> pd.DataFrame:
    """Two-sided leak AUC at the worst visible layer, over seeds: a line a setting, columns (level of knowledge, attack).

    Undefended settings first, then from what leaves most to what leaves least without labels.
    """
    leaks = section.leaks[section.leaks.visible | (section.leaks.message == "none")]
    probes = leaks.name.map(base_name) == PROBE
    attack = leaks.name.map(base_name).mask(leaks.is_reference & ~probes, "own columns")
    leaks = leaks.assign(attack=attack, level=leaks.level.mask(leaks.is_reference, REFERENCE))
    worst = leaks.groupby(["setting", leaks.index.rename("run"), "level", "attack"], sort=False).leak_two_sided.max()
    cells = over_seeds(worst.reset_index(), ["setting", "level", "attack"], "leak_two_sided")
    chosen = list(dict.fromkeys(name for run in section.runs.run for name in run.config.get("attack") or {}))
    levels = [*LEVELS, REFERENCE]
    columns = sorted(
        {key[1:] for key in cells.index},
        key=lambda key: (levels.index(key[0]), [*chosen, key[1]].index(key[1]), key[1] != PROBE, key),
    )
    rows = {name: [cells.get((name, *column), over_runs([])) for column in columns] for name in section.settings.index}
    table = pd.DataFrame.from_dict(
        rows, orient="index", columns=pd.MultiIndex.from_tuples(columns, names=["level", "attack"])
    )

    def rank(name: str) -> tuple[Any, ...]:
        leaks = (strongest(table.loc[name], level)[1].mean for level in LEVELS)
        return not section.settings.undefended[name], *(1.0 if math.isnan(leak) else -leak for leak in leaks), name

    return table.loc[sorted(table.index, key=rank)]


def strongest(row: pd.Series, level: str) -> tuple[str | None, OverRuns]:
    """The attack of a level with the largest mean; None and nan without one."""
    known = {attack: value for (of, attack), value in row.items() if of == level and not math.isnan(value.mean)}
    attack = max(known, key=lambda name: known[name].mean, default=None)
    return attack, known[attack] if attack else over_runs([])


def ceiling(runs: Sequence[Run]) -> float | str | None:
    """The lowest leak AUC promised of all messages; `refuted` if what the promises assume did not hold."""
    promises = [promise for run in runs for promise in run.summary.guarantees.values() if promise is not None]
    stands = [p.leak_auc_all_messages for p in promises if p.assumption_holds is not False]
    return min((value for value in stands if value is not None), default="refuted" if promises else None)


def matrix_table(section: Section) -> Table:
    if section.experiment != MATRIX or section.leaks.empty:
        return made_table(section, "matrix", "", [])
    table = matrix(section)
    levels = [level for level in LEVELS if level in table.columns.get_level_values("level")]
    utility, runs = section.over_seeds(section.utility), section.runs.groupby("setting").run.apply(list)
    rows = []
    for name, row in table.iterrows():
        cells = [name, len(runs[name]), utility[name], ceiling(runs[name])]
        rows.append([*cells, *(cell for level in levels for cell in reversed(strongest(row, level))), *row])
    columns = ["setting", "runs", section.titled(section.utility), "ceiling"]
    columns += [name for level in levels for name in (f"strongest, {level}", f"which, {level}")]
    columns += [f"{attack}, {level}" for level, attack in table.columns]
    note = (
        "Two-sided leak AUC at the visible layer where it is largest, mean (95 % t-interval over seeds); 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict; refuted: what "
        "it assumes did not hold. References are no attacks: the best of the probes, and the strongest attack on the "
        "party's own columns."
    )
    return _table(section, "matrix", "Every attack against every defense", rows, columns, note)


def matrix_figure(section: Section) -> Figure | None:
    """Every attack under every defense; the strongest of each level at the right. Also of others with many attacks."""
    several = 3 <= len(section.settings) <= 80 and section.counted.name.nunique() >= 5
    if section.leaks.empty or (section.experiment != MATRIX and not several):
        return None
    table = matrix(section)
    utility, runs = section.over_seeds(section.utility), section.runs.groupby("setting").run.apply(list)
    ceilings = {name: value for name in table.index if (value := ceiling(runs[name])) is not None}
    cells = [("", section.titled(section.utility), name, math.nan, f"{utility[name].mean:.3f}", "") for name in table.index]
    cells += [("", "ceiling", name, math.nan, text_of(ceilings.get(name, "")), "") for name in table.index if ceilings]
    for (level, attack), column in table.items():
        cells += [(level, attack, n, v.mean, "", f"{n}\n{attack}: {text_of(v)}") for n, v in column.items()]
    for level in LEVELS:
        best = {name: strongest(row, level) for name, row in table.iterrows()}
        if any(attack for attack, _ in best.values()):
            words = {n: (f"{v.mean:.2f} {a}", f"{n}\n{a}: {text_of(v)}") if a else ("", n) for n, (a, v) in best.items()}
            cells += [("strongest", level, n, v.mean, *words[n]) for n, (_, v) in best.items()]
    note = (
        "Two-sided leak AUC of each attack, at the visible layer where it is largest: mean over seeds. 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict. References are "
        "no attacks."
    )
    frame = pd.DataFrame(cells, columns=["group", "column", "row", "value", "words", "hover"])
    return heat_map(frame, slug=f"{section.slug}_matrix", title="Every attack against every defense", note=note)


# The price of privacy


def price(section: Section) -> pd.DataFrame:
    """A line for each defense and number of epochs: the setting at the rate with the best validation AUC in the first seed.

    Test rows choose nothing. Empty for sections of other experiments, and without validation rows. curve: what a line of the
    figure has in common; label: the defense; ceiling: of the leak AUC from all messages, 1 where nothing is promised;
    epochs, rate, setting, runs (their number), auc (`OverRuns` of the test AUC), run: the first seed's.
    """
    columns = ["curve", "label", "ceiling", "epochs", "rate", "setting", "runs", "auc", "run", "seed", "validation"]
    if section.experiment != PRICE or "validation_auc" not in section.runs:
        return pd.DataFrame(columns=columns)
    auc, lines = section.over_seeds("test_auc"), []
    for setting, of in section.runs.dropna(subset=["validation_auc"]).sort_values("seed").groupby("setting", sort=False):
        run = of.run.iloc[0]
        options = section.settings.options[setting]
        others = {k: v for k, v in options.items() if not k.startswith(("defense", "attack", "epochs", "optimizer.lr"))}
        choice = run.manifest.choices.get("defense")  # its options may follow from the number of epochs
        config = {key: value for key, value in run.config.items() if key not in ("epochs", "defense" if choice else "")}
        config["optimizer"] = {key: value for key, value in run.config["optimizer"].items() if key != "lr"}
        label = ", ".join([_method(run.config.get("defense") or {}), *in_words(others)])
        ceilings = [p.leak_auc_all_messages for p in run.summary.guarantees.values() if p and p.leak_auc_all_messages]
        curve = f"{options_key(config, ('seed',))} {choice} {of.made_by.iloc[0]}"
        line = [curve, label, round(min(ceilings, default=1.0), 3), run.config["epochs"], run.config["optimizer"]["lr"]]
        lines.append([*line, setting, auc[setting].runs, auc[setting], run, -of.seed.iloc[0], of.validation_auc.iloc[0]])
    table = pd.DataFrame(lines, columns=columns).sort_values(["seed", "validation"], ascending=False, kind="stable")
    table = table.drop_duplicates(["curve", "epochs"])
    return table.sort_values(["ceiling", "label", "curve", "epochs"], ascending=[False, True, True, True])


def price_table(section: Section) -> Table:
    """A line a defense, three columns for each number of epochs: test AUC, the chosen rate, and the runs."""
    table = price(section)
    counts = sorted(set(table.epochs))
    rows = []
    for _, of in table.groupby("curve", sort=False):
        by_epochs = {p.epochs: [p.auc, f"{p.rate:g}", p.runs] for p in of.itertuples()}
        first = of.iloc[0]
        cells = (cell for n in counts for cell in by_epochs.get(n, [None] * 3))
        rows.append([first.label, None if first.ceiling == 1 else first.ceiling, *cells])
    columns = ["defense", "ceiling"]
    columns += [name for n in counts for name in (f"test AUC, {n} epoch{'s' * (n > 1)}", f"rate, {n}", f"runs, {n}")]
    note = (
        "Test AUC: mean (95 % t-interval over seeds) at the learning rate with the highest validation AUC in the first "
        "seed, which has them all. Ceiling: of the leak AUC from all messages of a run. "
        "`vflbench report DIR --commands` prints the commands for the other seeds at these rates."
    )
    return _table(section, "price", "The price of label privacy", rows, columns, note)


def price_figure(section: Section) -> Figure | None:
    """A colour for each defense, a kind of line for each ceiling."""
    table = price(section)
    if table.empty:
        return None
    ceilings = sorted(set(table.ceiling[table.ceiling < 1]), reverse=True)
    place = table.ceiling.map({value: number for number, value in enumerate(ceilings)}).fillna(0).astype(int)
    label = table.label + [f", ceiling {value:.3f}" * (value < 1) for value in table.ceiling]
    style = table.groupby("label").setting.transform("first")
    values = {"y": [v.mean for v in table.auc], "low": [v.low for v in table.auc], "high": [v.high for v in table.auc]}
    hover = [
        f"{name}\n{p.epochs} epochs: test AUC {text_of(p.auc)}" for name, p in zip(label, table.itertuples(), strict=True)
    ]
    look = {"style": style, "line": [_LINES[number % 4] for number in place], "hollow": place > 0, "part": table.curve}
    points = table[["epochs"]].assign(label=label, x=table.epochs.astype(str), hover=hover, **values, **look)
    axes = names(alt.X, "epochs", list(map(str, sorted(set(table.epochs))))), numbers(alt.Y, "test AUC")
    note = "At the learning rates that validation rows chose. Means over seeds with 95 % t-intervals."
    how: dict[str, Any] = {"slug": f"{section.slug}_price", "title": "The price of label privacy", "note": note}
    return curves(points, section.styles, *axes, **how)


def commands(section: Section) -> list[str]:
    """Two for each setting: other seeds, and all seeds at the second ceiling.

    They skip runs that are there. Empty for sections of other experiments.
    """
    lines = []
    for p in price(section).sort_values(["curve", "epochs"]).itertuples():
        data = {
            f"dataset.{key}": p.run.option(f"dataset.{key}") for key in ("path", "rows", "min_count", "numeric_transform")
        }
        given = [f"{key}={value}" for key, value in data.items() if value is not None]
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


# Seconds of solvers by the size of a batch


def published_seconds() -> dict[tuple[int, int], Value]:
    """The published seconds of the integer programme by rows and columns; `*` where several batches match."""
    values = read_experiment(config_folder() / "experiment" / f"{SOLVERS[0]}.yaml").values
    return {(value.options["dataset.rows"], value.options["dataset.features"]): value for value in values}


def solver_seconds(runs: Sequence[Run]) -> pd.DataFrame:
    """(rows, columns, attack) -> means over the batches of that size, each with the same weight.

    Runs that did not rebuild a batch from the updates of federated training are left out. ended: the share of searches that
    ended within their limit.
    """
    entries = []
    for run in runs:
        size = run.option("dataset.rows"), run.option("dataset.features")
        for entry in run.summary.reconstructions if None not in size else ():
            if entry.message == "update":
                figures = {name: value.mean for name, value in entry.figures.items()}
                entries += [(*size, entry.attack, name, value, entry.batches) for name, value in figures.items()]
    frame = pd.DataFrame(entries, columns=["rows", "columns", "attack", "figure", "value", "batches"]).dropna()
    frame["value"] = frame.value.astype(float) * frame.batches
    sums = frame.groupby(["rows", "columns", "attack", "figure"], sort=False)[["value", "batches"]].sum()
    return (sums.value / sums.batches).unstack("figure").reindex(columns=["solver_seconds", "ended", "matches", "unique"])


def solver_tables(section: Section) -> list[Table]:
    """A table for each family of runs that differ in nothing but the size of a batch: a line per size."""
    made = []
    for suffix, name, runs in _families(section):
        seconds, published = solver_seconds(runs), published_seconds()
        attacks = list(dict.fromkeys(seconds.index.get_level_values("attack")))
        rows = []
        for size in sorted({*published, *(key[:2] for key in seconds.index)}):
            said = published.get(size)
            line: list[Any] = [*size, said and (said.mark if said.number is None else said.number)]
            for attack in attacks:
                found = (*size, attack) in seconds.index
                line += [*seconds.loc[(*size, attack), ["solver_seconds", "ended"]]] if found else [None, None]
            rows.append([*line, *twins(seconds, size)])
        columns = [name for attack in attacks for name in (f"{attack} s", f"{attack}, ended")]
        note = (
            "Mean seconds of a search over the batches of a size, each batch with the same weight, and the share of "
            "searches that ended within their limit. Published: on another machine, with another solver; * where the paper "
            "gives no time, as several batches match. With a twin: the share of batches for which another batch matches."
        )
        title = "Seconds to rebuild a batch" + (f": {name}" if name else "")
        columns = ["rows", "columns", "published s", *columns, "batches that fit", "with a twin"]
        made.append(_table(section, f"solvers{suffix}", title, rows if attacks else [], columns, note))
    return made


def twins(seconds: pd.DataFrame, size: tuple[int, int]) -> tuple[float, float]:
    """Mean number of batches that match, and the share of batches with another one; nan unless all searches ended."""
    of = seconds[[key[:2] == size for key in seconds.index]]
    ended = of[(of.ended == 1) & of.unique.notna()]
    return float(ended.matches.max()), 1 - float(ended.unique.max())


def solver_figures(section: Section) -> list[Figure]:
    """A part for the published values and one for each attack: rows by columns, seconds on one logarithmic scale."""
    made = [solver_figure(solver_seconds(runs), f"{section.slug}_solvers{suffix}") for suffix, _, runs in _families(section)]
    return [figure for figure in made if figure is not None]


def solver_figure(seconds: pd.DataFrame, slug: str) -> Figure | None:
    """None if no time is known."""
    said = [(*size, "published", value.number, 1.0, value.mark) for size, value in published_seconds().items()]
    places = ["attack", "columns", "rows"]
    known = pd.DataFrame(said, columns=["rows", "columns", "attack", "solver_seconds", "ended", "mark"])
    known = pd.concat([known, seconds.reset_index()]).set_index(places)
    attacks, columns, rows = (known.index.unique(place) for place in places)
    whole = known.reindex(pd.MultiIndex.from_product([attacks, sorted(columns), sorted(rows)], names=places))
    if seconds.solver_seconds.isna().all():
        return None
    cells = []
    for (attack, across, down), p in whole.iterrows():
        value = p.solver_seconds
        time = f"{'>' * (p.ended < 1)}{value:{'.0f' if value >= 100 else '.2g'}}"
        words = ("" if pd.isna(p.mark) else p.mark) if pd.isna(value) else time
        hover = f"{attack}, {down} rows, {across} columns: {words or 'not run'}{' s' * (value > 0)}"
        cells.append((attack, f"{across} columns", f"{down} rows", value, words, hover))
    cells = pd.DataFrame(cells, columns=["group", "column", "row", "value", "words", "hover"])
    positive = cells.value[cells.value > 0]
    note = "Seconds; > marks a size at which not every search ended, * one for which the paper gives no time."
    title = "Seconds to rebuild a batch, by rows and columns"
    return heat_map(cells, slug=slug, title=title, note=note, low=positive.min(), high=positive.max(), log=True)


def _families(section: Section) -> list[tuple[str, str, list[Run]]]:
    """(end of a slug, what distinguishes it, runs) of the runs that differ in nothing but the size of a batch."""
    sizes = ("dataset.rows", "dataset.features")
    found: dict[Any, Any] = {}
    for p in section.runs.itertuples() if section.experiment in SOLVERS else ():
        dataset = {key: value for key, value in p.run.config["dataset"].items() if f"dataset.{key}" not in sizes}
        options = {key: value for key, value in section.settings.options[p.setting].items() if key not in sizes}
        key = f"{options_key({**p.run.config, 'dataset': dataset}, ('seed',))} {p.made_by}"
        found.setdefault(key, (", ".join(in_words(options)), []))[1].append(p.run)
    return [(f"_{place}" * (len(found) > 1), *of) for place, of in enumerate(found.values(), 1)]


# When SplitGuard notices a label party that cheats, and how often it accuses an honest one


_SCORE = re.compile(r"party (\S{1,200}): split_guard score (\d{1,3}(?:\.\d{1,20})?) at batch (\d{1,12})$", re.MULTILINE)
Scores = dict[str, dict[int, float]]
"""Party -> batch -> score of a fake batch."""


def alarms(section: Section, thresholds: Sequence[float]) -> pd.DataFrame:
    """A line for each setting with the defense, policy and threshold, from the scores in the logs: no run is computed again.

    cheating, honest: runs with an adversary and without, also those beside; batches: at which cheating ones were noticed;
    false_alarms: honest runs that accused somebody. used: whether it is the policy of the runs.
    """
    lines = []
    for setting, of in section.runs.groupby("setting", sort=False):
        if "split_guard" not in (of.run.iloc[0].config.get("defense") or {}):
            continue
        options = of.run.iloc[0].config["defense"]["split_guard"] or {}
        window, used = options.get("window") or 10, options.get("policy") or "average"
        cheating = [_scores(run, "") for run in of.run if run.adversaries]
        honest = [_scores(run, HONEST if run.adversaries else "") for run in of.run if run.honest or not run.adversaries]
        cheating, honest = ([scores for scores in runs if scores] for runs in (cheating, honest))
        for policy in POLICIES if cheating or honest else ():
            for threshold in thresholds:
                found = [[_noticed(scores, policy, window, threshold) for scores in runs] for runs in (cheating, honest)]
                batches, accused = ([batch for batch in runs if batch is not None] for runs in found)
                counts = {"cheating": len(cheating), "batches": batches, "honest": len(honest), "false_alarms": len(accused)}
                line = {"setting": setting, "policy": policy, "window": window, "threshold": threshold}
                lines.append({**line, **counts, "used": policy == used})
    return pd.DataFrame(lines)


def _scores(run: Run, within: str) -> Scores:
    try:
        log = read_head(run.folder / within / LOG, 16_000_000)
    except (OSError, UserError):
        return {}
    found: Scores = {}
    for party, score, batch in _SCORE.findall(log):
        found.setdefault(party, {})[int(batch)] = float(score)  # a run that went on has written a batch twice, alike
    return found


def _noticed(run: Scores, policy: str, window: int, threshold: float) -> int | None:
    """The first batch with an alarm at any party; None for no alarm."""
    batches = []
    for scores in run.values():
        places, values = sorted(scores), [scores[batch] for batch in sorted(scores)]
        batches += [next((at for n, at in enumerate(places, 1) if alarm(values[:n], policy, window, threshold)), math.inf)]
    first = min(batches, default=math.inf)
    return None if first == math.inf else int(first)


def alarm_table(section: Section) -> Table:
    """A line for each setting, policy and threshold."""
    rows = []
    for p in alarms(section, (0.3, 0.5, 0.7, 0.9)).itertuples():
        when = [statistics.median(p.batches), min(p.batches), max(p.batches)] if p.batches else [None, None, None]
        counts = [f"{len(p.batches)} of {p.cheating}", *when, f"{p.false_alarms} of {p.honest}"]
        rows.append([p.setting, p.policy, p.window, p.threshold, *counts])
    columns = ("setting", "policy", "window", "threshold", "noticed", "at batch (median)", "first", "last", "false alarms")
    note = (
        "Runs with an adversary that were noticed, and at which batch; honest runs, also those beside the others, that "
        "raised an alarm. Each policy at each threshold is applied to the scores in the logs."
    )
    return _table(section, "alarms", "When split_guard raises an alarm", rows, columns, note)


def alarm_figure(section: Section) -> Figure | None:
    """By threshold, of the policy that the runs used: the share that is noticed, and the share that is falsely accused."""
    read = alarms(section, [(step + 0.5) / 25 for step in range(25)])
    if read.empty:
        return None
    read = read[read.used & read.setting.isin(list(dict.fromkeys(read.setting))[:MOST_LINES])]
    hover = [
        f"{p.setting}\nthreshold {p.threshold:g}\nnoticed: {len(p.batches)} of {p.cheating}"
        f"\nfalse alarms: {p.false_alarms} of {p.honest}"
        for p in read.itertuples()
    ]
    read = read.assign(style=read.setting, x=read.threshold, hover=hover, mark=False)
    noticed = read.batches.map(len) / read.cheating.where(read.cheating > 0)
    accused = read.false_alarms / read.honest.where(read.honest > 0)
    noticed = read.assign(label=read.setting + ": noticed", y=noticed, line="solid")
    accused = read.assign(label=read.setting + ": false alarms", y=accused, line="dotted")
    points = pd.concat([noticed, accused])[["label", "style", "x", "y", "line", "hover", "mark"]]
    note = "Each threshold is applied to the scores in the logs, with the policy of the run; see the table of alarms."
    title = "Cheating label parties that are noticed, and honest ones that are accused"
    axes = numbers(alt.X, "threshold"), numbers(alt.Y, "share of runs")
    return curves(points, section.styles, *axes, slug=f"{section.slug}_alarms", title=title, note=note)
