"""The plots of a section along the epochs."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress

from vflbench.errors import UserError
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import over_runs
from vflbench.report.groups import Group
from vflbench.report.plot import Axis, Level, Plot, Point, Series, exact
from vflbench.report.sections import Section, chosen
from vflbench.results import quantity
from vflbench.results.rows import Row, readings
from vflbench.results.runs import Run
from vflbench.results.table_formats import text_of

_MOST_EPOCHS = 500  # of a curve; more can't be told apart


def epoch_plots(section: Section) -> list[Plot]:
    """Utility per epoch, and the leak to the attack that is the worst in the last epoch."""
    shown_groups, left_out = chosen(section)
    metric = {"test_accuracy": "accuracy"}.get(section.x, "auc")
    curves = [(group, [_metrics(run) for run in group.runs]) for group in shown_groups]
    if max((row.epoch for _, runs in curves for rows in runs for row in rows), default=0) < 1:
        return []
    leak = {"leak_accuracy": "leak_accuracy", "leak_ami": "leak_ami"}.get(section.y, "leak_auc")
    utility, leaks = [], []
    for look, (group, runs) in enumerate(curves):
        utility.append(Series(group.name, _curve(group, [_utility(rows, metric) for rows in runs], metric), look=look))
        worst = group.worst_attack(section.y if section.y in quantity.LEAKS else "leak_auc", section.layer)
        series = [_leak(rows, leak, worst, run) for rows, run in zip(runs, group.runs, strict=True)]
        leaks.append(
            Series(f"{group.name}: {worst}" if worst else group.name, _curve(group, series, worst, leak), look=look)
        )
    note = f"Means over seeds with 95 % t-intervals.{left_out}"
    levels = (Level(0.5, "0.5, a coin"),) if leak.startswith("leak_auc") else ()
    name = "leak AUC" if levels else leak.replace("_", " ")
    epoch = Axis("epoch", whole=True)
    utility, leaks = ([series for series in curve if series.points] for curve in (utility, leaks))
    score = f"test {metric.replace('auc', 'AUC')}"
    slug = f"{section.slug}_epochs"
    title = f"{score[0].upper()}{score[1:]} per epoch"
    return [
        Plot(f"{slug}_utility", title, epoch, Axis(score), tuple(utility), note=note),
        Plot(f"{slug}_leak", "Worst leak at the cut per epoch", epoch, Axis(name), tuple(leaks), levels, note),
    ]


def _metrics(run: Run) -> list[Row]:
    with suppress(OSError, UserError):  # a run without curves is still a run
        return [row for row in run.rows if not abs(row.value) > 1e100]
    return []


def _utility(rows: Iterable[Row], metric: str) -> dict[int, float]:
    return {row.epoch: row.value for row in rows if (row.split, row.metric) == ("test", metric)}


def _leak(rows: Iterable[Row], metric: str, attack: str, run: Run) -> dict[int, float]:
    """Epoch -> the largest leak at the cut."""
    worst: dict[int, float] = {}
    for row in readings(rows) if metric == "leak_auc" else (row for row in rows if row.metric == metric):
        if row.visible or math.isnan(row.value):
            continue
        if f"{row.attack} on {row.message}s" == attack and run.layers.crosses(row.party, row.layer):
            worst[row.epoch] = max(worst.get(row.epoch, row.value), row.value)
    return worst


def _curve(group: Group, runs: Sequence[dict[int, float]], what: str, figure: str = "auc") -> tuple[Point, ...]:
    points = []
    for epoch in _some(sorted({epoch for run in runs for epoch in run})):
        interval = over_runs((run[epoch] for run in runs if epoch in run), range_of(figure))
        name = f"{group.name}\n{what}, epoch {epoch}: {text_of(interval)}\n{group.count}"
        points.append(Point(exact(epoch), interval, name))
    return tuple(points)


def _some(epochs: Sequence[int]) -> Sequence[int]:
    """All of a few; of many some, evenly chosen, the first and the last among them."""
    if len(epochs) <= _MOST_EPOCHS:
        return epochs
    return [epochs[round(i * (len(epochs) - 1) / (_MOST_EPOCHS - 1))] for i in range(_MOST_EPOCHS)]
