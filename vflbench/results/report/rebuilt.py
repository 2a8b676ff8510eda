"""Rebuilt data beside the true data, as one picture."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from vflbench.results.arrays import read_arrays
from vflbench.results.files import RECONSTRUCTIONS

WRONG = "#D55E00"
"""Okabe and Ito's vermilion, visible on grey pictures."""

_ROWS, _PICTURES, _ACROSS = 40, 20, 10
"""At most so many rows of a table, pictures, and pictures side by side."""


def draw_rebuilt(folder: Path) -> Figure | None:
    """Draw reconstructions.npz: a band per attack and party. None if there is no such file.

    Pictures, (n, height, width) or (n, height, width, channels), are in rows of ten, the true ones above the rebuilt ones.
    A table (n, columns) is shown as two images side by side; entries that are wrong by 0.5 or more are marked.
    """
    try:
        pairs = _pairs(read_arrays(folder / RECONSTRUCTIONS))
    except FileNotFoundError:
        return None
    if not pairs:
        return None
    heights = [_height(truth) for truth, _ in pairs.values()]
    figure = Figure(figsize=(8, 0.4 + sum(height + 0.5 for height in heights)), layout="constrained")
    bands = figure.subfigures(len(pairs), 1, height_ratios=heights, squeeze=False)
    for (band,), (name, (truth, answer)) in zip(bands, pairs.items(), strict=True):
        band.suptitle(name, fontsize=9)
        (_pictures if truth.ndim > 2 else _table)(band, truth, answer)
    return figure


def _pairs(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`attack: party layer` -> truth and answer."""
    pairs = {}
    for name in sorted(arrays):
        key, _, part = name.rpartition("/")
        if part == "truth" and f"{key}/answer" in arrays:
            attack, party, layer = [*key.split("/"), "", ""][:3]
            pairs[f"{attack}: party {party}, {layer}"] = arrays[name], arrays[f"{key}/answer"]
    return pairs


def _height(truth: np.ndarray) -> float:
    """Inches."""
    if truth.ndim == 2:
        return 0.6 + 0.12 * min(len(truth), _ROWS)
    return 1.7 * -(-min(len(truth), _PICTURES) // _ACROSS)


def _pictures(band: FigureBase, truth: np.ndarray, answer: np.ndarray) -> None:
    """A strip of pictures a line: an axes of its own for each picture would take seconds to draw."""
    truth, answer = truth[:_PICTURES], answer[:_PICTURES]
    across = min(len(truth), _ACROSS)
    lines = -(-len(truth) // across)
    axes = band.subplots(2 * lines, 1, squeeze=False)[:, 0]
    strips = [part[i * across : (i + 1) * across] for i in range(lines) for part in (truth, answer)]
    for place, (ax, pictures) in enumerate(zip(axes, strips, strict=True)):
        ax.imshow(strip(pictures, across), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        _bare(ax)
        ax.spines[:].set_visible(False)
        ax.set_ylabel(("true", "rebuilt")[place % 2], fontsize=8)


def strip(pictures: np.ndarray, across: int | None = None) -> np.ndarray:
    """Pictures side by side with a white line of one pixel after each, and white where there are fewer than `across`."""
    edge = np.ones_like(pictures[0][:, :1])
    missing = (across or len(pictures)) - len(pictures)
    filled = [*(np.clip(picture, 0, 1) for picture in pictures), *[np.ones_like(pictures[0])] * missing]
    return np.concatenate([part for picture in filled for part in (picture, edge)], axis=1)


def _table(band: FigureBase, truth: np.ndarray, answer: np.ndarray) -> None:
    truth, answer = truth[:_ROWS], answer[:_ROWS]
    wrong = ~(np.abs(truth - answer) < 0.5)  # nan is wrong as well
    known = np.isfinite(answer)
    left, right = band.subplots(1, 2)
    title = f"rebuilt: {wrong.sum()} of {wrong.size} wrong" if wrong.any() else "rebuilt: all right"
    for ax, values, label in ((left, truth, "true"), (right, np.where(known, answer, 0.5), title)):
        ax.imshow(values, cmap="gray_r", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        ax.set_title(label, fontsize=8)
        _bare(ax)
    rows, columns = wrong.nonzero()
    right.scatter(columns, rows, marker="x", color=WRONG, s=18, linewidths=1.5)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
