"""What attacks rebuilt: pictures and tables beside the true ones, and how well, by setting."""

import base64
import io
import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from vflbench.errors import UserError
from vflbench.report.charts import Figure, curves, finished_chart, names_axis, numbers, text
from vflbench.report.group import Section, over_seeds, slugged
from vflbench.report.tables import rebuilt_by
from vflbench.results.folder import RECONSTRUCTIONS, Unreadable, cleaned, read_bytes
from vflbench.results.runs import Oddity, Run

RECOVERY = {
    "mse": "mean squared error",
    "ssim": "structural similarity (SSIM)",
    "identified": "identified among 20 of the class",
    "r2": "R squared",
    "error_over_spread": "error over spread",
    "id_accuracy": "share of right ids",
}
"""Figures -> their names on the axis: the first three that any run has are drawn by setting."""
_SAID = {"mse": "MSE {:.3f}", "identified": "identified {:.0%}"}
"""Figures -> what stands above the pictures of a setting."""
MOST_FIGURES, MOST_SETTINGS = 8, 60
_LOGARITHMIC, _LEAST = ("mse", "error_over_spread"), 1e-6
_DRAWN = {"mean": "dotted", "class_mean": "dashdot", "random_row": "dashed", "chance": "dotted"}  # guesses with a line
_ACROSS, _SIDE, _GAP, _WIDE, _LETTERS = 10, 26, 3, 340, 54  # pictures side by side; pixels; letters of a line
_MOST_PAIRS, _MOST_ROWS, _MOST_PICTURES = 12, 40, 20
_Pair = tuple[np.ndarray, np.ndarray]
"""Truth and answer."""


def figures(section: Section, odd: list[Oddity]) -> list[Figure]:
    """What was rebuilt of a section, and how well. odd: takes the files that can't be read."""
    drawn = set[tuple[Path, str]]()
    return [*_of_one_data(section, rebuilt_by(section), drawn), *rebuilt_figures(section, odd, drawn)]


# How well


def _of_one_data(section: Section, rebuilt: pd.DataFrame, drawn: set[tuple[Path, str]]) -> Iterator[Figure]:
    """Figures of settings with the same rows, for which guesses without messages are the same too.

    drawn: takes (folder, key of the arrays) of the pictures that stand side by side.
    """
    data = rebuilt.run.map(section.runs.run.map(lambda run: str(run.config.get("dataset"))))
    parts = [of for _, of in rebuilt.groupby(data, sort=False) if 2 <= of.setting.nunique() <= MOST_SETTINGS]
    for place, of in enumerate(parts, 1):
        end = f"_{place}" * (len(parts) > 1)
        yield from (*_recovery(section, of, end), *_side_by_side(section, of, end, drawn))


def _recovery(section: Section, rebuilt: pd.DataFrame, end: str) -> Iterator[Figure]:
    """A figure a quantity, a row a setting, a colour an attack; guesses as upright lines."""
    answers = rebuilt[rebuilt.guess == ""]
    order = [name for name in section.settings.index if name in set(answers.setting)]
    for figure in [name for name in RECOVERY if name in answers and answers[name].notna().any()][:3]:
        is_log = figure in _LOGARITHMIC  # an attacker who is misled is off by ten times as much as others
        least = _LEAST if is_log else -math.inf  # an exact answer has a place too
        points = over_seeds(answers, ["attack", "setting"], figure).rename("x").reset_index().assign(line="none")
        points["x"] = [replace(v, mean=max(v.mean, least), low=max(v.low, least)) for v in points.x]
        points = points.rename(columns={"attack": "label", "setting": "y"})
        axes = numbers(alt.X, RECOVERY[figure], log=10 * is_log), names_axis(alt.Y, "", order)
        slug, title = f"{section.slug}_recovery_{figure}{end}", f"What is rebuilt: {RECOVERY[figure]}"
        note = "Means over seeds with 95 % t-intervals; upright lines: guesses without messages."
        means = rebuilt.groupby("guess")[figure].mean().dropna().clip(lower=least)
        levels = [(f"no message: {g.replace('_', ' ')}", means[g], line, "") for g, line in _DRAWN.items() if g in means]
        yield curves(points, section.styles, *axes, slug, title, note, levels=levels)


def _side_by_side(section: Section, rebuilt: pd.DataFrame, end: str, drawn: set[tuple[Path, str]]) -> Iterator[Figure]:
    """The pictures that the attack with the least error rebuilt, a line a setting, below the true ones."""
    if "mse" not in rebuilt or (answers := rebuilt[(rebuilt.guess == "") & rebuilt.mse.notna()]).empty:
        return
    attack = str(answers.groupby("attack", sort=False).mse.mean().idxmin())
    answers = answers[answers.attack == attack]
    firsts = section.runs[section.runs.setting.isin(answers.setting)].drop_duplicates("setting")[:24]
    pairs = {place: pair for place, run in firsts.run.items() if (pair := _pictures_of(run, attack))}
    if pairs:
        means, lines = answers.set_index("run"), [("true", mosaic([next(iter(pairs.values()))[1][:_ACROSS]]))]
        for place, (key, _, answer) in pairs.items():
            drawn.add((firsts.run[place].folder, key))
            facts = [said.format(v) for name, said in _SAID.items() if name in means and (v := means[name][place]) == v]
            said = ": ".join([firsts.setting[place], *filter(None, [", ".join(facts)])])
            lines.append((said, mosaic([answer[:_ACROSS]])))
        said = f"True pictures, and below them the same as {attack} rebuilt them from {'; '.join(firsts.setting[[*pairs]])}."
        title, note = f"Rebuilt pictures: {attack}", "Identified by chance: 5 %." * ("identified" in means)
        yield picture_figure(lines, f"{section.slug}_inversion_{slugged(attack)}_pictures{end}", title, note, said)


# Pictures and tables


def rebuilt_figures(section: Section, odd: list[Oddity], drawn: Collection[tuple[Path, str]] = ()) -> list[Figure]:
    """A figure for each of the first settings whose runs rebuilt data, of its first run. odd: takes what can't be read.

    drawn: (folder, key of the arrays) of what another figure shows.
    """
    made, seen = list[Figure](), set[str]()
    for setting, run in zip(section.runs.setting, section.runs.run, strict=True):
        if setting not in seen and len(made) < MOST_FIGURES:
            try:
                pairs = dict(_pairs(run))
            except (OSError, UserError) as error:
                odd.append(Oddity("unreadable", run.folder / RECONSTRUCTIONS, cleaned(getattr(error, "problem", error))))
                continue
            seen.update([setting] * bool(pairs))
            others = {key: both for key, both in pairs.items() if (run.folder, key) not in drawn}
            made += rebuilt_figure(others, f"{section.slug}_rebuilt_{len(made) + 1}", setting)
    return made


def rebuilt_figure(pairs: Mapping[str, _Pair], slug: str, name: str) -> Iterator[Figure]:
    """Of a run's reconstructions.npz: a part for each attack and party (`_pairs`), if there is anything to show.

    Pictures, (n, height, width) or (n, height, width, channels), are in lines of ten, the true ones above the rebuilt ones.
    A table (n, columns) is shown as two pictures side by side.
    """
    lines = []
    for key, both in list(pairs.items())[:_MOST_PAIRS]:
        attack, party, layer = [*key.split("/"), "", ""][:3]
        said, image = tables_of(*both) if both[0].ndim == 2 else ("the rebuilt ones are below the true ones", None)
        starts = range(0, min(len(both[0]), _MOST_PICTURES), _ACROSS)
        image = image or mosaic([of[start : start + _ACROSS] for start in starts for of in both])
        lines.append((f"{attack}: party {party}, {layer}; {said}", image))
    left_out = len(pairs) - len(lines)
    note = f"Of one run; at most 20 pictures or 40 rows of each.{f' {left_out} more are in its file.' * bool(left_out)}"
    said = f"True data beside what attacks rebuilt of it: {', '.join(pairs)}."
    if lines:
        yield picture_figure(lines, slug, f"Rebuilt data: {name}", note, said)


def _pictures_of(run: Run, attack: str) -> tuple[str, np.ndarray, np.ndarray] | None:
    """The key of the true and the rebuilt pictures of a run, and these; of whole pictures if there are any."""
    with suppress(OSError, UserError):  # what can't be read is named where all rebuilt data are drawn
        pairs = [(name, *pair) for name, pair in _pairs(run) if name.startswith(f"{attack}/") and pair[0].ndim > 2]
        return pairs[-1] if pairs else None
    return None


def _pairs(run: Run) -> Iterator[tuple[str, _Pair]]:
    """`attack/party/layer`, truth and answer; only of the same shape, and such as can be shown."""
    try:
        arrays = read_pictures(run.folder / RECONSTRUCTIONS)
    except FileNotFoundError:
        return
    for name in sorted(arrays):
        key, _, part = name.rpartition("/")
        truth, answer = arrays[name], arrays.get(f"{key}/answer")
        if part != "truth" or answer is None or truth.shape != answer.shape or truth.ndim not in (2, 3, 4) or not truth.size:
            continue
        if max(truth.shape[1:3]) <= (1_000 if truth.ndim == 2 else 256):  # columns of a table, pixels of a picture
            yield key, (truth, answer)


def picture_figure(lines: Sequence[tuple[str, Image.Image]], slug: str, title: str, note: str, alt_text: str) -> Figure:
    """Pictures below each other, each under its text; 340 pixels wide, as it should be on a telephone too.

    The pictures are twice as large as they are shown.
    """
    charts = []
    for place, (said, image) in enumerate(lines):
        head = alt.Title(textwrap.wrap(text(said), _LETTERS), fontSize=12, offset=4)
        size: dict[str, Any] = {"width": image.width / 2, "height": image.height / 2}
        base = alt.Chart(alt.NamedData("pictures"), title=head, width=_WIDE, height=image.height / 2)
        base = base.transform_filter(f"datum.place == {place}").encode(x=alt.value(0), y=alt.value(0), url="url:N")
        charts.append(base.mark_image(align="left", baseline="top", aspect=False, **size))
    pictures = pd.DataFrame({"place": range(len(lines)), "url": [data_url(image) for _, image in lines]})
    return finished_chart(alt.vconcat(*charts, spacing=10), {"pictures": pictures}, slug, title, note, alt_text)


def mosaic(lines: Sequence[np.ndarray]) -> Image.Image:
    """Lines of pictures, of white at 1 and black at 0; nan is grey.

    lines: (n, height, width) or (n, height, width, channels) each, of one height and width.
    """
    tall = round(_SIDE * lines[0].shape[1] / lines[0].shape[2])
    made = Image.new("RGBA", (2 * ((_SIDE + _GAP) * max(map(len, lines)) - _GAP), 2 * ((tall + _GAP) * len(lines) - _GAP)))
    for row, pictures in enumerate(lines):
        for column, picture in enumerate(pictures):
            at = 2 * column * (_SIDE + _GAP), 2 * row * (tall + _GAP)
            made.paste(image_of(picture, 2 * _SIDE, 2 * tall), at)
    return made


def tables_of(truth: np.ndarray, answer: np.ndarray) -> tuple[str, Image.Image]:
    """A table beside what was rebuilt of it, of black at 1; entries wrong by 0.5 or more are crossed out."""
    truth, answer = truth[:_MOST_ROWS].astype(float), answer[:_MOST_ROWS].astype(float)
    is_wrong = ~(np.abs(truth - answer) < 0.5)  # nan is wrong as well
    wide, tall = _WIDE - 16, len(truth) * round(min(24.0, max(8.0, 240 / len(truth))))
    both = Image.new("RGBA", (2 * _WIDE, tall))
    for x, table in ((0, truth), (_WIDE + 16, answer)):
        both.paste(image_of(1 - table, wide, tall), (x, 0))
    pen, across, down = ImageDraw.Draw(both), wide / truth.shape[1], tall / len(truth)
    for row, column in zip(*is_wrong.nonzero(), strict=True):
        x, y, r = _WIDE + 16 + (column + 0.5) * across, (row + 0.5) * down, min(across, down, 14) / 2 - 1
        pen.line([x - r, y - r, x + r, y + r], fill="#d55e00", width=3)
        pen.line([x - r, y + r, x + r, y - r], fill="#d55e00", width=3)
    said = f"{is_wrong.sum()} of {is_wrong.size} wrong" if is_wrong.any() else "all right"
    return f"true, and beside it rebuilt: {said}", both


def image_of(values: np.ndarray, wide: int, tall: int) -> Image.Image:
    """(height, width) or (height, width, channels) as squares, which no viewer makes smooth."""
    values = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.5)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values.mean(axis=2)
    shades = np.round(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(shades).resize((wide, tall), Image.Resampling.NEAREST)


def data_url(image: Image.Image) -> str:
    content = io.BytesIO()
    image.save(content, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def read_pictures(path: Path) -> dict[str, np.ndarray]:
    """reconstructions.npz: name -> array of numbers or booleans; nothing is unpickled. Raises what `read_bytes` does."""
    content = read_bytes(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if archive[name].dtype.kind in "biuf"}
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds, tokenize.TokenError among them
        raise Unreadable(path, error) from error
