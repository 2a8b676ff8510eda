"""`vflbench report`: reads folders of outputs, writes one page, its tables and its figures."""

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflbench.errors import UserError
from vflbench.files import replaced
from vflbench.report import charts, group, pictures, words
from vflbench.report.experiments import scale_of, special
from vflbench.report.group import Section
from vflbench.report.published import PublishedExperiment, read_experiments
from vflbench.report.tables import Table, not_averaged, tables
from vflbench.results.folder import cleaned
from vflbench.results.runs import Oddity, Run, RunTree, read_tree

_MOST_TEXT = 4_000  # characters of a sentence
_KINDS = {
    "failed": "Failed runs",
    "unfinished": "Half-written runs",
    "unreadable": "Runs that can't be read",
    "repeated": "Runs that are there twice",
    "recording": "Recorded messages",
}


@dataclass(frozen=True)
class Wishes:
    """What a user asks of a report.

    x, y: quantities of the plane; empty: those that the runs have. by: options along which sweeps are drawn; empty: all that
    vary. layer: where leaks are taken (`group.Section`). gates: what thresholds came to, a line each. page: the file's name.
    formats: of the figures' files, svg | png | pdf; none of them: no files.
    """

    x: str = ""
    y: str = ""
    by: tuple[str, ...] = ()
    layer: str | None = None
    title: str = "Label leakage and its price"
    notes: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    page: str = "report.html"
    formats: tuple[str, ...] = ("svg", "png", "pdf")

    def sections(self, runs: Sequence[Run]) -> list[Section]:
        return group.sections(runs, x=self.x, y=self.y, layer=self.layer, by=self.by)


def write_report(folders: Sequence[Path], out: Path, wishes: Wishes | None = None, tree: RunTree | None = None) -> Path:
    """Write `out`/report.html, `out`/tables/*.csv, .md and .tex, figures in `out`/figures. Returns the page's path.

    folders: with runs in or under them. tree: what was read from them, if it was; files of rebuilt data that can't be read
    are added to its odd ones. Raises UserError if there is nothing to report on.
    """
    wishes = wishes or Wishes()
    tree = tree or read_tree(folders)
    if not tree.runs and not tree.odd:
        raise UserError("there is no run in or under it", key=f"vflbench report {' '.join(map(str, folders))}")
    experiments = read_experiments(names={run.experiment for run in tree.runs})
    parts = [_part(section, experiments.get(section.experiment), tree.odd) for section in wishes.sections(tree.runs)]
    others = _odd_tables(tree, folders)
    for table in (*(table for part in parts for table in part["tables"]), *others):
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            _write(out / "tables", f"{table.slug}.{ending}", text)
    for figure in (figure for part in parts for figure in part["figures"] if wishes.formats):
        for name, content in charts.files(figure, wishes.formats):
            _write(out / "figures", name, content)
    _write(out, wishes.page, _page(tree, parts, others, wishes))
    return out / wishes.page


def _write(folder: Path, name: str, content: str | bytes) -> None:
    """A whole file that takes the place of what was there, of a link too. A folder in it that is a link is refused."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name in ("tables", "figures") and folder.is_symlink():
            raise OSError(0, "it is in a link, and a report follows no link in its folder")
        with replaced(path) as temporary:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UserError(f"it can't be written: {error.strerror or error}", key="--out", value=cleaned(path, 500)) from error


def _part(section: Section, experiment: PublishedExperiment | None, odd: list[Oddity]) -> dict[str, Any]:
    """What the page has of a section."""
    made, runs = [*tables(section), *special(section, experiment)], list(section.runs["run"])
    drawn = [*charts.charts(section), *(one for one in made if isinstance(one, charts.Figure))]
    drawn += pictures.figures(section, odd)
    versions = [{"vflbench": run.manifest.vflbench, **run.manifest.versions} for run in runs]
    packages = dict.fromkeys(name for of in versions for name in of)
    before = 1 if len(section.settings) > 1 else len(drawn)  # so many stand before the tables
    return {
        "title": cleaned(section.title),
        "slug": section.slug,
        "experiment": experiment,
        "scale": scale_of(section),
        "runs": runs,
        "settings": len(section.settings),
        "cut_layers": map(_cut_layers, runs),
        "software": ", ".join(f"{name} {_several(of.get(name) for of in versions)}" for name in packages),
        "threats": threats(section),
        "sentences": words.defense_sentences(section),
        "remarks": words.remarks(section),
        "alarms": alarms(section),
        "first": drawn[:before],
        "charts": drawn[before:],
        "figures": drawn,
        "tables": [one for one in made if isinstance(one, Table)],
    }


def alarms(section: Section) -> list[tuple[str, bool]]:
    """(sentence, whether it is an alarm): rows of several versions; leaks above a defense's ceiling, the strongest run's."""
    made = [(line, False) for line in not_averaged(section)]
    for setting in section.groups:
        exceeded = [(name, p, run) for run in setting.runs for name, p in run.summary.guarantees.items() if p and p.exceeded]
        exceeded.sort(key=lambda one: one[1].exceeded[0].value or 0)
        for name, (promise, run) in {name: (promise, run) for name, promise, run in exceeded}.items():
            made.append((f"{setting.name}: {words.exceeded(name, promise, run)}.", promise.bounds != words.LABEL_PRIVACY))
    return made


def threats(section: Section) -> list[tuple[str, str]]:
    """(attack or adversary, who it is and what it does), as the runs recorded it; each different text once.

    Of attacks that ran: what was skipped is in a table of its own.
    """
    rows, runs = [], list(section.runs["run"])
    for run in runs:
        ran = {name: threat for name, threat in run.manifest.threats.items() if name not in run.summary.skipped}
        rows += [(name, " ".join(dict.fromkeys(filter(None, (one.text, one.does))))) for name, one in ran.items()]
    for name, adversary in ((name, one) for run in runs for name, one in run.manifest.adversary.items()):
        honest = [run.honest is not None for run in runs if name in run.manifest.adversary]
        count = f"Runs with this adversary: {len(honest)} of {len(runs)}; {sum(honest)} with an honest run beside it."
        does = f"Party {adversary.party or '?'} deviates from the protocol. {adversary.text} {count}"
        rows.append((f"{name}, adversary", does))
    names = list(dict.fromkeys(name for name, _ in rows))
    return sorted(dict.fromkeys(rows), key=lambda one: names.index(one[0]))


def _cut_layers(run: Run) -> str:
    """`f5 (a, b)`: the layers that cross, and at which parties."""
    parties: dict[str, list[str]] = {}
    for party, layers in run.manifest.cut_layers.items():
        parties.setdefault(" and ".join(layers), []).append(party)
    return ", ".join(f"{layers} ({', '.join(of)})" for layers, of in parties.items() if layers)


def _several(values: Iterable[Any], separator: str = ", ", most: int = 8) -> str:
    """Every different value once."""
    texts = [words.text_of(value) for value in dict.fromkeys(values) if value not in (None, "")]
    return separator.join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _odd_tables(tree: RunTree, folders: Sequence[Path]) -> list[Table]:
    rows = [(one.kind, cleaned(_relative(one.path, folders), 500), cleaned(one.reason, 1000)) for one in tree.odd]
    odd = pd.DataFrame(rows, columns=["kind", "where", "why"]).groupby("kind")[["where", "why"]]
    return [Table(kind, title, odd.get_group(kind)) for kind, title in _KINDS.items() if tree.of_kind(kind)]


def _relative(path: Path, folders: Sequence[Path]) -> str:
    """A path from the folder that the reader named."""
    root = next((root.resolve() for root in folders if path.is_relative_to(root.resolve())), None)
    return os.path.relpath(path, root.parent) if root else path.name


def _page(tree: RunTree, parts: Sequence[dict[str, Any]], odd: Sequence[Table], wishes: Wishes) -> str:
    environment = Environment(
        loader=PackageLoader("vflbench.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: cleaned(value, _MOST_TEXT) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"several": _several, "digest": _digest, "name": lambda path: PurePath(path).name}
    library = Markup(charts.library()) if any(part["figures"] for part in parts) else ""  # nosec B704  # not a user's
    how = {"tree": tree, "kinds": list(_KINDS), "sections": parts, "odd": odd, "wishes": wishes}
    return environment.get_template("page.html").render(library=library, **how)


def _digest(script: str) -> str:
    """As a Content-Security-Policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
