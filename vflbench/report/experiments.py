"""Tables and figures of special experiments: published values, the matrix, the price of privacy, solvers, alarms."""

import math
import re
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd

from vflbench.errors import UserError
from vflbench.numerics.alarm import POLICIES, alarm
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import OverRuns, over_runs
from vflbench.places import config_folder
from vflbench.report.charts import MOST_LINES, Figure, curves, heat_map, names, numbers, spread
from vflbench.report.group import Section, Setting, at_cut, options_key, over_seeds
from vflbench.report.published import LOSS_OF, OVER_DAYS, PublishedExperiment, Value, read_experiment
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
    made = [matrix_table(section), price_table(section), alarm_table(section), *solver_tables(section)]
    return [table for table in made if len(table.frame)]


def experiment_figures(section: Section) -> list[Figure]:
    made = [price_figure(section), alarm_figure(section), matrix_figure(section), *solver_figures(section)]
    return [figure for figure in made if figure is not None]


def _table(section: Section, name: str, title: str, rows: Any, note: str, columns: Sequence[str] | None = None) -> Table:
    """Cells keep their types: counts beside missing ones stay whole numbers."""
    return made_table(section, name, title, pd.DataFrame(rows, columns=columns, dtype=object), note, is_open=True)


# Published values


def published_table(section: Section, experiment: PublishedExperiment) -> Table:
    """Published value, value here, and the difference; no rows if the experiment lists no values."""
    section, rows = at_cut(section), []
    for value in experiment.values:
        here, number = measured(value, section), value.number
        printed = f"{value.mark} ({value.reason})" if value.mark else value.reason or "no number is printed"
        moved = None
        if number is not None and not math.isnan(here.mean):
            moved = replace(here, mean=here.mean - number, low=here.low - number, high=here.high - number)
        rows.append(
            {
                "what": value.what,
                "published": printed if number is None else float(number),
                "here": here if here.runs else "not measured here",
                "runs": here.runs,
                "here - published": moved,
                "published for": value.data or experiment.data,
            }
        )
    of = f"Published on {experiment.data}, {experiment.scale}. " if experiment.data else ""
    how = "mean (95 % t-interval over seeds). The difference has the same interval, moved."
    note = f"{of}Here on {scale_of(section)}: {how} {experiment.note}".strip()
    return _table(section, "published", "Beside the published values", rows, note)


def measured(value: Value, section: Section) -> OverRuns:
    """The mean over the runs of the one setting of the section that has the value's options; of no runs without one.

    Only a value that was published as a mean over days is measured by settings of several days.
    """
    groups = [g for g in section.groups if all(_has(g, key, wanted) for key, wanted in value.options.items())]
    of_days = len({_but_for_the_day(group) for group in groups}) if OVER_DAYS in value.what else len(groups)
    if value.quantity is None or of_days != 1:
        return over_runs([])
    name = value.quantity.removeprefix(LOSS_OF)
    numbers = section.values(name)
    if name != value.quantity:
        numbers = section.of_baseline(numbers).where(~section.runs.undefended) - numbers
    return over_runs(numbers[section.runs.setting.isin([group.name for group in groups])], range_of(name))


def _but_for_the_day(group: Setting) -> str:
    """What distinguishes it from other settings, without the day on which it is tested."""
    options = sorted((key, str(v)) for key, v in group.options.items() if key != "dataset.test_day")
    return f"{group.defense} {options}"


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


def matrix(section: Section) -> pd.DataFrame:
    """Two-sided leak AUC at the worst visible layer, over seeds: a line a setting, columns (level of knowledge, attack).

    Undefended settings first, then from what leaves most to what leaves least without labels.
    """
    leaks = section.leaks[section.leaks.visible | (section.leaks.message == "none")]
    names = leaks.name.map(base_name)
    attack = names.mask(leaks.is_reference & (names != PROBE), "own columns")
    leaks = leaks.assign(attack=attack, level=leaks.level.mask(leaks.is_reference, REFERENCE))
    keys = ["setting", "level", "attack"]
    worst = leaks.groupby([leaks.index.rename("run"), *keys], sort=False).leak_two_sided.max()
    cells = over_seeds(worst.reset_index(), keys, "leak_two_sided")
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


def ceilings(section: Section) -> dict[str, float | str]:
    """Setting -> the lowest leak AUC promised of all messages; `refuted` if what the promises assume did not hold."""
    found: dict[str, float | str] = {}
    for group in section.groups:
        promises = [promise for run in group.runs for promise in run.summary.guarantees.values() if promise is not None]
        stands = [p.leak_auc_all_messages for p in promises if p.assumption_holds is not False]
        if promises:
            found[group.name] = min((value for value in stands if value is not None), default="refuted")
    return found


def matrix_table(section: Section) -> Table:
    if section.experiment != MATRIX or section.leaks.empty:
        return made_table(section, "matrix", "", [])
    table, promised = matrix(section), ceilings(section)
    frame = pd.DataFrame({"setting": table.index, "runs": section.settings.seeds[table.index].map(int)}, table.index)
    frame[section.titled(section.utility)] = section.over_seeds(section.utility)
    frame["ceiling"] = [promised.get(name) for name in table.index]
    for level in (level for level in LEVELS if level in table.columns.get_level_values("level")):
        best = [strongest(row, level) for _, row in table.iterrows()]
        frame[f"strongest, {level}"], frame[f"which, {level}"] = zip(
            *[(value, attack) for attack, value in best], strict=True
        )
    for (level, attack), column in table.items():
        frame[f"{attack}, {level}"] = column
    note = (
        "Two-sided leak AUC at the visible layer where it is largest, mean (95 % t-interval over seeds); 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict; refuted: what "
        "it assumes did not hold. References are no attacks: the best of the probes, and the strongest attack on the "
        "party's own columns."
    )
    return _table(section, "matrix", "Every attack against every defense", frame, note)


def matrix_figure(section: Section) -> Figure | None:
    """Every attack under every defense; the strongest of each level at the right. Also of others with many attacks."""
    several = 3 <= len(section.settings) <= 80 and section.counted.name.nunique() >= 5
    if section.leaks.empty or (section.experiment != MATRIX and not several):
        return None
    table, promised, utility = matrix(section), ceilings(section), section.over_seeds(section.utility)
    cells: list[Any] = [
        ("", section.titled(section.utility), n, math.nan, f"{utility[n].mean:.3f}", None) for n in table.index
    ]
    cells += [("", "ceiling", n, math.nan, text_of(promised.get(n, "")), None) for n in table.index if promised]
    cells += [(*key, n, v.mean, None, text_of(v)) for key, column in table.items() for n, v in column.items()]
    for level in LEVELS:
        best = [(name, *strongest(row, level)) for name, row in table.iterrows()]
        if any(attack for _, attack, _ in best):
            cells += [
                ("strongest", level, n, v.mean, f"{v.mean:.2f} {a}" if a else "", f"{text_of(v)} {a or ''}")
                for n, a, v in best
            ]
    note = (
        "Two-sided leak AUC of each attack, at the visible layer where it is largest: mean over seeds. 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict. References are "
        "no attacks."
    )
    frame = pd.DataFrame(cells, columns=["group", "column", "row", "value", "words", "full"])
    return heat_map(frame, f"{section.slug}_matrix", "Every attack against every defense", note)


# The price of privacy


def price(section: Section) -> pd.DataFrame:
    """A line for each defense and number of epochs: the setting at the rate with the best validation AUC in the first seed.

    Test rows choose nothing. Empty for sections of other experiments, and without validation rows. curve: what a line of the
    figure has in common; label: the defense; ceiling: of the leak AUC from all messages, 1 where nothing is promised;
    epochs, rate, setting, auc (`OverRuns` of the test AUC), run: the first seed's.
    """
    columns = ["curve", "label", "ceiling", "epochs", "rate", "setting", "auc", "run", "seed", "validation"]
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
        promised = [p.leak_auc_all_messages for p in run.summary.guarantees.values() if p and p.leak_auc_all_messages]
        curve = f"{options_key(config, ('seed',))} {choice} {of.made_by.iloc[0]}"
        line = [curve, label, round(min(promised, default=1.0), 3), run.config["epochs"], run.config["optimizer"]["lr"]]
        lines.append([*line, setting, auc[setting], run, -of.seed.iloc[0], of.validation_auc.iloc[0]])
    table = pd.DataFrame(lines, columns=columns).sort_values(["seed", "validation"], ascending=False, kind="stable")
    table = table.drop_duplicates(["curve", "epochs"])
    return table.sort_values(["ceiling", "label", "curve", "epochs"], ascending=[False, True, True, True])


def price_table(section: Section) -> Table:
    """A line a defense, three columns for each number of epochs: test AUC, the chosen rate, and the runs."""
    table, rows = price(section), []
    for _, of in table.groupby("curve", sort=False):
        first, by_epochs = of.iloc[0], of.set_index("epochs")
        row = {"defense": first.label, "ceiling": None if first.ceiling == 1 else float(first.ceiling)}
        for n in sorted(set(table.epochs)):
            auc, rate = by_epochs.loc[n, ["auc", "rate"]] if n in by_epochs.index else (None, None)
            row[f"test AUC, {n} epoch{'s' * (n > 1)}"] = auc
            row |= {f"rate, {n}": rate and f"{rate:g}", f"runs, {n}": auc and auc.runs}
        rows.append(row)
    note = (
        "Test AUC: mean (95 % t-interval over seeds) at the learning rate with the highest validation AUC in the first "
        "seed, which has them all. Ceiling: of the leak AUC from all messages of a run. "
        "`vflbench report DIR --commands` prints the commands for the other seeds at these rates."
    )
    return _table(section, "price", "The price of label privacy", rows, note)


def price_figure(section: Section) -> Figure | None:
    """A colour for each defense, a kind of line for each ceiling."""
    table = price(section)
    if table.empty:
        return None
    points = spread(table.set_index(["label", "ceiling", "curve", "epochs", "setting"]).auc)
    promised = sorted(set(points.ceiling[points.ceiling < 1]), reverse=True)
    place = [promised.index(value) if value < 1 else 0 for value in points.ceiling]
    points = points.assign(
        label=points.label + [f", ceiling {value:.3f}" * (value < 1) for value in points.ceiling],
        style=points.groupby("label").setting.transform("first"),
        x=points.epochs.astype(str),
        line=[_LINES[number % 4] for number in place],
        hollow=[number > 0 for number in place],
        part=points.curve,
    )
    axes = names(alt.X, "epochs", list(map(str, sorted(set(table.epochs))))), numbers(alt.Y, "test AUC")
    note = "At the learning rates that validation rows chose. Means over seeds with 95 % t-intervals."
    return curves(points, section.styles, *axes, f"{section.slug}_price", "The price of label privacy", note)


def commands(section: Section) -> list[str]:
    """Two for each setting: other seeds, and all seeds at the second ceiling.

    They skip runs that are there. Empty for sections of other experiments.
    """
    lines = []
    for p in price(section).sort_values(["curve", "epochs"]).itertuples():
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


# Seconds of solvers by the size of a batch

_SIZE = ["rows", "columns"]


def published_seconds() -> pd.DataFrame:
    """The published seconds of the integer programme by rows and columns; mark `*` where several batches match."""
    values = read_experiment(config_folder() / "experiment" / f"{SOLVERS[0]}.yaml").values
    lines = [(v.options["dataset.rows"], v.options["dataset.features"], v.number, v.mark) for v in values]
    return pd.DataFrame(lines, columns=[*_SIZE, "solver_seconds", "mark"]).set_index(_SIZE)


def solver_seconds(runs: Sequence[Run]) -> pd.DataFrame:
    """(rows, columns, attack) -> means over the batches of that size, each with the same weight.

    Runs that did not rebuild a batch from the updates of federated training are left out. ended: the share of searches that
    ended within their limit.
    """
    entries = [
        (run.option("dataset.rows"), run.option("dataset.features"), entry.attack, name, value.mean, entry.batches)
        for run in runs
        for entry in run.summary.reconstructions
        if entry.message == "update"
        for name, value in entry.figures.items()
    ]
    frame = pd.DataFrame(entries, columns=[*_SIZE, "attack", "figure", "value", "batches"]).dropna()
    frame["value"] = frame.value.astype(float) * frame.batches
    sums = frame.groupby([*_SIZE, "attack", "figure"], sort=False)[["value", "batches"]].sum()
    return (sums.value / sums.batches).unstack("figure").reindex(columns=["solver_seconds", "ended", "matches", "unique"])


def solver_tables(section: Section) -> list[Table]:
    """A table for each family of runs that differ in nothing but the size of a batch: a line per size.

    Of the batches of a size that match is known only where all searches ended.
    """
    made = []
    for suffix, name, runs in _families(section):
        seconds, published = solver_seconds(runs), published_seconds()
        if seconds.empty:
            continue
        frame = published.solver_seconds.astype(object).fillna(published.mark).to_frame("published s")
        for attack, of in seconds.groupby("attack", sort=False):
            of = of.droplevel("attack")[["solver_seconds", "ended"]].set_axis([f"{attack} s", f"{attack}, ended"], axis=1)
            frame = frame.join(of, how="outer")
        fit = seconds[(seconds["ended"] == 1) & seconds["unique"].notna()].groupby(_SIZE).max()
        frame = frame.join(pd.DataFrame({"batches that fit": fit["matches"], "with a twin": 1 - fit["unique"]}))
        note = (
            "Mean seconds of a search over the batches of a size, each batch with the same weight, and the share of "
            "searches that ended within their limit. Published: on another machine, with another solver; * where the paper "
            "gives no time, as several batches match. With a twin: the share of batches for which another batch matches."
        )
        title = "Seconds to rebuild a batch" + (f": {name}" if name else "")
        made.append(_table(section, f"solvers{suffix}", title, frame.reset_index(), note))
    return made


def solver_figures(section: Section) -> list[Figure | None]:
    """A part for the published values and one for each attack: rows by columns, seconds on one logarithmic scale."""
    return [solver_figure(solver_seconds(runs), f"{section.slug}_solvers{end}") for end, _, runs in _families(section)]


def solver_figure(seconds: pd.DataFrame, slug: str) -> Figure | None:
    """None if no time is known."""
    if seconds.solver_seconds.isna().all():
        return None
    places = ["attack", "columns", "rows"]
    published = published_seconds().reset_index().assign(attack="published", ended=1.0)
    known = pd.concat([published, seconds.reset_index()]).set_index(places)
    attacks, columns, rows = (known.index.unique(place) for place in places)
    whole = known.reindex(pd.MultiIndex.from_product([attacks, sorted(columns), sorted(rows)], names=places))
    cells = []
    for (attack, across, down), p in whole.iterrows():
        value = p.solver_seconds
        time = f"{'>' * (p.ended < 1)}{value:{'.0f' if value >= 100 else '.2g'}}"
        words = ("" if pd.isna(p.mark) else p.mark) if pd.isna(value) else time
        cells.append((attack, f"{across} columns", f"{down} rows", value, words, (words and f"{words} s") or "not run"))
    frame = pd.DataFrame(cells, columns=["group", "column", "row", "value", "words", "full"])
    positive = frame.value[frame.value > 0]
    note = "Seconds; > marks a size at which not every search ended, * one for which the paper gives no time."
    title = "Seconds to rebuild a batch, by rows and columns"
    return heat_map(frame, slug, title, note, low=positive.min(), high=positive.max(), log=True)


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
    for group in section.groups:
        defense = group.runs[0].config.get("defense") or {}
        if "split_guard" not in defense:
            continue
        options = defense["split_guard"] or {}
        window, used = options.get("window") or 10, options.get("policy") or "average"
        logs = [
            (_scores(run, "") if run.adversaries else {}, _scores(run, HONEST if run.adversaries else ""))
            for run in group.runs
        ]
        cheating, honest = ([scores for scores in of if scores] for of in zip(*logs, strict=True))
        for policy in POLICIES if cheating or honest else ():
            for threshold in thresholds:
                batches, accused = (
                    [batch for scores in of if (batch := _noticed(scores, policy, window, threshold)) is not None]
                    for of in (cheating, honest)
                )
                line = {"setting": group.name, "policy": policy, "window": window, "threshold": threshold}
                line |= {"cheating": len(cheating), "batches": batches, "honest": len(honest), "false_alarms": len(accused)}
                lines.append(line | {"used": policy == used})
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
        batches += [at for n, at in enumerate(places, 1) if alarm(values[:n], policy, window, threshold)][:1]
    return min(batches, default=None)


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
    return _table(section, "alarms", "When split_guard raises an alarm", rows, note, columns)


def alarm_figure(section: Section) -> Figure | None:
    """By threshold, of the policy that the runs used: the share that is noticed, and the share that is falsely accused."""
    read = alarms(section, [(step + 0.5) / 25 for step in range(25)])
    if read.empty:
        return None
    read = read[read.used & read.setting.isin(list(dict.fromkeys(read.setting))[:MOST_LINES])]
    parts = []
    for what, count, runs, line in (
        ("noticed", read.batches.map(len), read.cheating, "solid"),
        ("false alarms", read.false_alarms, read.honest, "dotted"),
    ):
        words = count.astype(str) + " of " + runs.astype(str)
        part = read.assign(label=read.setting + f": {what}", y=count / runs.where(runs > 0), words=words, line=line)
        parts.append(part[["label", "y", "words", "line"]].assign(style=read.setting, x=read.threshold, mark=False))
    note = "Each threshold is applied to the scores in the logs, with the policy of the run; see the table of alarms."
    title = "Cheating label parties that are noticed, and honest ones that are accused"
    axes = numbers(alt.X, "threshold"), numbers(alt.Y, "share of runs")
    return curves(pd.concat(parts), section.styles, *axes, f"{section.slug}_alarms", title, note)
