"""`vflbench report DIR [DIR ...]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.cli.main import Words
from vflbench.errors import UserError
from vflbench.results.terminal import path_text

if TYPE_CHECKING:
    from vflbench.results.runs import RunTree

_EXAMPLES = """
examples:
  vflbench report outputs --open
  vflbench report outputs --by defense.marvell.sumkl
  vflbench report outputs --by model.bottom_layers --y leak_oriented
  vflbench report outputs --export results.jsonl
"""


def report(arguments: Sequence[str]) -> None:
    """Write the page on finished runs or export their measurements, and print how many runs were taken, and the place."""
    options = _parser().parse_args(arguments)
    from vflbench.results import runs, table  # late, as below: --help need not wait for their imports
    from vflbench.results.folder import is_recording

    for folder in options.folders:
        if not folder.is_dir():
            raise UserError("there is no such folder", key=f"vflbench report {folder}")
        if is_recording(folder):
            problem = f"it has recorded messages, and no run: vflbench audit {path_text(folder)}"
            raise UserError(problem, key=f"vflbench report {folder}")
    tree = runs.read_tree(options.folders)
    if options.export is not None:
        count, unreadable = table.export(tree.runs, options.folders, options.export)
        tree.set_aside(unreadable)
        print(f"{tree.counts()}; {count:,} measurements\n{options.export}")
    elif options.commands:
        from vflbench.report.experiments import commands
        from vflbench.report.group import sections

        lines = [line for section in sections(tree.runs) for line in commands(section)]
        if not lines:
            problem = "no finished run is of an experiment that needs more of them (price_of_privacy, with validation rows)"
            raise UserError(problem, key="--commands", value=", ".join(map(str, options.folders)))
        print("\n".join(lines))  # alone: what is printed is for a shell
    else:
        _page(tree, options)


def _parser() -> argparse.ArgumentParser:
    parser = Words(
        prog="vflbench report",
        description="One page on finished runs, with tables and figures. Only runs that differ in\n"
        "nothing but the seed are averaged.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder with runs in or under it")
    parser.add_argument(
        "--x", default="", help="horizontal axis of the plane of privacy and utility: test_auc, test_accuracy, seconds, ..."
    )
    parser.add_argument(
        "--y", default="", help="vertical axis of this plane: leak_auc, leak_distance, leak_auc:norm, leak_accuracy, ..."
    )
    parser.add_argument(
        "--by",
        default="",
        metavar="KEY[,KEY]",
        help="options, as sumkl or defense.marvell.sumkl: print a table along their values, put it on the page, and draw "
        "these sweeps; by default every number that varies is drawn",
    )
    parser.add_argument("--layer", help="where leaks are taken: a layer's name, or cut; by default at any")
    parser.add_argument("--out", type=Path, help="the folder for the page; by default the first DIR's `report`")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="write all measurements to FILE.jsonl, .csv or .parquet, and no page"
    )
    parser.add_argument(
        "--commands",
        action="store_true",
        help="print the commands of the runs that an experiment still needs (price_of_privacy), and write no page",
    )
    figures = "formats of the figure files, separated by commas, or none; by default svg,png,pdf"
    parser.add_argument("--figures", default="svg,png,pdf", help=figures)
    return parser


def _page(tree: "RunTree", options: argparse.Namespace) -> None:
    from vflbench.report.page import Wishes, write_report
    from vflbench.report.tables import printed, resolved

    out = options.out or options.folders[0] / "report"
    if options.out is None and out.is_symlink():  # whoever made the folder chose where it leads
        raise UserError("it is a link, which is followed only where --out names it", key=f"vflbench report {out}")
    if not tree.runs and (recordings := tree.of_kind("recording")):
        problem = f"no run is in or under it, but recorded messages: vflbench audit {path_text(recordings[0].path)}"
        raise UserError(problem, key=f"vflbench report {' '.join(map(str, options.folders))}")
    by = resolved(tree.runs, tuple(filter(None, options.by.split(",")))) if tree.runs else ()
    formats = () if options.figures == "none" else tuple(dict.fromkeys(options.figures.split(",")))
    if not set(formats) <= {"svg", "png", "pdf"}:
        raise UserError("some of svg, png, pdf, or none", key="--figures", value=options.figures)
    wishes = Wishes(x=options.x, y=options.y, by=by, layer=options.layer, formats=formats)
    page = write_report(options.folders, out, wishes, tree)
    print("\n".join([tree.counts(), *tree.left_out()]))
    for section in wishes.sections(tree.runs) if by else ():
        if lines := printed(section):
            print("\n".join(["", *lines, ""]))
    if tree.runs:
        print(f"each table as CSV, Markdown and LaTeX: {path_text(page.parent / 'tables')}")
    print(page)
    if not tree.runs:
        raise UserError("no run in it has finished; the page says why", key=f"vflbench report {page}")
    if options.open:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            print("--open: there is no browser here; open the page elsewhere", file=sys.stderr)
