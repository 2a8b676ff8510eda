"""`vflbench report`: reads folders of outputs, writes one page, its tables and its figures."""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflbench.errors import UserError
from vflbench.results.files import PAGE_MARK
from vflbench.results.report.chart import Chart
from vflbench.results.report.facts import facts, threats
from vflbench.results.report.guarded import without_bad_runs
from vflbench.results.report.output import Output
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
from vflbench.results.runs import Oddity, Run
from vflbench.results.untrusted import shown

__all__ = ["Wishes", "write_report"]

_OPEN = ("verdicts", "headlines", "settings", "honest", "differences", "published", "reconstructions")
"""Tables that are open on the page; the others are folded."""
_ON_PAGE, _WIDE = 400, 100  # lines and columns of a table; its files have all
_MOST_TEXT = 4_000  # characters of a sentence
_KINDS = {
    "failed": "Failed runs",
    "half-written": "Half-written runs",
    "unreadable": "Runs that can't be read",
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

    def parts_of(runs: Sequence[Run]) -> list[_Part]:
        pictures = Pictures()
        made = [_part(section, experiments.get(section.experiment), pictures) for section in sections(runs, wishes)]
        odd[:] = pictures.odd
        return made

    odd: list[Oddity] = []
    parts, tree.runs, bad = without_bad_runs(tree.runs, parts_of)
    tree.odd += [*bad, *odd]
    others = _odd_tables(tree, folders)
    output = _made(out)
    for part in parts:
        _write_tables(part.tables, output)
        for name, content in part.figures.items():
            output.write(name, content, "figures")
    _write_tables(others, output)
    return output.write(wishes.page, _page(tree, [part.shown for part in parts], others, wishes))


def _made(out: Path) -> Output:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"it can't be made: {error.strerror}", key="--out", value=out) from error
    return Output(out)


@dataclass(frozen=True)
class _Part:
    """What a section comes to. shown: for the page. figures: by the names of their files."""

    shown: dict[str, Any]
    tables: list[Table]
    figures: Mapping[str, str | bytes]


def _part(section: Section, experiment: PublishedExperiment | None, pictures: Pictures) -> _Part:
    published = [published_table(section, experiment)] if experiment is not None else []
    made = tables(section, *published)
    drawn = charts(section)
    shown_part = {
        "title": shown(section.title),
        "slug": section.slug,
        "experiment": experiment and {"does": experiment.does, "source": experiment.source, "note": experiment.note},
        "scale": shown(scale_of(section)),
        "facts": facts(section),
        "threats": threats(section),
        "verdict": [shown(line, _MOST_TEXT) for line in section_verdict(section)],
        "alarms": [(shown(line, _MOST_TEXT), is_alarm) for line, is_alarm in alarms(section)],
        "charts": [{"svg": _drawn(c), "note": shown(c.note, _MOST_TEXT), "slug": c.slug} for c in drawn],
        "tables": [_cells(table) for table in made if _is_open(table, section)],
        "folded": [_cells(table) for table in made if not _is_open(table, section)],
        "pictures": pictures.of([run.folder for run in section.runs], [g.name for g in section.groups for _ in g.runs]),
    }
    figures: dict[str, str | bytes] = {}
    for chart in drawn:
        figures[f"{chart.slug}.svg"] = svg(chart, standalone=True)
        picture = io.BytesIO()
        write_png(chart, picture)
        figures[f"{chart.slug}.png"] = picture.getvalue()
    return _Part(shown_part, made, figures)


def _is_open(table: Table, section: Section) -> bool:
    return table.slug.removeprefix(f"{section.slug}_") in _OPEN


def _cells(table: Table) -> dict[str, Any]:
    rows = [
        [{"text": text_of(c), "key": sort_key(c), "number": is_number(c)} for c in row[:_WIDE]]
        for row in table.rows[:_ON_PAGE]
    ]
    left, more = len(table.rows) - len(rows), len(table.columns) - _WIDE
    note = shown(table.note, _MOST_TEXT) + (f" {left} more lines are in tables/{table.slug}.csv." if left else "")
    note += f" {more} more columns are there." if more > 0 else ""
    columns = [shown(column) for column in table.columns[:_WIDE]]
    return {"slug": table.slug, "title": shown(table.title), "columns": columns, "rows": rows, "note": note} | {
        "count": len(table.rows)
    }


def _odd_tables(tree: Tree, folders: Sequence[Path]) -> list[Table]:
    made = []
    for kind, title in _KINDS.items():
        rows = [[shown(relative(odd.path, folders), 500), shown(odd.reason, 1000)] for odd in tree.of_kind(kind)]
        made.append(Table(kind.replace("-", "_"), title, ("where", "why"), rows))
    return [table for table in made if table.rows]


def _write_tables(made: Sequence[Table], output: Output) -> None:
    for table in made:
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            output.write(f"{table.slug}.{ending}", text, "tables")


def _drawn(chart: Chart) -> Markup:
    return Markup(svg(chart))  # nosec B704  # `svg` escapes every text in it


def _page(tree: Tree, parts: Sequence[dict[str, Any]], odd: Sequence[Table], wishes: Wishes) -> str:
    environment = Environment(
        loader=PackageLoader("vflbench.results.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = STYLE + environment.get_template("page.css").render()
    script = environment.get_template("page.js").render()
    return environment.get_template("page.html").render(
        policy=_policy(style, script),
        style=Markup(style),  # nosec B704  # ours, as the next two
        script=Markup(script),  # nosec B704
        mark=Markup(PAGE_MARK),  # nosec B704
        title=wishes.title,
        notes=wishes.notes,
        gates=wishes.gates,
        sections=parts,
        odd=[_cells(table) for table in odd],
        counts={kind: len(tree.of_kind(kind)) for kind in _KINDS},
        runs=len(tree.runs),
        audits=bool(tree.runs) and all(run.is_audit for run in tree.runs),
        dcs=dcs_sentence(),
    )


def _policy(style: str, script: str) -> str:
    """What a browser lets the page do: nothing but its own style, its own script and pictures that are in it.

    Whatever else looks like a script in it doesn't run, and nothing is loaded or sent.
    """
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    allowed = (
        "default-src 'none'",
        "img-src data:",
        f"style-src 'sha256-{digests[0]}'",
        f"script-src 'sha256-{digests[1]}'",
    )
    return "; ".join((*allowed, "base-uri 'none'", "form-action 'none'"))
