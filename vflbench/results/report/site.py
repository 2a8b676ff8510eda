"""`vflbench report`: reads folders of outputs, writes one page, its tables and its figures."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflbench.errors import UserError
from vflbench.results.report.chart import Chart
from vflbench.results.report.charts import charts
from vflbench.results.report.pictures import Pictures
from vflbench.results.report.published import published_table, scale_of
from vflbench.results.report.raster import write_png
from vflbench.results.report.reproductions import PublishedExperiment, read_experiments
from vflbench.results.report.section_tables import dcs_sentence, tables
from vflbench.results.report.sections import Section, Wishes, relative, sections
from vflbench.results.report.svg import STYLE, svg
from vflbench.results.report.tables import Table, is_number, sort_key, told
from vflbench.results.report.threat import threat
from vflbench.results.report.tree import PAGE_MARK, Oddity, Tree, read_tree

__all__ = ["Wishes", "write_report"]

_OPEN = ("headlines", "settings", "differences", "published", "reconstructions")
"""Tables that a reader sees at once; the others unfold."""
_ON_PAGE = 400  # lines of a table; its files have all
_KINDS = {
    "failed": "Failed runs",
    "half-written": "Half-written runs",
    "repeated": "Runs that are there twice",
    "foreign": "Files of no run",
}


def write_report(folders: Sequence[Path], out: Path, wishes: Wishes | None = None) -> Path:
    """Leaves `out`/report.html, `out`/tables/*.csv, .md and .tex, `out`/figures/*.svg and .png. Returns the page's path.

    folders: with runs in or under them. Raises UserError where there is nothing to report on.
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
    shown = [
        _section(section, experiments.get(section.experiment), out, pictures) for section in sections(tree.runs, wishes)
    ]
    odd = _odd_tables(tree, folders)
    _write_tables(odd, out)
    page = out / wishes.page
    page.write_text(_page(tree, shown, odd, wishes), encoding="utf-8")
    return page


def _section(section: Section, experiment: PublishedExperiment | None, out: Path, pictures: Pictures) -> dict[str, Any]:
    found = tables(section)
    if experiment is not None:
        found.insert(3, published_table(section, experiment))
    found = [table for table in found if table.rows]
    drawn = charts(section)
    _write_tables(found, out)
    _write_figures(drawn, out)
    return {
        "title": section.title,
        "slug": section.slug,
        "experiment": experiment and {"does": experiment.does, "source": experiment.source, "note": experiment.note},
        "scale": scale_of(section),
        "facts": facts(section),
        "threats": threats(section),
        "charts": [{"svg": Markup(svg(chart)), "note": chart.note, "slug": chart.slug} for chart in drawn],
        "tables": [_cells(table) for table in found if _is_open(table, section)],
        "folded": [_cells(table) for table in found if not _is_open(table, section)],
        "pictures": pictures.of([run.folder for run in section.runs], [g.name for g in section.groups for _ in g.runs]),
    }


def facts(section: Section) -> list[tuple[str, str]]:
    """What was run."""
    runs = section.runs
    data = [run.manifest.get("data") or {} for run in runs]
    versions = [{"vflbench": run.manifest.get("vflbench"), **(run.manifest.get("versions") or {})} for run in runs]
    packages = dict.fromkeys(name for v in versions for name in v)
    software = [f"{name} {_several(v.get(name) for v in versions)}" for name in packages]
    commits = _several(str(run.manifest.get("git_commit") or "")[:10] for run in runs)
    seeds = _several(seed for g in section.groups for seed in g.seeds)
    found = {
        "runs": f"{len(runs)} in {len(section.groups)} settings; seeds {seeds}",
        "data": _several(str(d.get("path", "")).rsplit("/", 1)[-1] or None for d in data),
        "training rows": _several(_thousands(d.get("train_rows")) for d in data),
        "test rows": _several(_thousands(d.get("test_rows")) for d in data),
        "share of positives": _several(
            f"{r:.3f}" if isinstance(r := d.get("train_positive_ratio"), float) else None for d in data
        ),
        "data fingerprint": _several(str(d.get("fingerprint", ""))[:12] or None for d in data),
        "sha256 of the file": _several(str(d.get("file_sha256", ""))[:16] or None for d in data),
        "epochs": _several(run.summary.get("epochs") for run in runs),
        "batches of": _several(run.manifest.get("batch_size") for run in runs),
        "device": _several(run.manifest.get("device") for run in runs),
        "threads": _several(run.manifest.get("threads") for run in runs),
        "software": ", ".join(software) if any(run.manifest for run in runs) else "",
        "python, system": _several(_system(run.manifest) for run in runs),
        "commit": commits,
    }
    return [(name, text) for name, text in found.items() if text]


def threats(section: Section) -> list[tuple[str, str]]:
    """Attack -> who it is, once each."""
    found: dict[str, str] = {}
    for run in section.runs:
        for name, options in (run.config.get("attack") or {}).items():
            found.setdefault(name, threat(name, options if isinstance(options, dict) else {}))
    return list(found.items())


def _several(values: Iterable[Any], most: int = 8) -> str:
    """The values that there are, each once."""
    found = [str(v) for v in dict.fromkeys(values) if v is not None and v != ""]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _thousands(value: Any) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def _system(manifest: Any) -> str | None:
    told = [str(manifest[name]) for name in ("python", "platform") if manifest.get(name)]
    return ", ".join(told) or None


def _is_open(table: Table, section: Section) -> bool:
    return table.slug.removeprefix(f"{section.slug}_") in _OPEN


def _cells(table: Table) -> dict[str, Any]:
    rows = [[{"text": told(c), "key": sort_key(c), "number": is_number(c)} for c in row] for row in table.rows[:_ON_PAGE]]
    left = len(table.rows) - len(rows)
    note = f"{table.note} {left} more lines are in tables/{table.slug}.csv." if left else table.note
    return {**asdict(table), "rows": rows, "note": note, "count": len(table.rows)}


def _odd_tables(tree: Tree, folders: Sequence[Path]) -> list[Table]:
    def row(odd: Oddity) -> list[str]:
        return [relative(odd.path, folders), odd.told]

    made = [
        Table(kind.replace("-", "_"), title, ("where", "why"), [row(o) for o in tree.of_kind(kind)])
        for kind, title in _KINDS.items()
    ]
    return [table for table in made if table.rows]


def _write_tables(found: Sequence[Table], out: Path) -> None:
    for table in found:
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            (out / "tables" / f"{table.slug}.{ending}").write_text(text, encoding="utf-8")


def _write_figures(drawn: Sequence[Chart], out: Path) -> None:
    for chart in drawn:
        (out / "figures" / f"{chart.slug}.svg").write_text(svg(chart, standalone=True), encoding="utf-8")
        write_png(chart, out / "figures" / f"{chart.slug}.png")


def _page(tree: Tree, shown: Sequence[dict[str, Any]], odd: Sequence[Table], wishes: Wishes) -> str:
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
        sections=shown,
        odd=[_cells(table) for table in odd],
        counts={kind: len(tree.of_kind(kind)) for kind in _KINDS},
        runs=len(tree.runs),
        chart_style=Markup(STYLE),
        dcs=dcs_sentence(),
    )
