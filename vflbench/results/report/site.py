"""`vflbench report`: reads folders of outputs, writes one page, its tables and its figures."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflbench.errors import UserError
from vflbench.results.files import PAGE_MARK
from vflbench.results.report.chart import Chart
from vflbench.results.report.facts import facts, threats
from vflbench.results.report.pictures import Pictures
from vflbench.results.report.published import published_table, scale_of
from vflbench.results.report.raster import write_png
from vflbench.results.report.reproductions import PublishedExperiment, read_experiments
from vflbench.results.report.section_charts import charts
from vflbench.results.report.section_tables import dcs_sentence, tables
from vflbench.results.report.section_verdict import section_verdict
from vflbench.results.report.sections import Section, Wishes, relative, sections
from vflbench.results.report.svg import STYLE, svg
from vflbench.results.report.table_formats import Table, is_number, sort_key, text_of
from vflbench.results.report.tree import Tree, read_tree
from vflbench.results.report.verdict_table import alarms

__all__ = ["Wishes", "write_report"]

_OPEN = ("verdicts", "headlines", "settings", "honest", "differences", "published", "reconstructions")
"""Tables that are open on the page; the others are folded."""
_ON_PAGE = 400  # lines of a table; its files have all
_KINDS = {
    "failed": "Failed runs",
    "half-written": "Half-written runs",
    "repeated": "Runs that are there twice",
    "foreign": "Files of no run",
}


def write_report(folders: Sequence[Path], out: Path, wishes: Wishes | None = None) -> Path:
    """Write `out`/report.html, `out`/tables/*.csv, .md and .tex, `out`/figures/*.svg and .png. Returns the page's path.

    folders: with runs in or under them. Raises UserError if there is nothing to report on.
    """
    wishes = wishes or Wishes()
    for folder in folders:
        if not folder.is_dir():
            raise UserError("there is no such folder", key="report", value=folder)
    tree = read_tree(folders)
    if not tree.runs and not [odd for odd in tree.odd if odd.kind != "foreign"]:
        raise UserError("there is no run in or under it", key="report", value=", ".join(map(str, folders)))
    experiments = read_experiments()
    (out / "tables").mkdir(parents=True, exist_ok=True)
    (out / "figures").mkdir(exist_ok=True)
    pictures = Pictures()
    parts = [
        _section(section, experiments.get(section.experiment), out, pictures) for section in sections(tree.runs, wishes)
    ]
    odd = _odd_tables(tree, folders)
    _write_tables(odd, out)
    page = out / wishes.page
    page.write_text(_page(tree, parts, odd, wishes), encoding="utf-8")
    return page


def _section(section: Section, experiment: PublishedExperiment | None, out: Path, pictures: Pictures) -> dict[str, Any]:
    published = [published_table(section, experiment)] if experiment is not None else []
    made = tables(section, *published)
    drawn = charts(section)
    _write_tables(made, out)
    _write_figures(drawn, out)
    return {
        "title": section.title,
        "slug": section.slug,
        "experiment": experiment and {"does": experiment.does, "source": experiment.source, "note": experiment.note},
        "scale": scale_of(section),
        "facts": facts(section),
        "threats": threats(section),
        "verdict": section_verdict(section),
        "alarms": alarms(section),
        "charts": [{"svg": Markup(svg(chart)), "note": chart.note, "slug": chart.slug} for chart in drawn],
        "tables": [_cells(table) for table in made if _is_open(table, section)],
        "folded": [_cells(table) for table in made if not _is_open(table, section)],
        "pictures": pictures.of([run.folder for run in section.runs], [g.name for g in section.groups for _ in g.runs]),
    }


def _is_open(table: Table, section: Section) -> bool:
    return table.slug.removeprefix(f"{section.slug}_") in _OPEN


def _cells(table: Table) -> dict[str, Any]:
    rows = [[{"text": text_of(c), "key": sort_key(c), "number": is_number(c)} for c in row] for row in table.rows[:_ON_PAGE]]
    left = len(table.rows) - len(rows)
    note = f"{table.note} {left} more lines are in tables/{table.slug}.csv." if left else table.note
    return {**asdict(table), "rows": rows, "note": note, "count": len(table.rows)}


def _odd_tables(tree: Tree, folders: Sequence[Path]) -> list[Table]:
    made = []
    for kind, title in _KINDS.items():
        rows = [[relative(odd.path, folders), odd.reason] for odd in tree.of_kind(kind)]
        made.append(Table(kind.replace("-", "_"), title, ("where", "why"), rows))
    return [table for table in made if table.rows]


def _write_tables(made: Sequence[Table], out: Path) -> None:
    for table in made:
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            (out / "tables" / f"{table.slug}.{ending}").write_text(text, encoding="utf-8")


def _write_figures(drawn: Sequence[Chart], out: Path) -> None:
    for chart in drawn:
        (out / "figures" / f"{chart.slug}.svg").write_text(svg(chart, standalone=True), encoding="utf-8")
        write_png(chart, out / "figures" / f"{chart.slug}.png")


def _page(tree: Tree, parts: Sequence[dict[str, Any]], odd: Sequence[Table], wishes: Wishes) -> str:
    environment = Environment(
        loader=PackageLoader("vflbench.results.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        mark=Markup(PAGE_MARK),
        title=wishes.title,
        notes=wishes.notes,
        gates=wishes.gates,
        sections=parts,
        odd=[_cells(table) for table in odd],
        counts={kind: len(tree.of_kind(kind)) for kind in _KINDS},
        runs=len(tree.runs),
        audits=bool(tree.runs) and all(run.is_audit for run in tree.runs),
        chart_style=Markup(STYLE),
        dcs=dcs_sentence(),
    )
