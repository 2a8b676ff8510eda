"""Figures that a section has because of what was run: heat maps of many attacks, solvers, rebuilt data side by side."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vflbench.errors import UserError
from vflbench.numerics.interval import OverRuns
from vflbench.report.comparison import Line, lines
from vflbench.report.figure import Figure
from vflbench.report.gains import attacks_of, gain_of
from vflbench.report.groups import Group
from vflbench.report.matrix import ceiling, columns_of, is_matrix, ordered, readings_of, strongest
from vflbench.report.sections import Section
from vflbench.report.solver_tables import families as solver_families
from vflbench.results.levels import LEVELS, REFERENCE
from vflbench.results.runs import Run
from vflbench.results.table_formats import text_of

_LEAST_SETTINGS, _MOST_SETTINGS = 2, 60
PICTURES = "inversion_pictures"
_DATA = ("dataset",)


def extra_figures(section: Section) -> list[Figure]:
    """Their slugs begin with the section's. Files that can't be read are left out: `rebuilt_figures` lists them."""
    made = []
    for draw in (_matrix, _gains, _solvers, _side_by_side, _picture_table):
        made += [replace(figure, slug=f"{section.slug}_{figure.slug}") for figure in _drawn(draw, section)]
    return made


def _drawn(draw: Callable[[Section], Iterator[Figure]], section: Section) -> list[Figure]:
    try:
        return list(draw(section))
    except (OSError, UserError):  # a file with pictures
        return []


def _matrix(section: Section) -> Iterator[Figure]:
    """Every attack under every defense; the strongest of each level at the right."""
    if not is_matrix(section):
        return
    from vflbench.report.heat_map import Cell, Columns, HeatMap, heat_map_figure

    keys, groups = columns_of(section.runs), ordered(section)
    read = {id(g): readings_of(g, keys) for g in groups}
    levels = [level for level in LEVELS if any(key[0] == level for key in keys)]

    def cell(name: str, group: Group, value: OverRuns, tag: str = "") -> Cell:
        return Cell(value.mean, f"{group.name}\n{name}: {text_of(value)}\n{group.count}", tag)

    columns = [
        Columns(
            level,
            tuple(key[1] for key in keys if key[0] == level),
            tuple(tuple(cell(key[1], g, read[id(g)][key]) for g in groups) for key in keys if key[0] == level),
        )
        for level in (*levels, REFERENCE)
        if any(key[0] == level for key in keys)
    ]
    best = {level: [strongest(read[id(g)], level) for g in groups] for level in levels}
    cells = tuple(
        tuple(cell(str(name), g, value, name or "") for g, (name, value) in zip(groups, best[level], strict=True))
        for level in levels
    )
    columns.append(Columns("strongest", tuple(levels), cells))
    utility = tuple(f"{g.interval(section.utility, section.layer).mean:.3f}" for g in groups)
    ceilings = _ceilings(groups)
    facts = (
        (section.utility.replace("_", " ").replace("auc", "AUC"), utility),
        *([("ceiling", ceilings)] if any(ceilings) else []),
    )
    note = (
        "Two-sided leak AUC of each attack, at the visible layer where it is largest: mean over seeds. 0.5 is a coin, 1 "
        "reads every label. A ceiling bounds what messages add about a label, and not what features predict. References are "
        "no attacks."
    )
    title = "Every attack against every defense"
    yield heat_map_figure(HeatMap(title, note, tuple(g.name for g in groups), facts, tuple(columns)), "matrix")


def _ceilings(groups: Sequence[Group]) -> tuple[str, ...]:
    values = [ceiling(g.runs) for g in groups]
    return tuple("" if v is None else v if isinstance(v, str) else f"{v:.3f}" for v in values)


def _gains(section: Section) -> Iterator[Figure]:
    """What every attack on features closes of the best guess's error."""
    attacks = attacks_of(section) if _LEAST_SETTINGS <= len(section.groups) <= _MOST_SETTINGS else []
    if not attacks:
        return
    from vflbench.report.heat_map import Cell, Columns, HeatMap, heat_map_figure

    def cell(attack: str, group: Group) -> Cell:
        value = gain_of(group, attack)
        return Cell(value.mean, f"{group.name}\n{attack}: {text_of(value)}\n{group.count}")

    groups = [g for g in section.groups if any(not math.isnan(gain_of(g, attack).mean) for attack in attacks)]
    columns = Columns("attacks", tuple(attacks), tuple(tuple(cell(attack, g) for g in groups) for attack in attacks))
    utility = tuple(text_of(g.interval(section.utility, section.layer).mean) for g in groups)
    note = (
        "The share of the best guess's error that each attack removes, mean over seeds: 1 rebuilds exactly, 0 or less is no "
        "better than guessing."
    )
    facts = ((section.utility.replace("_", " ").replace("auc", "AUC"), utility),)
    drawn = HeatMap("Rebuilt beyond the best guess", note, tuple(g.name for g in groups), facts, (columns,), low=0.0)
    yield heat_map_figure(drawn, "gains")


def _solvers(section: Section) -> Iterator[Figure]:
    """Seconds by rows and columns of a batch."""
    made = solver_families(section)
    for place, (_, groups) in enumerate(made):
        from vflbench.report.solver_figures import draw_cells
        from vflbench.report.solver_times import cells_of

        cells = cells_of([run for g in groups for run in g.runs])
        figure = draw_cells(cells) if cells else None
        if figure is not None:
            yield replace(figure, slug="solvers" + (f"_{place + 1}" if len(made) > 1 else ""))


def _side_by_side(section: Section) -> Iterator[Figure]:
    """Runs that rebuilt data: every quantity by mechanism, and the strongest attack against bits and utility."""
    groups = [g for g in section.groups if any(run.summary.get("reconstructions") for run in g.runs)]
    made = [of for of in _of_one_data(groups) if _LEAST_SETTINGS <= len(of) <= _MOST_SETTINGS]
    for place, members in enumerate(made):
        from vflbench.report.inversion import FIGURES, rebuilt, strongest
        from vflbench.report.inversion_figures import draw_inversion
        from vflbench.report.recovery import draw_recovery

        runs = [run for g in members for run in g.runs]
        keys = section.by or tuple(dict.fromkeys(key for g in members for key in g.options if not key.startswith("attack")))
        table: list[Line] = lines(runs, keys)
        attack = strongest(runs)
        there = [f for f in ("ssim", *FIGURES) if any(not math.isnan(rebuilt(run, attack, f)) for run in runs)]
        figures = [*draw_recovery(table, keys), *(draw_inversion(table, keys, attack, there[0]) if there else ())]
        for figure in figures:
            yield replace(figure, slug=figure.slug + (f"_{place + 1}" if len(made) > 1 else ""))


def _of_one_data(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups of the same rows, for which guesses without messages are the same too."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        found.setdefault(json.dumps([g.config.get(key) for key in _DATA] + [g.made_by], default=str), []).append(g)
    return list(found.values())


def _picture_table(section: Section) -> Iterator[Figure]:
    """The same pictures of the first seed by depth, levels and noise."""
    from vflbench.report.inversion import strongest
    from vflbench.report.picture_table import PictureTable, draw_picture_table

    runs: list[Run] = [run for run in section.runs if section.experiment == PICTURES and run.summary.get("reconstructions")]
    if not runs:
        return
    first = min((run.seed for run in runs), key=str)
    of_first = [run for run in runs if run.seed == first]
    try:
        yield draw_picture_table(PictureTable.of(of_first, strongest(of_first)))
    except (ValueError, TypeError):  # runs that a user changed, which don't fit in one table
        return
