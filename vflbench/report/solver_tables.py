"""Seconds that solvers take to rebuild a batch, by its rows and columns, beside the published seconds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.groups import Group, options_key
from vflbench.report.option_words import short
from vflbench.report.option_words import shown as in_short
from vflbench.report.sections import Section
from vflbench.results.table_formats import Table

EXPERIMENTS = ("quantification_table1", "quantification_programme")
_SIZE = ("dataset.rows", "dataset.features")
_FIGURE = "solver_seconds"


def families(section: Section) -> list[tuple[str, list[Group]]]:
    """(what distinguishes it, groups that differ in nothing but the size of a batch)."""
    found: dict[str, list[Group]] = {}
    for g in section.groups if section.experiment in EXPERIMENTS else ():
        config = {key: value for key, value in g.config.items() if key != "dataset"}
        dataset = g.config.get("dataset") or {}
        config["dataset"] = {key: value for key, value in dataset.items() if f"dataset.{key}" not in _SIZE}
        found.setdefault(f"{options_key(config, ('seed',))} {g.made_by}", []).append(g)
    names = [
        ", ".join(f"{short(k)} {in_short(v)}" for k, v in of[0].options.items() if k not in _SIZE) for of in found.values()
    ]
    return list(zip(names, found.values(), strict=True))


def solver_tables(section: Section) -> list[Table]:
    """A table for each family: a line per published or measured size of a batch."""
    made = families(section)
    return [
        _table(f"{section.slug}_solvers" + (f"_{place + 1}" if len(made) > 1 else ""), name, groups)
        for place, (name, groups) in enumerate(made)
    ]


def _table(slug: str, name: str, groups: Sequence[Group]) -> Table:
    from vflbench.report.solver_times import cells_of, published_cells

    cells = cells_of([run for g in groups for run in g.runs])
    if not cells:
        return Table(slug, "", (), [])
    published = published_cells()
    attacks = list(dict.fromkeys(attack for of_cell in cells.values() for attack in of_cell))
    rows = []
    for cell in sorted({*cells, *published}):
        said = published.get(cell)
        number = None if said is None else said.number if said.number is not None else said.mark
        line: list[Any] = [*cell, number]
        for attack in attacks:
            figures = cells.get(cell, {}).get(attack, {})
            line += [figures.get(_FIGURE), _ended(figures)]
        rows.append([*line, *_counts(cells.get(cell, {}))])
    columns = ["rows", "columns", "published s"]
    columns += [text for attack in attacks for text in (f"{attack} s", f"{attack}, ended")]
    note = (
        "Mean seconds of a search over the batches of a size, each batch with the same weight, and the share of searches "
        "that ended within their limit. Published: on another machine, with another solver; * where the paper gives no "
        "time, as several batches match. With a twin: the share of batches for which another batch matches."
    )
    title = "Seconds to rebuild a batch" + (f": {name}" if name else "")
    return Table(slug, title, (*columns, "batches that fit", "with a twin"), rows, note)


def _ended(figures: Mapping[str, float]) -> float | None:
    """Runs without this figure called it `proved`."""
    return figures.get("ended", figures.get("proved", 1.0)) if figures else None


def _counts(of_cell: Mapping[str, Mapping[str, float]]) -> list[Any]:
    """Mean number of batches that match, and the share of batches with another one; of searches that all ended."""
    ended = [figures for figures in of_cell.values() if "unique" in figures and _ended(figures) == 1]
    if not ended:
        return [math.nan, math.nan]
    return [max(figures.get("matches", 0.0) for figures in ended), 1 - max(figures["unique"] for figures in ended)]
