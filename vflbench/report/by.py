"""`vflbench report --by KEY`: the runs along the values of options, as tables for the page and lines for the terminal."""

import difflib
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from vflbench.errors import UserError
from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import over_runs
from vflbench.report.comparison import Line, lines, option_value
from vflbench.report.data_parts import data_parts
from vflbench.report.groups import flatten
from vflbench.report.option_words import short
from vflbench.report.option_words import shown as in_short
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.provenance import essential
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table, text_of
from vflbench.results.untrusted import shown

WIDTH = 80
_CHOSEN = ("dataset", "defense", "attack", "adversary")
_MOST_NAMED = 12
_FEW = 10  # characters to which other columns are cut first
_MOST_PRINTED = 40  # lines of a table


def resolved(runs: Sequence[Run], wanted: Sequence[str]) -> tuple[str, ...]:
    """The dotted keys that a user means, who may give the last parts alone: `sumkl`.

    Raises UserError for a key that no run has, or several, and where no key has two values in any section.
    """
    keys = tuple(dict.fromkeys(_resolved(runs, key) for key in wanted))
    if runs and keys and not any(_varies(part, key) for _, _, part in data_parts(runs) for key in keys):
        values = dict.fromkeys(value_text(option_value(run, keys[0])) or "not there" for run in runs)
        where = "all runs" if len(values) == 1 else "all runs of each data set and experiment, which share no table"
        it_is = f"it is {next(iter(values))} in {where}" if len(values) == 1 else f"it has one value in {where}"
        raise UserError(f"{it_is}, so there is nothing to compare{_varying(runs)}", key="--by", value=",".join(keys))
    return keys


def _resolved(runs: Sequence[Run], key: str) -> str:
    if key == "seed":
        problem = f"runs that differ in nothing but the seed are averaged; choose another option{_varying(runs)}"
        raise UserError(problem, key="--by", value=key)
    there = dict.fromkeys(name for run in runs for name in _keys(run))
    if key in there or key in _CHOSEN:
        return key
    meant = [name for name in there if name.endswith(f".{key}")]
    vary = [name for name in meant if _varies(runs, name)]
    if len(vary or meant) == 1:
        return (vary or meant)[0]
    if meant:
        raise UserError(
            f"it may be {' or '.join((vary or meant)[:_MOST_NAMED])}; write the whole key", key="--by", value=key
        )
    near = difflib.get_close_matches(key, [*there, *(short(name) for name in there)], 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"no run has this option{hint}{_varying(runs)}", key="--by", value=key)


def _keys(run: Run) -> list[str]:
    """The dotted keys of all options and groups of options."""
    leaves = [key for key in flatten(essential(run.config)) if key != "seed"]
    heads = [".".join(parts[:n]) for key in leaves for parts in [key.split(".")] for n in range(1, len(parts))]
    return list(dict.fromkeys([*leaves, *heads]))


def _varies(runs: Sequence[Run], key: str) -> bool:
    return len({value_text(option_value(run, key)) for run in runs}) > 1


def _varies_where_it_is(runs: Sequence[Run], key: str) -> bool:
    """As `_varies`, of the runs that have the option: what comes with another choice was set by nobody."""
    if not key.startswith(tuple(f"{group}." for group in _CHOSEN)):
        return _varies(runs, key)
    return len({value_text(value) for run in runs if (value := option_value(run, key)) is not None}) > 1


def _varying(runs: Sequence[Run]) -> str:
    """The end of an error: the options that vary."""
    leaves = dict.fromkeys(key for run in runs for key in flatten(essential(run.config)))
    names = [key for key in leaves if key != "seed" and not key.endswith("_target_")]
    parts = [part for _, _, part in data_parts(runs)]
    chosen = [group for group in _CHOSEN if any(_varies(part, group) for part in parts)]
    options = [key for key in names if any(_varies_where_it_is(part, key) for part in parts)]
    vary = list(dict.fromkeys([*chosen, *options]))
    if not vary:
        return "; no option varies between runs of one data set and experiment"
    return f"; these vary: {', '.join(vary[:_MOST_NAMED])}{' and more' if len(vary) > _MOST_NAMED else ''}"


def value_text(value: Any) -> str:
    """An option's value in a cell."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return in_short(value)


def by_tables(section: Section) -> list[Table]:
    """Those along the keys of the section; none where it has no keys or they don't vary in it."""
    if not any(_varies(section.runs, key) for key in section.by):
        return []
    table = lines(section.runs, section.by)
    return [made for made in (by_table(section, table), rebuilt_table(section, table)) if made.rows]


def by_table(section: Section, table: Sequence[Line]) -> Table:
    """A line for each value: utility, the worst leak, and each attack's."""
    utility, leak, layer = section.utility, section.leak if section.y not in quantity.LEAKS else section.y, section.layer
    attacks = section.attacks() if leak in quantity.LEAKS else []
    references = list(dict.fromkeys(a for run in section.runs for a in quantity.by_attack(run, reference=True)))
    references = [attack for attack in references if attack not in attacks] if attacks else []
    rows = []
    for line in table:
        of_attacks = {attack: _over(line, f"{leak}:{attack}", layer) for attack in attacks}
        known = {attack: value for attack, value in of_attacks.items() if not math.isnan(value.mean)}
        worst = max(known, key=lambda attack: known[attack].mean, default=None)
        value = known[worst] if worst else _over(line, leak, layer) if leak not in quantity.LEAKS else None
        head = [*map(value_text, line.options), line.defense, len(line.runs)]
        beside = [_over(line, f"{leak}:{attack}", layer) for attack in references]
        rows.append([*head, _over(line, utility, layer), value, worst, *of_attacks.values(), *beside])
    if all(row[len(section.by) + 3] is None for row in rows) and all(
        math.isnan(row[len(section.by) + 2].mean) for row in rows
    ):
        return Table(f"{section.slug}_by", "", (), [])
    columns = (
        *(*section.by, "defense", "runs", quantity.title(utility)),
        *(section.titled(leak, plain=True), "worst attack", *attacks),
        *(f"{attack}, reference" for attack in references),
    )
    note = (
        f"A line has the runs that differ in nothing but the seed: mean (95 % t-interval over seeds). Leaks {section.where}."
    )
    return Table(f"{section.slug}_by", f"By {' and '.join(map(short, section.by))}", columns, rows, note)


def rebuilt_table(section: Section, table: Sequence[Line]) -> Table:
    """A line for each value and attack that rebuilt data: bits that cross, utility and the figures of what was rebuilt."""
    slug = f"{section.slug}_rebuilt_by"
    if not any(run.summary.get("reconstructions") for run in section.runs):
        return Table(slug, "", (), [])
    from vflbench.report.inversion import FIGURES, attacks_that_rebuild, beats_every_guess, bits_per_row, rebuilt

    attacks = attacks_that_rebuild(section.runs)
    figures = [f for f in FIGURES if any(not math.isnan(rebuilt(run, a, f)) for run in section.runs for a in attacks)]
    rows = []
    for line in table:
        for attack in attacks_that_rebuild(line.runs):
            values = [over_runs(map(partial(rebuilt, attack=attack, figure=f), line.runs), range_of(f)) for f in figures]
            beats = [beats_every_guess(run, attack) for run in line.runs]
            won = f"{beats.count(True)} of {len(beats)}" if any(answer is not None for answer in beats) else None
            bits = over_runs(map(bits_per_row, line.runs)).mean
            head = [*map(value_text, line.options), line.defense, attack, len(line.runs)]
            rows.append([*head, bits, _over(line, section.utility, section.layer), *values, won])
    columns = (
        *(*section.by, "defense", "attack", "runs", "bits a row", quantity.title(section.utility)),
        *(*(name.replace("_", " ") for name in figures), "beats every guess"),
    )
    note = (
        "Of the last epoch, from messages: whole pictures where there are any, else the mean over the parties. Bits a row: "
        "of embeddings, to the label party, per training row and epoch. Beats every guess: the runs in which the attack "
        "does better than each guess without messages; the table of reconstructions has their figures."
    )
    return Table(slug, f"Rebuilt, by {' and '.join(map(short, section.by))}", columns, rows, note)


def _over(line: Line, name: str, layer: str | None) -> Any:
    return over_runs((quantity.value(run, name, layer) for run in line.runs), range_of(name))


def printed(section: Section) -> list[str]:
    """The tables in at most WIDTH columns: their first columns, means alone."""
    texts = [section.title] if (made := by_tables(section)) else []
    for table in made:
        keep = len(section.by) + (5 if table.slug.endswith("_rebuilt_by") else 4) + 1
        if table.slug.endswith("_rebuilt_by"):
            texts.append("rebuilt data:")
        cells = [[short(shown(name)) for name in table.columns[:keep]]]
        cells += [[_short_text(cell) for cell in row[:keep]] for row in table.rows[:_MOST_PRINTED]]
        texts += aligned(cells, spared=len(section.by))
        left = len(table.rows) - _MOST_PRINTED
        texts += [f"and {left} more lines on the page"] if left > 0 else []
    return texts


def _short_text(cell: Any) -> str:
    if cell is None or isinstance(cell, str):
        return shown(cell or "-", 60)
    return text_of(getattr(cell, "mean", cell))


def aligned(rows: Sequence[Sequence[str]], width: int = WIDTH, *, spared: int | None = None) -> list[str]:
    """Lines of at most so many characters: the widest columns are cut until all fit.

    spared: a column that tells the lines apart: it is cut only where the others have few characters left.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(sizes) + 2 * (len(sizes) - 1) > width and max(sizes) > 4:
        others = [size for j, size in enumerate(sizes) if j != spared]
        cut = max(others) if max(others, default=0) > _FEW else max(sizes)
        sizes[next(j for j, size in enumerate(sizes) if size == cut and (j != spared or cut not in others))] -= 1
    return ["  ".join(_fit(cell, size) for cell, size in zip(row, sizes, strict=True)).rstrip()[:width] for row in rows]


def _fit(text: str, size: int) -> str:
    return (text if len(text) <= size else f"{text[: size - 1]}…").ljust(size)
