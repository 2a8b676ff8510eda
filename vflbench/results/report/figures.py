"""One run as pictures: AUC per epoch, and leak per layer."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vflbench.results.files import EPOCHS_PICTURE, LAYERS_PICTURE, RECONSTRUCTIONS_PICTURE
from vflbench.results.layers import Layers, layers_of
from vflbench.results.levels import OWN_COLUMNS, PROBE
from vflbench.results.read import read_manifest, read_metrics
from vflbench.results.report.output import Output
from vflbench.results.report.picture_rows import NO_MESSAGE, few, is_reference, references_in, worst, worst_of_epochs
from vflbench.results.report.rebuilt import draw_rebuilt
from vflbench.results.rows import Row, readings

# Okabe and Ito's palette, which people of every colour vision can distinguish.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
UTILITY = "#333333"
REFERENCES = {PROBE: "#7F3C8D", OWN_COLUMNS: "#8C564B"}


def draw(folder: Path) -> list[Path]:
    """Draw auc_per_epoch.png, leak_per_layer.png if any layer was attacked, and reconstructions.png if data were rebuilt.

    Returns the files that were drawn. Texts are drawn as they are: a dollar sign begins no formula.
    """
    with rc_context({"text.parse_math": False}):
        return _draw(folder)


def _draw(folder: Path) -> list[Path]:
    rows, manifest = read_metrics(folder), read_manifest(folder)
    pictures = {EPOCHS_PICTURE: draw_epochs(rows)}
    leaks = [row for row in rows if row.layer and row.attack and row.message != NO_MESSAGE]
    attacked = {row.metric for row in leaks}
    if attacked & {"leak_auc_two_sided", "leak_accuracy"}:
        layers = layers_of(manifest, ((row.party, row.layer, bool(row.visible)) for row in leaks))
        if "leak_auc_two_sided" in attacked:
            pictures[LAYERS_PICTURE] = draw_layers(rows, layers, manifest.get("model") or {})
        else:
            pictures[LAYERS_PICTURE] = draw_class_layers(rows, layers, max(manifest["data"]["train_class_ratios"]))
    rebuilt = draw_rebuilt(folder)
    if rebuilt is not None:
        pictures[RECONSTRUCTIONS_PICTURE] = rebuilt
    for name, figure in pictures.items():
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=150)
        Output(folder, "hydra.run.dir").write(name, drawn.getvalue())
    return [folder / name for name in pictures]


def draw_epochs(rows: Sequence[Row]) -> Figure:
    """Test and train AUC, and each attack's leak AUC at the layer and party where it is largest; for more than two
    classes its macro AUC. Of the references, the probe and the strongest on own columns, each in a colour of its own.
    """
    figure, axes = _axes("epoch", "AUC")
    for split, style in (("test", "-"), ("train", ":")):
        points = [row for row in rows if row.metric == "auc" and row.split == split]
        label = f"{split} AUC"
        if points:  # an audit of messages knows no model
            axes.plot([p.epoch for p in points], [p.value for p in points], style, color=UTILITY, marker=".", label=label)
    seen = few([row for row in readings(rows) if row.visible], len(COLOURS))
    seen = seen or [row for row in rows if row.metric == "leak_macro_auc" and row.visible]  # of more than two classes
    several = len({row.party for row in seen}) > 1
    place = ", worst layer" + (" and party" if several else "")
    attacks = [row for row in seen if not is_reference(row)]
    for index, (attack, message) in enumerate(dict.fromkeys((row.attack, row.message) for row in attacks)):
        points = worst_of_epochs([row for row in attacks if (row.attack, row.message) == (attack, message)])
        _plot(axes, [p.epoch for p in points], points, colour=index, marker=index, label=f"{attack} on {message}s{place}")
    for name, leaks in references_in(seen).items():
        points = worst_of_epochs(leaks)
        knows = "half of the labels known" if name == PROBE else "own features alone"
        label = f"{points[0].attack}, {knows}" + (", worst party" if several else "")
        _plot(axes, [p.epoch for p in points], points, colour=REFERENCES[name], marker=len(MARKERS) - 1, label=label)
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--")
    axes.set_xticks(sorted({row.epoch for row in rows}))
    what = "Model and leak" if any(row.metric == "auc" for row in rows) else "Leak"
    return _finish(figure, axes, f"{what} per epoch")


def draw_layers(rows: Sequence[Row], layers: Layers, model: Mapping[str, float] | None = None) -> Figure:
    """The last epoch's leak AUC at every layer; hollow: no attacker sees the layer.

    Horizontal lines: 0.5, the model's test and train AUC, the probe, and of the attacks that read no message the strongest,
    at the party where it is largest. A colour per attack, a marker per party; if there are more parties than markers, the
    largest leak at each layer. model: what a recording says of test_auc and train_auc, where rows have none.
    """
    last = max(row.epoch for row in rows)
    of_last = [row for row in readings(rows) if row.epoch == last]
    leaks = few([row for row in of_last if not is_reference(row)], len(COLOURS))
    figure, axes = _axes("layer, input to output", "leak AUC")
    names = _draw_lines(axes, leaks, layers)
    known = [
        Row(last, split, metric="auc", value=v) for split in ("test", "train") if (v := (model or {}).get(f"{split}_auc"))
    ]
    _draw_utility(axes, [*rows, *known], "auc", "AUC", last)
    several = len({row.party for row in of_last if is_reference(row)}) > 1
    for name, references in references_in(of_last).items():
        first = worst(references)
        label = f"{first.attack}{f', party {first.party}' if several else ''} {first.value:.3f}"
        axes.axhline(first.value, color=REFERENCES[name], linewidth=1.2, linestyle=(0, (5, 2)), label=label)
    axes.axhline(0.5, color="0.6", linewidth=1, linestyle="--", label="0.5, a coin")
    _name_layers(axes, names, layers)
    return _finish(figure, axes, f"Label leakage per layer, epoch {last} (mean and 95 % interval)")


def draw_class_layers(rows: Sequence[Row], layers: Layers, majority: float) -> Figure:
    """Of more than two classes, the last epoch's adjusted mutual information (above) and accuracy (below) at every layer.

    Horizontal lines: the model's test and train accuracy, and `majority`, the share of the most frequent class; 0 above.
    """
    last = max(row.epoch for row in rows)
    figure = Figure(figsize=(7, 7.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, metric, name in ((above, "leak_ami", "adjusted mutual information"), (below, "leak_accuracy", "accuracy")):
        _dress(axes, "", name)
        leaks = [row for row in rows if row.metric == metric and row.epoch == last]
        names = _draw_lines(axes, [row for row in leaks if row.message != NO_MESSAGE], layers)
    below.set_xlabel("layer, input to output")
    _draw_utility(below, rows, "accuracy", "accuracy", last)
    label = f"{majority:.3f}, always the most frequent class"
    below.axhline(majority, color="0.6", linewidth=1, linestyle="--", label=label)
    above.axhline(0.0, color="0.6", linewidth=1, linestyle="--")
    for axes in (above, below):
        axes.set_ylim(min(axes.get_ylim()[0], -0.02), 1.02)
    _name_layers(below, names, layers)
    above.set_title(f"Label leakage per layer, epoch {last} (mean and 95 % interval)", loc="left")
    handles, labels = below.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _draw_utility(axes: Axes, rows: Sequence[Row], metric: str, words: str, epoch: int) -> None:
    """A horizontal line for the test and the train figure of the model, as far as they are known."""
    for split, style in (("test", "-."), ("train", ":")):
        for value in (row.value for row in rows if (row.metric, row.split, row.epoch) == (metric, split, epoch)):
            axes.axhline(value, color=UTILITY, linewidth=1.2, linestyle=style, label=f"{split} {words} {value:.3f}")


def _draw_lines(axes: Axes, leaks: Sequence[Row], layers: Layers) -> list[str]:
    """Draw a line per attack, party and visibility. Returns the layers along the axis."""
    measured = {row.layer for row in leaks}
    names = [layer for layer in layers.order if layer in measured]
    attacks = list(dict.fromkeys(row.attack for row in leaks))
    parties = list(dict.fromkeys(row.party for row in leaks if row.visible))
    lines = _lines_of(leaks, layers, crowded=len(parties) > len(MARKERS))
    for place, (label, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda r: names.index(r.layer))
        shift = 0.0 if len(lines) < 4 else 0.3 * (place / (len(lines) - 1) - 0.5)  # so that intervals lie side by side
        _plot(
            axes,
            [names.index(p.layer) + shift for p in points],
            points,
            colour=attacks.index(points[0].attack),
            marker=parties.index(points[0].party) if points[0].visible else 0,
            label=label,
            hollow=not points[0].visible,
        )
    return names


def _name_layers(axes: Axes, names: Sequence[str], layers: Layers) -> None:
    axes.set_xticks(range(len(names)), [f"{name}\n(cut)" if name in layers.crossing else name for name in names])


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
    points: Sequence[Row],
    *,
    colour: int | str,
    marker: int,
    label: str,
    hollow: bool = False,
) -> None:
    """colour: of COLOURS the place, or a colour."""
    shade = COLOURS[colour % len(COLOURS)] if isinstance(colour, int) else colour
    below = [0.0 if math.isnan(p.ci_low) else p.value - p.ci_low for p in points]
    above = [0.0 if math.isnan(p.ci_high) else p.ci_high - p.value for p in points]
    axes.errorbar(
        places,
        [p.value for p in points],
        yerr=[[max(b, 0.0) for b in below], [max(a, 0.0) for a in above]],
        color=shade,
        marker=MARKERS[marker % len(MARKERS)],
        markerfacecolor="white" if hollow else shade,
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
    if entries:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
