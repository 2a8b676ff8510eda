"""Table 1 of "Quantification of the Leakage in Federated Learning": published values beside measured ones.

    vflbench train experiment=quantification_table1
    python scripts/quantification_table.py outputs --picture table1.png

Prints a Markdown table, one line for each size of a batch: seconds of the published integer programme (where they are known
here; on another machine, with another solver) and of each solver that the runs tried, means over their batches. `>` marks
cells in which some searches reached their time limit. With --picture it also draws the same as heat maps.
"""

import argparse
from pathlib import Path

from vflbench.results.report.comparison import read_runs
from vflbench.results.report.solver_times import cells_of, cells_table, draw_cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    cells = cells_of(read_runs(options.folders))
    if not cells:
        parser.error(f"no batch was rebuilt under {', '.join(map(str, options.folders))}")
    print(cells_table(cells))
    if options.picture:
        draw_cells(cells).savefig(options.picture, dpi=150)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
