"""One run as two pictures: AUC per epoch, and leak per layer."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vflbench.report.read import Measurement, read_metrics

# Okabe and Ito's palette: told apart by people of every colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
UTILITY = "#333333"


def draw(folder: Path) -> list[Path]:
    """auc_per_epoch.png and, if anything was attacked, leak_per_layer.png, from metrics.csv. Returns what was drawn."""
    rows = read_metrics(folder)
    pictures = {"auc_per_epoch.png": draw_epochs(rows)}
    if any(row.metric == "leak_auc_two_sided" for row in rows):
        pictures["leak_per_layer.png"] = draw_layers(rows)
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=150)
    return [folder / name for name in pictures]


def draw_epochs(rows: Sequence[Measurement]) -> Figure:
    """Test and train AUC, and the two-sided leak AUC of each attack at the layer and party where it sees most."""
    figure, axes = _axes("epoch", "AUC")
    for split, style in (("test", "-"), ("train", ":")):
        points = [row for row in rows if row.metric == "auc" and row.split == split]
        label = f"{split} AUC"
        axes.plot([p.epoch for p in points], [p.value for p in points], style, color=UTILITY, marker=".", label=label)
    seen = [row for row in rows if row.metric == "leak_auc_two_sided" and row.visible]
    several = len({row.party for row in seen}) > 1
    for index, (attack, message) in enumerate(dict.fromkeys((row.attack, row.message) for row in seen)):
        own = [row for row in seen if (row.attack, row.message) == (attack, message)]
        points = [_worst([r for r in own if r.epoch == epoch]) for epoch in sorted({r.epoch for r in own})]
        label = f"{attack} on {message}s, worst layer" + (" and party" if several else "")
        _plot(axes, [p.epoch for p in points], points, colour=index, marker=index, label=label)
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--")
    axes.set_xticks(sorted({row.epoch for row in rows}))
    return _finish(figure, axes, "Model and leak per epoch")


def draw_layers(rows: Sequence[Measurement]) -> Figure:
    """The last epoch's two-sided leak AUC at every layer, with lines at 0.5 and at test AUC; hollow: no attacker sees it.

    A colour an attack, a marker a party. Of more parties than can be told apart, the one that learns most at each layer.
    """
    last = max(row.epoch for row in rows)
    leaks = [row for row in rows if row.metric == "leak_auc_two_sided" and row.epoch == last]
    layers = sorted({row.layer for row in leaks}, key=_layer_order)
    attacks = list(dict.fromkeys(row.attack for row in leaks))
    parties = list(dict.fromkeys(row.party for row in leaks if row.visible))
    figure, axes = _axes("layer, input to output", "two-sided leak AUC")
    lines = _lines_of(leaks, crowded=len(parties) > len(MARKERS))
    for place, (label, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda r: _layer_order(r.layer))
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
    test_auc = next(row.value for row in rows if row.metric == "auc" and row.split == "test" and row.epoch == last)
    axes.axhline(test_auc, color=UTILITY, linewidth=1.2, linestyle="-.", label=f"test AUC {test_auc:.3f}")
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--", label="0.5, a coin")
    own = [layer for layer in layers if layer.startswith("f")]
    axes.set_xticks(range(len(layers)), [f"{layer}\n(cut)" if layer in own[-1:] else layer for layer in layers])
    return _finish(figure, axes, f"Label leakage per layer, epoch {last} (mean and 95 % interval)")


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
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


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


def _layer_order(layer: str) -> tuple[int, int]:
    """f1, f2, ..., the linear part beside the cut, then h1, h2, ..."""
    digits = "".join(c for c in layer if c.isdigit())
    return (1, 0) if not digits else (0 if layer.startswith("f") else 2, int(digits))
