"""The picture table of finished runs: original, uncompressed, quantized, unbiased and biased noise, by depth and levels.

    vflbench train experiment=inversion_pictures dataset.path=MNIST
    python scripts/inversion_pictures.py outputs --picture pictures.png

Rows are depths of the bottom models and levels; all cells show the same true pictures of one seed, and below each the mean
squared error and the share of pictures that are identified among others of their class.
"""

import argparse
from pathlib import Path

from vflbench.results.report.comparison import read_runs
from vflbench.results.report.inversion import attacks_that_rebuild, strongest
from vflbench.results.report.picture_table import PictureTable, draw_picture_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--picture", type=Path, required=True, help="the file to draw: .png or .svg")
    parser.add_argument("--attack", help="by default the one with the least error over all runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5, help="pictures a cell")
    options = parser.parse_args()
    runs = [run for run in read_runs(options.folders) if run.seed == options.seed and attacks_that_rebuild([run])]
    if not runs:
        parser.error(f"no finished run of seed {options.seed} under {', '.join(map(str, options.folders))} rebuilt anything")
    try:
        table = PictureTable.of(runs, options.attack or strongest(runs))
        draw_picture_table(table, options.count).savefig(options.picture, dpi=110)
    except ValueError as error:
        parser.error(str(error))
    print(options.picture)


if __name__ == "__main__":
    main()
