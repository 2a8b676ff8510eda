"""One run as two pictures: AUC per epoch, and leak per layer."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vflbench.results.read import Measurement, read_manifest, read_metrics
from vflbench.results.report.rebuilt import draw_rebuilt

# Okabe and Ito's palette: told apart by people of every colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
UTILITY = "#333333"
NO_MESSAGE = "none"
"""What stands in the column `message` for an attack that looks at none."""


def draw(folder: Path) -> list[Path]:
    """auc_per_epoch.png and, if any layer was attacked, leak_per_layer.png, from metrics.csv, and reconstructions.png
    where data were rebuilt. Returns what was drawn.
    """
    rows = read_metrics(folder)
    pictures = {"auc_per_epoch.png": draw_epochs(rows)}
    attacked = {row.metric for row in rows if row.layer and row.message != NO_MESSAGE}
    if "leak_auc_two_sided" in attacked:
        pictures["leak_per_layer.png"] = draw_layers(rows)
    elif "leak_accuracy" in attacked:
        majority = max(read_manifest(folder)["data"]["train_class_ratios"])
        pictures["leak_per_layer.png"] = draw_class_layers(rows, majority)
    rebuilt = draw_rebuilt(folder)
    if rebuilt is not None:
        pictures["reconstructions.png"] = rebuilt
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in pictures]


def draw_epochs(rows: Sequence[Measurement]) -> Figure:
    """Test and train AUC, and each attack's two-sided leak AUC, of more than two classes its macro AUC, at the layer and
    party where it sees most.
    """
    figure, axes = _axes("epoch", "AUC")
    for split, style in (("test", "-"), ("train", ":")):
        points = [row for row in rows if row.metric == "auc" and row.split == split]
        label = f"{split} AUC"
        axes.plot([p.epoch for p in points], [p.value for p in points], style, color=UTILITY, marker=".", label=label)
    seen = [row for row in rows if row.metric == "leak_auc_two_sided" and row.visible]
    seen = seen or [row for row in rows if row.metric == "leak_macro_auc" and row.visible]  # of more than two classes
    several = len({row.party for row in seen}) > 1
    for index, (attack, message) in enumerate(dict.fromkeys((row.attack, row.message) for row in seen)):
        own = [row for row in seen if (row.attack, row.message) == (attack, message)]
        points = [_worst([r for r in own if r.epoch == epoch]) for epoch in sorted({r.epoch for r in own})]
        label = f"{attack} on {message}s, worst layer" + (" and party" if several else "")
        if message == NO_MESSAGE:
            label = f"{attack}, own features alone" + (", worst party" if several else "")
        _plot(axes, [p.epoch for p in points], points, colour=index, marker=index, label=label)
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--")
    axes.set_xticks(sorted({row.epoch for row in rows}))
    return _finish(figure, axes, "Model and leak per epoch")


def draw_layers(rows: Sequence[Measurement]) -> Figure:
    """The last epoch's two-sided leak AUC at every layer; hollow: no attacker sees it.

    Lines at 0.5, at the model's test and train AUC, and where an attack stands that looks at no message, of several parties
    the one that learns most. A colour an attack, a marker a party; of more parties than can be told apart, the one that
    learns most at each layer.
    """
    last = max(row.epoch for row in rows)
    found = [row for row in rows if row.metric == "leak_auc_two_sided" and row.epoch == last]
    leaks = [row for row in found if row.message != NO_MESSAGE]
    figure, axes = _axes("layer, input to output", "two-sided leak AUC")
    layers = _draw_lines(axes, leaks)
    for split, style in (("test", "-."), ("train", ":")):
        value = next(row.value for row in rows if (row.metric, row.split, row.epoch) == ("auc", split, last))
        axes.axhline(value, color=UTILITY, linewidth=1.2, linestyle=style, label=f"{split} AUC {value:.3f}")
    alone = [row for row in found if row.message == NO_MESSAGE and not math.isnan(row.value)]
    attacks = list(dict.fromkeys(row.attack for row in leaks)) + list(dict.fromkeys(row.attack for row in alone))
    several = len({row.party for row in alone}) > 1
    for attack in dict.fromkeys(row.attack for row in alone):
        best = _worst([row for row in alone if row.attack == attack])
        label = f"{attack}{f', party {best.party}' if several else ''} {best.value:.3f}"
        colour = COLOURS[attacks.index(attack) % len(COLOURS)]
        axes.axhline(best.value, color=colour, linewidth=1.2, linestyle=(0, (5, 2)), label=label)
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--", label="0.5, a coin")
    _name_layers(axes, layers)
    return _finish(figure, axes, f"Label leakage per layer, epoch {last} (mean and 95 % interval)")


def draw_class_layers(rows: Sequence[Measurement], majority: float) -> Figure:
    """Of more than two classes, the last epoch's accuracy (above) and adjusted mutual information (below) at every layer.

    Lines at the model's test and train accuracy and at the share of the most frequent class, `majority`; at 0 below.
    """
    last = max(row.epoch for row in rows)
    figure = Figure(figsize=(7, 7.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, metric, name in ((above, "leak_accuracy", "accuracy"), (below, "leak_ami", "adjusted mutual information")):
        _dress(axes, "", name)
        leaks = [row for row in rows if row.metric == metric and row.epoch == last]
        layers = _draw_lines(axes, [row for row in leaks if row.message != NO_MESSAGE])
    below.set_xlabel("layer, input to output")
    for split, style in (("test", "-."), ("train", ":")):
        found = [row.value for row in rows if (row.metric, row.split, row.epoch) == ("accuracy", split, last)]
        for value in found:
            above.axhline(value, color=UTILITY, linewidth=1.2, linestyle=style, label=f"{split} accuracy {value:.3f}")
    label = f"{majority:.3f}, always the most frequent class"
    above.axhline(majority, color="0.6", linewidth=1, linestyle="--", label=label)
    below.axhline(0.0, color="0.6", linewidth=1, linestyle="--")
    for axes in (above, below):
        axes.set_ylim(min(axes.get_ylim()[0], -0.02), 1.02)
    _name_layers(below, layers)
    above.set_title(f"Label leakage per layer, epoch {last} (mean and 95 % interval)", loc="left")
    handles, labels = above.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _draw_lines(axes: Axes, leaks: Sequence[Measurement]) -> list[str]:
    """A line an attack, party and visibility. Returns the layers in their places."""
    layers = sorted({row.layer for row in leaks}, key=layer_order)
    attacks = list(dict.fromkeys(row.attack for row in leaks))
    parties = list(dict.fromkeys(row.party for row in leaks if row.visible))
    lines = _lines_of(leaks, crowded=len(parties) > len(MARKERS))
    for place, (label, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda r: layer_order(r.layer))
        shift = 0.0 if len(lines) < 4 else 0.3 * (place / (len(lines) - 1) - 0.5)  # so that intervals lie side by side
        _plot(
            axes,
            [layers.index(p.layer) + shift for p in points],
            points,
            colour=attacks.index(points[0].attack),
            marker=parties.index(points[0].party) if points[0].visible else 0,
            label=label,
            hollow=not points[0].visible,
        )
    return layers


def _name_layers(axes: Axes, layers: Sequence[str]) -> None:
    own = [layer for layer in layers if layer.startswith("f")]
    axes.set_xticks(range(len(layers)), [f"{layer}\n(cut)" if layer in own[-1:] else layer for layer in layers])


def _lines_of(leaks: Sequence[Measurement], *, crowded: bool) -> dict[str, list[Measurement]]:
    """Label -> the points of one line."""
    several = len({row.party for row in leaks if row.visible}) > 1
    lines: dict[str, list[Measurement]] = {}
    for row in leaks:
        if not row.visible:
            part = "top layers" if row.layer.startswith("h") else "own bottom layers"
            label = f"{row.attack}, label party's {part} (hidden)"
        elif several and not crowded:
            label = f"{row.attack} on {row.message}s, party {row.party}"
        else:
            label = f"{row.attack} on {row.message}s" + (", worst party" if several else "")
        lines.setdefault(label, []).append(row)
    return {
        label: [_worst([r for r in points if r.layer == layer]) for layer in dict.fromkeys(r.layer for r in points)]
        for label, points in lines.items()
    }


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    return figure, _dress(figure.add_subplot(), x, y)


def _dress(axes: Axes, x: str, y: str) -> Axes:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _plot(
    axes: Axes,
    places: Sequence[float],
    points: Sequence[Measurement],
    *,
    colour: int,
    marker: int,
    label: str,
    hollow: bool = False,
) -> None:
    below = [p.value - p.ci_low if p.ci_low == p.ci_low else 0.0 for p in points]
    above = [p.ci_high - p.value if p.ci_high == p.ci_high else 0.0 for p in points]
    axes.errorbar(
        places,
        [p.value for p in points],
        yerr=[[max(b, 0.0) for b in below], [max(a, 0.0) for a in above]],
        color=COLOURS[colour % len(COLOURS)],
        marker=MARKERS[marker % len(MARKERS)],
        markerfacecolor="white" if hollow else COLOURS[colour % len(COLOURS)],
        linestyle=":" if hollow else "-",
        capsize=2,
        label=label,
    )


def _finish(figure: Figure, axes: Axes, title: str) -> Figure:
    axes.set_title(title, loc="left")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.48), min(max(high, 0.82), 1.02))
    entries = len(axes.get_legend_handles_labels()[1])
    figure.set_figheight(4.4 + 0.22 * math.ceil(entries / 2))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _worst(rows: Sequence[Measurement]) -> Measurement:
    return max(rows, key=lambda row: -1.0 if math.isnan(row.value) else row.value)


def layer_order(layer: str) -> tuple[int, int]:
    """f1, f2, ..., the linear part beside the cut, then h1, h2, ..."""
    digits = "".join(c for c in layer if c.isdigit())
    return (1, 0) if not digits else (0 if layer.startswith("f") else 2, int(digits))
