"""`vflbench report DIR [DIR ...]`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from vflbench.errors import UserError
from vflbench.results.report.sections import Wishes


def report(arguments: Sequence[str]) -> None:
    """Write the page on finished runs, and print where it is."""
    parser = argparse.ArgumentParser(
        prog="vflbench report", description="One page on finished runs, with tables and figures."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder with runs in or under it")
    parser.add_argument(
        "--x", default="", help="the plane's horizontal axis: test_auc, test_accuracy, seconds, bytes_sent, ..."
    )
    parser.add_argument(
        "--y", default="", help="its vertical axis: leak_auc, leak_distance, leak_auc:norm, leak_accuracy, ..."
    )
    parser.add_argument(
        "--by", default="", help="options along which sweeps are drawn, separated by commas; by default all that vary"
    )
    parser.add_argument("--layer", help="where the leak is taken: a layer's name, or all; by default the cut layer")
    parser.add_argument("--out", type=Path, help="the folder for the page; by default the first DIR's `report`")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    options = parser.parse_args(arguments)
    from vflbench.results.report.site import write_report  # late: --help need not wait for its imports

    by = tuple(filter(None, options.by.split(",")))
    out = options.out or options.folders[0] / "report"
    if options.out is None and out.is_symlink():  # whoever made the folder chose where it leads
        raise UserError("it is a link, which a report follows only where it is named with --out", key="report", value=out)
    page = write_report(
        options.folders,
        out,
        Wishes(x=options.x, y=options.y, by=by, layer=options.layer),
    )
    print(page)
    if options.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
