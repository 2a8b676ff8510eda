"""`vflbench report`: reads folders of outputs, writes one page, its tables and its figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflbench.errors import UserError
from vflbench.report import charts, group
from vflbench.report.charts import files
from vflbench.report.experiments import experiment_figures
from vflbench.report.facts import facts, threats
from vflbench.report.guarded import without_bad_runs
from vflbench.report.output import Output
from vflbench.report.page_tables import Reading, on_page
from vflbench.report.page_text import breakable, coded
from vflbench.report.pictures import figures as rebuilt_figures
from vflbench.report.published import PublishedExperiment, published_table, read_experiments, scale_of
from vflbench.report.section_tables import dcs_sentence, tables
from vflbench.report.sections import Section, Wishes, relative, sections
from vflbench.report.verdict_table import alarms, verdicts
from vflbench.report.words import defense_sentences, remarks
from vflbench.results.files import PAGE_MARK
from vflbench.results.runs import Oddity, Run
from vflbench.results.table_formats import Table
from vflbench.results.tree import Tree, read_tree
from vflbench.results.untrusted import shown

__all__ = ["Wishes", "write_report"]

_OPEN = (
    "verdicts",
    "by",
    "rebuilt_by",
    "matrix",
    "known_labels",
    "price",
    "gains",
    "alarms",
    "solvers",
    "headlines",
    "settings",
    "honest",
    "differences",
    "published",
    "reconstructions",
)
"""Tables that are open on the page; the others are folded."""
_MOST_TEXT = 4_000  # characters of a sentence
_KINDS = {
    "failed": "Failed runs",
    "half-written": "Half-written runs",
    "unreadable": "Runs that can't be read",
    "repeated": "Runs that are there twice",
    "recording": "Recorded messages",
    "foreign": "Files of no run",
}


def write_report(folders: Sequence[Path], out: Path, wishes: Wishes | None = None, tree: Tree | None = None) -> Path:
    """Write `out`/report.html, `out`/tables/*.csv, .md and .tex, figures in `out`/figures. Returns the page's path.

    folders: with runs in or under them. tree: what was read from them, if it was; the runs that can't be shown are moved to
    its odd ones. Raises UserError if there is nothing to report on.
    """
    wishes = wishes or Wishes()
    for folder in folders:
        if not folder.is_dir():
            raise UserError("there is no such folder", key="report", value=folder)
    tree = tree or read_tree(folders)
    if not tree.runs and not [odd for odd in tree.odd if odd.kind != "foreign"]:
        raise UserError("there is no run in or under it", key="report", value=", ".join(map(str, folders)))
    experiments = read_experiments(names={run.experiment for run in tree.runs})

    def parts_of(runs: Sequence[Run]) -> list[_Part]:
        odd.clear()
        return [_part(section, experiments.get(section.experiment), odd) for section in sections(runs, wishes)]

    odd: list[Oddity] = []
    parts, tree.runs, bad = without_bad_runs(tree.runs, parts_of)
    tree.odd += [*bad, *odd]
    others = _odd_tables(tree, folders)
    output = _made(out)
    for part in parts:
        _write_tables(part.tables, output)
        for figure in part.figures if wishes.formats else ():
            for name, content in files(figure, wishes.formats):
                output.write(name, content, "figures")
    _write_tables(others, output)
    return output.write(wishes.page, _page(tree, parts, others, wishes))


def _made(out: Path) -> Output:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"it can't be made: {error.strerror}", key="--out", value=out) from error
    return Output(out)


@dataclass(frozen=True)
class _Part:
    """What a section comes to. shown: for the page."""

    shown: dict[str, Any]
    tables: list[Table]
    figures: list[charts.Figure]


def _part(section: Section, experiment: PublishedExperiment | None, odd: list[Oddity]) -> _Part:
    published = [published_table(section, experiment)] if experiment is not None else []
    made = tables(section, *published)
    several = len(section.groups) > 1
    how = {"x": section.x, "y": section.y, "layer": section.layer or "cut", "by": section.by}
    drawn = []
    for of in group.sections(section.runs, **how):
        drawn += [*charts.charts(of), *experiment_figures(of), *rebuilt_figures(of, odd)]
    first = 1 if several else len(drawn)  # so many stand before the tables
    shown_part = {
        "title": shown(section.title),
        "slug": section.slug,
        "experiment": experiment and {"does": experiment.does, "source": experiment.source, "note": experiment.note},
        "scale": shown(scale_of(section)),
        "facts": facts(section),
        "threats": threats(section),
        "sentences": [(shown(name), shown(text, _MOST_TEXT)) for name, text in defense_sentences(section)],
        "remarks": [shown(line, _MOST_TEXT) for line in remarks(section)],
        "alarms": [(shown(line, _MOST_TEXT), is_alarm) for line, is_alarm in alarms(section)],
        "first": [charts.on_page(figure) for figure in drawn[:first]],
        "charts": [charts.on_page(figure) for figure in drawn[first:]],
        "is_open": {table.slug: _is_open(table, section) for table in made},
    }
    return _Part(shown_part, made, drawn)


def _is_open(table: Table, section: Section) -> bool:
    """Of a single setting the verdict says what `Headline numbers` and `Settings` say."""
    name = table.slug.removeprefix(f"{section.slug}_")
    return name in _OPEN and (len(section.groups) > 1 or name not in ("headlines", "settings") or not verdicts(section).rows)


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


def _page(tree: Tree, parts: Sequence[_Part], odd: Sequence[Table], wishes: Wishes) -> str:
    reading = Reading()
    environment = Environment(
        loader=PackageLoader("vflbench.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": breakable, "coded": coded}
    style = environment.get_template("figures.css").render() + environment.get_template("page.css").render()
    script = environment.get_template("page.js").render()
    has_figures = any(part.figures for part in parts)
    figure_scripts = [charts.library(), environment.get_template("figures.js").render()] * has_figures
    return environment.get_template("page.html").render(
        policy=_policy(style, script, *figure_scripts),
        style=Markup(style),  # nosec B704  # ours, as the next two
        script=Markup(script),  # nosec B704
        figure_scripts=[Markup(text) for text in figure_scripts],  # nosec B704
        mark=Markup(PAGE_MARK),  # nosec B704
        title=wishes.title,
        notes=wishes.notes,
        gates=wishes.gates,
        sections=[part.shown | {"tables": [on_page(table, reading) for table in part.tables]} for part in parts],
        odd=[on_page(table, reading) for table in odd],
        reading=reading.notes(),
        counts={kind: len(tree.of_kind(kind)) for kind in _KINDS},
        runs=len(tree.runs),
        audits=bool(tree.runs) and all(run.is_audit for run in tree.runs),
        dcs=dcs_sentence(),
    )


def _policy(style: str, *scripts: str) -> str:
    """What a browser lets the page do: nothing but its own style, its own scripts and pictures that are in it.

    Whatever else looks like a script in it doesn't run, and nothing is loaded or sent.
    """
    allowed = (
        "default-src 'none'",
        "img-src data:",
        f"style-src {charts.digest(style)}",
        f"script-src {' '.join(map(charts.digest, scripts))}",
    )
    return "; ".join((*allowed, "base-uri 'none'", "form-action 'none'"))
