"""Table 1 of "Quantification of the Leakage in Federated Learning": published values beside measured ones.

    vflbench train experiment=quantification_table1
    python scripts/quantification_table.py outputs --picture table1.png

    vflbench train experiment=quantification_programme dataset.rows=3,5    # the published programme; all rows take hours

Prints a Markdown table, one line for each size of a batch: seconds of the published integer programme (on another machine,
with another solver; `*` where the paper gives no time because several batches match) and of each solver that the runs
tried, means over their batches; the share of batches that have a twin, which gives the same sums; and the number of
constraints and unknowns of the programme. `>` marks cells in which some searches reached their time limit. With --picture
it also draws the times as heat maps.
"""

import argparse
from pathlib import Path

from programme_size import counted, published_count

from vflbench.results.report.comparison import read_runs
from vflbench.results.report.solver_times import Cell, cells_of, cells_table, draw_cells, published_cells

SIZES = ("constraints, published", "constraints, counted", "unknowns", "with labels: constraints", "unknowns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    cells = cells_of(read_runs(options.folders))
    if not cells:
        parser.error(f"no batch was rebuilt under {', '.join(map(str, options.folders))}")
    sizes = {cell: size_of(cell) for cell in {*cells, *published_cells()}}
    print(cells_table(cells, sizes=sizes, size_names=SIZES))
    if options.picture:
        draw_cells(cells).savefig(options.picture, dpi=150)
        print(f"\n{options.picture}")


def size_of(cell: Cell) -> list[str]:
    """Of the published programme, for X alone as in the paper, and for X and the labels as the runs solve it."""
    alone, with_labels = counted(*cell), counted(*cell, labels=True)
    return [f"{count:,}" for count in (published_count(*cell), *alone, *with_labels)]


if __name__ == "__main__":
    main()
