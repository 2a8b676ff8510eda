"""Every published value of the documents that this project follows, beside ours, as one Markdown page.

    vflbench reproduce --all --data ../data --budget 3h --out repeated
    python scripts/published.py repeated --out docs/experiments/published.md

RUNS: folders with finished runs of `vflbench train experiment=NAME` in or under them. Published numbers are those of
configs/experiment/NAME.json and docs/experiments/published/*.json, sentences those of sentences.json beside them. Formulas
are evaluated and times are taken while the page is made (some 20 seconds). What has no runs is said to be not measured.
"""

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from published_claims import ANSWERS, FACTS, VIEWS

import vflbench
from vflbench.errors import UserError
from vflbench.report.documents import read_documents
from vflbench.report.published_page import Ours, Results, page
from vflbench.report.reproductions import read_experiments
from vflbench.results.tree import read_tree

DOCUMENTS = Path(__file__).resolve().parent.parent / "docs" / "experiments" / "published"
PUBLISHED_ROWS = {"criteo": int(0.9 * 45_840_617), "avazu": int(0.9 * 40_428_967)}  # 90 % for training
OURS = Ours(ANSWERS, FACTS, VIEWS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--out", type=Path, default=Path("docs/experiments/published.md"))
    parser.add_argument("--documents", type=Path, default=DOCUMENTS)
    options = parser.parse_args()
    for folder in options.runs:
        if not folder.is_dir():
            raise UserError("there is no such folder", key="runs", value=folder)
    results = Results.of(read_tree(options.runs).runs, read_experiments())
    text = page(read_documents(options.documents), results, OURS, head(results, options.runs))
    options.out.write_text(text)
    print(options.out)


def head(results: Results, folders: Sequence[Path]) -> str:
    of_experiments = [run for run in results.runs if run.experiment]
    names = sorted({run.experiment for run in of_experiments})
    runs = " ".join(folder.name for folder in folders)
    command = f"python scripts/published.py {runs} --out docs/experiments/published.md"
    shares = " and ".join(filter(None, (share(results, name, rows) for name, rows in PUBLISHED_ROWS.items())))
    return f"""# Published values beside ours

Made by `{command}` from {len(of_experiments)} runs of {len(names)} experiments,
with vflbench {vflbench.__version__} and Python {platform.python_version()} on {platform.machine()}. The runs are those of
`vflbench reproduce --all --data ../data --out repeated`, or those of single experiments with
`vflbench train experiment=NAME`.

The values marked "ours" are means over runs that differ only in the seed. They have Student's 95 % interval over these
runs, cut to the range of the figure. With fewer than three runs there is no interval. Such an interval says how much the
seed matters for our data. It does not say how much other data would matter. Our training rows are
{shares or "a small part"} of the published ones. So if an interval does not contain the published value, this is no
refutation. If it does, this is weak confirmation. Leak AUCs are two-sided, max(a, 1 - a), at the cut layer. Times are of
this machine. The runs are of these experiments: {", ".join(names) or "none"}."""


def share(results: Results, dataset: str, published: int) -> str:
    """The largest number of training rows of a run as a part of the published rows."""
    rows = [r.manifest["data"]["train_rows"] for r in results.runs if r.dataset == dataset and r.manifest.get("data")]
    return f"1/{published / max(rows):,.0f} ({dataset})" if rows else ""


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
