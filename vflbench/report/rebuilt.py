"""What attacks rebuilt, beside what it was, as one picture."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WRONG = "#D55E00"
"""Okabe and Ito's vermilion, on grey pictures."""

_ROWS, _PICTURES = 40, 12
"""At most so many are shown of a table, and of pictures."""


def draw_rebuilt(folder: Path) -> Figure | None:
    """reconstructions.npz as a figure: a band for each attack and party. None if there is no such file.

    Pictures (n, height, width) stand in two rows, the true ones above; a table (n, columns) as two images side by side, with
    the entries that are wrong by half or more marked.
    """
    path = folder / "reconstructions.npz"
    if not path.exists():
        return None
    with np.load(path) as arrays:
        pairs = _pairs({name: arrays[name] for name in arrays.files})
    if not pairs:
        return None
    heights = [1.6 if truth.ndim > 2 else 0.6 + 0.12 * min(len(truth), _ROWS) for truth, _ in pairs.values()]
    figure = Figure(figsize=(8, 0.4 + sum(height + 0.5 for height in heights)), layout="constrained")
    bands = np.atleast_1d(figure.subfigures(len(pairs), 1, height_ratios=heights))
    for band, (name, (truth, answer)) in zip(bands, pairs.items(), strict=True):
        band.suptitle(name, fontsize=9)
        (_pictures if truth.ndim > 2 else _table)(band, truth, answer)
    return figure


def _pairs(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`attack: party layer` -> truth and answer."""
    found = {}
    for name in sorted(arrays):
        key, _, part = name.rpartition("/")
        if part == "truth" and f"{key}/answer" in arrays:
            attack, party, layer = [*key.split("/"), "", ""][:3]
            found[f"{attack}: party {party}, {layer}"] = arrays[name], arrays[f"{key}/answer"]
    return found


def _pictures(band: Figure, truth: np.ndarray, answer: np.ndarray) -> None:
    count = min(len(truth), _PICTURES)
    axes = band.subplots(2, count, squeeze=False)
    for row, (pictures, label) in enumerate(((truth, "true"), (answer, "rebuilt"))):
        for ax, picture in zip(axes[row], pictures[:count], strict=True):
            ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
            _bare(ax)
        axes[row][0].set_ylabel(label, fontsize=8)


def _table(band: Figure, truth: np.ndarray, answer: np.ndarray) -> None:
    truth, answer = truth[:_ROWS], answer[:_ROWS]
    wrong = ~(np.abs(truth - answer) < 0.5)  # nan is wrong as well
    known = np.isfinite(answer)
    left, right = band.subplots(1, 2)
    told = f"rebuilt: {wrong.sum()} of {wrong.size} wrong" if wrong.any() else "rebuilt: all right"
    for ax, values, label in ((left, truth, "true"), (right, np.where(known, answer, 0.5), told)):
        ax.imshow(values, cmap="gray_r", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        ax.set_title(label, fontsize=8)
        _bare(ax)
    rows, columns = wrong.nonzero()
    right.scatter(columns, rows, marker="x", color=WRONG, s=18, linewidths=1.5)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
