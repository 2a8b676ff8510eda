"""Rebuilt data beside the true data, as figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from vflbench.errors import UserError
from vflbench.report.figure import Figure
from vflbench.report.groups import Group
from vflbench.report.pictures import Block, TableBlock, lines_of_ten, picture_figure
from vflbench.results.arrays import read_arrays
from vflbench.results.files import RECONSTRUCTIONS
from vflbench.results.runs import Oddity
from vflbench.results.untrusted import shown

_PICTURES = 20
MOST_FIGURES = 8
_MOST_SIDE, _MOST_COLUMNS, _MOST_PAIRS = 256, 1_000, 12  # pixels of a picture, columns of a table, attacks and parties


def rebuilt_figures(groups: Sequence[Group], slug: str, odd: list[Oddity]) -> list[Figure]:
    """A figure for each of the first settings whose runs rebuilt data, of its first run. odd: takes what can't be read."""
    figures: list[Figure] = []
    for group in groups:
        for run in group.runs:
            if len(figures) == MOST_FIGURES:
                return figures
            try:
                figure = rebuilt_figure(run.folder, f"{slug}_rebuilt_{len(figures) + 1}", group.name)
            except (OSError, UserError) as error:
                odd.append(Oddity("foreign", run.folder / RECONSTRUCTIONS, shown(getattr(error, "problem", error))))
                continue
            if figure is not None:
                figures.append(figure)
                break
    return figures


def rebuilt_figure(folder: Path, slug: str, name: str = "") -> Figure | None:
    """The run's reconstructions.npz: a part for each attack and party. None if there is no such file, or nothing in it.

    Pictures, (n, height, width) or (n, height, width, channels), are in lines of ten, the true ones above the rebuilt ones.
    A table (n, columns) is shown as two pictures side by side.
    """
    try:
        pairs = dict(_pairs(read_arrays(folder / RECONSTRUCTIONS)))
    except FileNotFoundError:
        return None
    blocks = [_block(title, *pair) for title, pair in list(pairs.items())[:_MOST_PAIRS]]
    if not blocks:
        return None
    left_out = len(pairs) - len(blocks)
    note = "Of one run; at most 20 pictures or 40 rows of each." + f" {left_out} more are in its file." * bool(left_out)
    alt = f"True data beside what attacks rebuilt of it: {', '.join(pairs)}."
    title = f"Rebuilt data: {name}" if name else "Rebuilt data"
    return picture_figure(blocks, slug=slug, title=title, note=note, alt_text=alt)


def _pairs(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """`attack: party layer`, truth and answer; only of the same shape, and such as can be shown."""
    for name in sorted(arrays):
        key, _, part = name.rpartition("/")
        if part != "truth" or f"{key}/answer" not in arrays:
            continue
        truth, answer = arrays[name], arrays[f"{key}/answer"]
        sides = truth.shape[1:3]
        is_table = truth.ndim == 2
        can_be_shown = (
            truth.ndim in (2, 3, 4) and truth.size > 0 and max(sides) <= (_MOST_COLUMNS if is_table else _MOST_SIDE)
        )
        if truth.shape == answer.shape and can_be_shown:
            attack, party, layer = [*key.split("/"), "", ""][:3]
            yield f"{attack}: party {party}, {layer}", (truth, answer)


def _block(title: str, truth: np.ndarray, answer: np.ndarray) -> Block | TableBlock:
    if truth.ndim == 2:
        return TableBlock(title, truth.astype(float), answer.astype(float))
    return Block(title, tuple(lines_of_ten({"true": truth, "rebuilt": answer}, _PICTURES)))
