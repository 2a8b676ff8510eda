"""Figures that a section has because of what was run: along known labels, epochs and ceilings, and thresholds."""

import math
import statistics
from collections.abc import Mapping, Sequence

from vflbench.numerics.alarm import POLICIES
from vflbench.numerics.interval import Interval
from vflbench.report.groups import Group
from vflbench.report.known_labels import choices, leak
from vflbench.report.plot import Axis, Level, Plot, Point, Series, exact
from vflbench.report.price_of_privacy import chosen
from vflbench.report.sections import MOST_LINES, Section
from vflbench.report.sections import chosen as few
from vflbench.report.split_guard_alarms import Alarms, alarms, guarded_groups, scores_of
from vflbench.results.table_formats import text_of

_LINES = ("solid", "dashed", "dotted", "dashdot")
_COIN = (Level(0.5, "0.5, a coin"),)
_STEPS = 25  # thresholds of a curve


def extra_plots(section: Section) -> list[Plot]:
    """Those with at least one point."""
    made = [known_labels_plot(section), price_plot(section), *alarm_plots(section)]
    return [plot for plot in made if plot is not None]


def known_labels_plot(section: Section) -> Plot | None:
    """A colour for each setting, a kind of line for each message; the marks of all but the first are hollow."""
    messages, counts = choices(section)
    groups, left_out = few(section)
    series = []
    for look, group in enumerate(groups if counts else ()):
        for line, message in zip(_LINES, messages, strict=False):
            name = f"{group.name}, {message}"
            values = [leak(group, message, known, section.layer) for known in counts]
            points = _points(values, name, [f"{known} known labels" for known in counts], group.count)
            if points:
                series.append(Series(name, points, look=look, line=line, hollow=line != _LINES[0]))
    if not series:
        return None
    axes = Axis("rows whose labels are known", _ticks(counts)), Axis("two-sided leak AUC of completion")
    note = f"Leaks {section.where}. Means over seeds with 95 % t-intervals.{left_out}"
    return Plot(
        f"{section.slug}_along_known_labels", "Leak by the number of known labels", *axes, tuple(series), _COIN, note
    )


def price_plot(section: Section) -> Plot | None:
    """A colour for each defense, a kind of line for each ceiling."""
    table = chosen(section)
    counts = sorted({epochs for by_epochs in table.values() for epochs in by_epochs})
    settings = sorted(table, key=lambda s: (-s.ceiling, s.method, s.others, s.rest))[: 3 * MOST_LINES]
    methods = list(dict.fromkeys(", ".join(filter(None, [s.method, s.others])) for s in settings))
    ceilings = sorted({s.ceiling for s in settings if s.ceiling < 1}, reverse=True)
    series = []
    for setting in settings:
        name = ", ".join(filter(None, [setting.method, setting.others]))
        label = name if setting.ceiling == 1 else f"{name}, ceiling {setting.ceiling:.3f}"
        points = _price_points(table[setting], counts, label)
        place = ceilings.index(setting.ceiling) if setting.ceiling < 1 else 0
        line = _LINES[place % len(_LINES)]
        series.append(Series(label, points, look=methods.index(name), line=line, hollow=place > 0))
    if not any(one.points for one in series):
        return None
    axes = Axis("epochs", _ticks(counts)), Axis("test AUC")
    note = "At the learning rates that validation rows chose. Means over seeds with 95 % t-intervals."
    return Plot(f"{section.slug}_price", "The price of label privacy", *axes, tuple(series), (), note)


def _price_points(by_epochs: Mapping[int, Group], counts: Sequence[int], label: str) -> tuple[Point, ...]:
    points = []
    for at, epochs in enumerate(counts):
        group = by_epochs.get(epochs)
        value = None if group is None else group.interval("test_auc")
        if group is not None and value is not None and not math.isnan(value.mean):
            hover = f"{label}\n{epochs} epoch{'s' * (epochs > 1)}: test AUC {text_of(value)}\n{group.count}"
            points.append(Point(exact(float(at)), value, hover))
    return tuple(points)


def alarm_plots(section: Section) -> list[Plot]:
    """By threshold, of the policy that the runs used: who is noticed and falsely accused, and at which batch."""
    groups = [g for g in guarded_groups(section) if any(scores_of(g))][:MOST_LINES]
    if not groups:
        return []
    thresholds = [(step + 0.5) / _STEPS for step in range(_STEPS)]
    shares, batches = [], []
    for look, group in enumerate(groups):
        policy = _policy(group)
        read = [(at, alarms(group, policy, at)) for at in thresholds]
        noticed = tuple(
            Point(exact(at), exact(len(a.batches) / a.cheating), _hover(group, at, a)) for at, a in read if a.cheating
        )
        accused = tuple(
            Point(exact(at), exact(a.false_alarms / a.honest), _hover(group, at, a)) for at, a in read if a.honest
        )
        when = tuple(
            Point(exact(at), exact(statistics.median(a.batches)), _hover(group, at, a)) for at, a in read if a.batches
        )
        shares += [Series(f"{group.name}: noticed", noticed, look=look, marks=False)] if noticed else []
        accused_line = Series(f"{group.name}: false alarms", accused, look=look, line="dotted", marks=False)
        shares += [accused_line] if accused else []
        batches += [Series(group.name, when, look=look)] if when else []
    axis = Axis("threshold", limits=(0.0, 1.0))
    note = "Each threshold is applied to the scores in the logs, with the policy of the run; see the table of alarms."
    made = []
    if shares:
        share = Axis("share of runs", limits=(-0.03, 1.03))
        title = "Cheating label parties that are noticed, and honest ones that are accused"
        made.append(Plot(f"{section.slug}_alarms", title, axis, share, tuple(shares), (), note))
    if batches:
        made.append(
            Plot(f"{section.slug}_alarm_batches", "When split_guard notices", axis, Axis("batch"), tuple(batches), (), note)
        )
    return made


def _policy(group: Group) -> str:
    policy = ((group.config.get("defense") or {}).get("split_guard") or {}).get("policy")
    return policy if policy in POLICIES else "average"


def _hover(group: Group, threshold: float, read: Alarms) -> str:
    when = f", at batch {statistics.median(read.batches):g} (median)" if read.batches else ""
    noticed = f"noticed: {len(read.batches)} of {read.cheating}{when}"
    return f"{group.name}\nthreshold {threshold:g}\n{noticed}\nfalse alarms: {read.false_alarms} of {read.honest}"


def _points(values: Sequence[Interval], name: str, places: Sequence[str], count: str) -> tuple[Point, ...]:
    return tuple(
        Point(exact(float(at)), value, f"{name}\n{places[at]}: {text_of(value)}\n{count}")
        for at, value in enumerate(values)
        if not math.isnan(value.mean)
    )


def _ticks(values: Sequence[int]) -> tuple[tuple[float, str], ...]:
    return tuple((float(at), str(value)) for at, value in enumerate(values))
