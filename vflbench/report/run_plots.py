"""One run as plots: AUC per epoch, and leak per layer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vflbench.errors import UserError
from vflbench.numerics.interval import Interval
from vflbench.report.palette import GREY, PALETTE, UTILITY
from vflbench.report.picture_rows import (
    NO_MESSAGE,
    NO_PAIR,
    Pair,
    few,
    is_reference,
    references_in,
    selection_words,
    worst,
    worst_of_epochs,
)
from vflbench.report.plot import Axis, Level, Plot, Point, Series, ends, exact, padded
from vflbench.results.layers import Layers, marked
from vflbench.results.levels import OWN_COLUMNS, PROBE
from vflbench.results.rows import Row, readings
from vflbench.results.runs import Run
from vflbench.results.table_formats import text_of

MOST_ATTACKS = 6
"""So many lines can be distinguished."""
REFERENCES = {PROBE: "#9b59ab", OWN_COLUMNS: "#8c564b"}
_COIN = Level(0.5, "0.5, a coin")


def run_plots(run: Run, slug: str) -> list[Plot]:
    """AUC per epoch, if there are several, and the leak per layer if any layer was attacked. slug: begins those of plots."""
    rows: list[Row] = []
    with suppress(OSError, UserError):  # a run without curves is still a run
        rows = [row for row in run.rows if not abs(row.value) > 1e100]
    if not rows:
        return []
    first = _worst_pair(run)
    made = [epochs_plot(rows, first)] if max(row.epoch for row in rows) > 0 else []
    attacked = {row.metric for row in rows if row.layer and row.attack and row.message != NO_MESSAGE}
    if "leak_auc_two_sided" in attacked:
        made.append(layers_plot(rows, run.layers, run.manifest.get("model") or {}, first))
    elif "leak_accuracy" in attacked:
        majority = max((run.manifest.get("data") or {}).get("train_class_ratios") or [math.nan])
        made += class_plots(rows, run.layers, majority, first)
    return [replace(plot, slug=f"{slug}_{plot.slug}") for plot in made]


def _worst_pair(run: Run) -> Pair:
    """Attack and message of the verdict's worst reading; NO_PAIR for a run of an older version."""
    verdict = run.summary.get("verdict")
    worst_one = verdict.get("worst") if isinstance(verdict, Mapping) else None
    return (str(worst_one.get("attack")), str(worst_one.get("message"))) if isinstance(worst_one, Mapping) else NO_PAIR


def epochs_plot(rows: Sequence[Row], first: Pair = NO_PAIR) -> Plot:
    """Test and train AUC, and each attack's leak AUC at the layer and party where it is largest; for more than two
    classes its macro AUC. Of the references, the probe and the strongest on own columns, each in a colour of its own.

    first: attack and message of the verdict's worst, which is always drawn; the note says which others are (`few`).
    """
    lines = []
    for split, style in (("test", "solid"), ("train", "dotted")):
        points = [row for row in rows if row.metric == "auc" and row.split == split]
        if points:  # an audit of messages knows no model
            places = tuple(
                Point(exact(p.epoch), exact(p.value), f"{split} AUC {p.value:.4g}, epoch {p.epoch}") for p in points
            )
            lines.append(Series(f"{split} AUC", places, look=7, line=style, hollow=split == "train", colour=UTILITY))
    seen = [row for row in readings(rows) if row.visible]
    seen = seen or [row for row in rows if row.metric == "leak_macro_auc" and row.visible]  # of more than two classes
    note = selection_words(seen, MOST_ATTACKS, first)
    seen = few(seen, MOST_ATTACKS, first)
    several = len({row.party for row in seen}) > 1
    place = ", worst layer" + (" and party" if several else "")
    attacks = [row for row in seen if not is_reference(row)]
    for index, (attack, message) in enumerate(dict.fromkeys((row.attack, row.message) for row in attacks)):
        points = worst_of_epochs([row for row in attacks if (row.attack, row.message) == (attack, message)])
        lines.append(_series(f"{attack} on {message}s{place}", [p.epoch for p in points], points, index, index))
    for name, leaks in references_in(seen).items():
        points = worst_of_epochs(leaks)
        knows = "half of the labels known" if name == PROBE else "own features alone"
        label = f"{points[0].attack}, {knows}" + (", worst party" if several else "")
        lines.append(_series(label, [p.epoch for p in points], points, REFERENCES[name], 5))
    what = "Model and leak" if any(row.metric == "auc" for row in rows) else "Leak"
    axes = Axis("epoch", whole=True), Axis("AUC")
    return _finished(Plot("epochs", f"{what} per epoch", *axes, tuple(lines), (_COIN,), note))


def layers_plot(
    rows: Sequence[Row], layers: Layers, model: Mapping[str, float] | None = None, first: Pair = NO_PAIR
) -> Plot:
    """The last epoch's leak AUC at every layer; hollow: no attacker sees the layer.

    Horizontal lines: 0.5, the model's test and train AUC, the probe, and of the attacks that read no message the strongest,
    at the party where it is largest. A colour per attack, a marker per party; if there are more parties than markers, the
    largest leak at each layer. model: what a recording says of test_auc and train_auc, where rows have none. first: attack
    and message of the verdict's worst, which is always drawn; the note says which others are (`few`).
    """
    last = max(row.epoch for row in rows)
    of_last = [row for row in readings(rows) if row.epoch == last]
    attacked = [row for row in of_last if not is_reference(row)]
    leaks = few(attacked, MOST_ATTACKS, first)
    names, lines = _lines(leaks, layers)
    known = [
        Row(last, split, metric="auc", value=v) for split in ("test", "train") if (v := (model or {}).get(f"{split}_auc"))
    ]
    levels = [*_utility([*rows, *known], "auc", "AUC", last)]
    several = len({row.party for row in of_last if is_reference(row)}) > 1
    for name, references in references_in(of_last).items():
        most = worst(references)
        label = f"{most.attack}{f', party {most.party}' if several else ''} {most.value:.3f}"
        levels.append(Level(most.value, label, colour=REFERENCES[name], in_legend=True))
    axes = Axis("layer, input to output", _ticks(names, layers)), Axis("leak AUC")
    return _finished(Plot("layers", "Label leakage per layer", *axes, lines, (*levels, _COIN), _note(last, attacked, first)))


def class_plots(rows: Sequence[Row], layers: Layers, majority: float, first: Pair = NO_PAIR) -> list[Plot]:
    """Of more than two classes, the last epoch's adjusted mutual information and accuracy at every layer.

    Horizontal lines: the model's test and train accuracy, and `majority`, the share of the most frequent class.
    """
    last = max(row.epoch for row in rows)
    plots = []
    for metric, name in (("leak_ami", "adjusted mutual information"), ("leak_accuracy", "accuracy")):
        leaks = [row for row in rows if row.metric == metric and row.epoch == last and row.message != NO_MESSAGE]
        names, lines = _lines(few(leaks, MOST_ATTACKS, first), layers)
        levels = [Level(0.0, "")]
        if metric == "leak_accuracy":
            label = f"{majority:.3f}, always the most frequent class"
            levels = [*_utility(rows, "accuracy", "accuracy", last), Level(majority, label, colour=GREY, in_legend=True)]
        title = f"Label leakage per layer, {name}"
        axes = Axis("layer, input to output", _ticks(names, layers)), Axis(name)
        plot = Plot(f"layers_{metric.removeprefix('leak_')}", title, *axes, lines, tuple(levels), _note(last, leaks, first))
        plots.append(replace(plot, y=replace(plot.y, limits=(min(plot.y_domain()[0], -0.02), 1.02))))
    return plots


def _note(epoch: int, attacked: Sequence[Row], first: Pair) -> str:
    what = f"Epoch {epoch}; means with 95 % intervals over batches. Hollow: no attacker sees the layer."
    return f"{what} {selection_words(attacked, MOST_ATTACKS, first)}".rstrip()


def _utility(rows: Sequence[Row], metric: str, words: str, epoch: int) -> Iterator[Level]:
    """A horizontal line for the test and the train figure of the model, as far as they are known."""
    for split, style in (("test", "dashdot"), ("train", "dotted")):
        for value in (row.value for row in rows if (row.metric, row.split, row.epoch) == (metric, split, epoch)):
            if math.isfinite(value):
                yield Level(value, f"{split} {words} {value:.3f}", style, UTILITY, in_legend=True)


def _lines(leaks: Sequence[Row], layers: Layers) -> tuple[list[str], tuple[Series, ...]]:
    """The layers along the axis, and a line per attack, party and visibility."""
    measured = {row.layer for row in leaks}
    names = [layer for layer in layers.order if layer in measured]
    attacks = list(dict.fromkeys(row.attack for row in leaks))
    parties = list(dict.fromkeys(row.party for row in leaks if row.visible))
    lines = _lines_of(leaks, layers, crowded=len(parties) > MOST_ATTACKS)
    drawn = []
    for place, (label, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda r: names.index(r.layer))
        shift = 0.0 if len(lines) < 4 else 0.3 * (place / (len(lines) - 1) - 0.5)  # so that intervals lie side by side
        series = _series(
            label,
            [names.index(p.layer) + shift for p in points],
            points,
            attacks.index(points[0].attack),
            _mark(points[0], attacks, parties),
        )
        drawn.append(series if points[0].visible else replace(series, hollow=True, line="dotted"))
    return names, tuple(drawn)


def _mark(row: Row, attacks: Sequence[str], parties: Sequence[str]) -> int:
    """A mark per party, or per attack where there is one party."""
    if len(parties) < 2:
        return attacks.index(row.attack)
    return parties.index(row.party) if row.visible else 0


def _ticks(names: Sequence[str], layers: Layers) -> tuple[tuple[float, str], ...]:
    return tuple((float(j), marked(name, name in layers.crossing)) for j, name in enumerate(names))


def _lines_of(leaks: Sequence[Row], layers: Layers, *, crowded: bool) -> dict[str, list[Row]]:
    """Label -> the points of one line."""
    several = len({row.party for row in leaks if row.visible}) > 1
    lines: dict[str, list[Row]] = {}
    for row in leaks:
        if not row.visible:
            part = "own bottom layers" if row.layer in layers.bottom else "top layers"
            label = f"{row.attack}, label party's {part} (hidden)"
        elif several and not crowded:
            label = f"{row.attack} on {row.message}s, party {row.party}"
        else:
            label = f"{row.attack} on {row.message}s" + (", worst party" if several else "")
        lines.setdefault(label, []).append(row)
    return {
        label: [worst([r for r in points if r.layer == layer]) for layer in dict.fromkeys(r.layer for r in points)]
        for label, points in lines.items()
    }


def _series(label: str, places: Sequence[float], points: Sequence[Row], colour: int | str, mark: int) -> Series:
    """colour: a place in the palette, or a colour."""
    drawn = []
    for x, p in zip(places, points, strict=True):
        interval = Interval(p.value, min(p.ci_low, p.value), max(p.ci_high, p.value))
        where = f"{p.layer}, epoch {p.epoch}" if p.layer else f"epoch {p.epoch}"
        drawn.append(Point(exact(x), interval, f"{label}\n{where}: {text_of(interval)}"))
    shade = PALETTE[colour % MOST_ATTACKS] if isinstance(colour, int) else colour
    return Series(label, tuple(drawn), look=mark % MOST_ATTACKS, colour=shade)


def _finished(plot: Plot) -> Plot:
    """With the limits of AUCs: both ends of the usual range, and 1 at most."""
    drawn = [v for p in plot.points() for v in ends(p.y)] + [level.y for level in plot.levels]
    low, high = padded([v for v in drawn if math.isfinite(v)])
    return replace(plot, y=replace(plot.y, limits=(min(low, 0.48), min(max(high, 0.82), 1.02))))
