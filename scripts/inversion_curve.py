"""Finished runs of attacks that rebuild data: how well, against bits sent and against what the model is worth.

    vflbench train experiment=inversion_quantize
    python scripts/inversion_curve.py outputs --by defense.quantize.levels --picture quantize.png

Prints a Markdown table, one line for each set of defenses and values of --by: bits of embeddings that cross for a row, test
accuracy of the model, and the figures of what was rebuilt; below, what guesses reach that need no message. Means over the
runs (seeds) of a line, with Student's 95 % intervals. With --picture also a PNG or SVG: --figure against bits and against
accuracy, and under it true and rebuilt pictures of the first run of each line.
"""

import argparse
from pathlib import Path

from vflbench.results.report.inversion import FIGURES, attacks_that_rebuild, draw_inversion, inversion_table
from vflbench.results.report.sweep import read_runs, settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--by", default="model.bottom_layers", help="options whose values make a line, with commas between")
    parser.add_argument("--attack", help="the first that rebuilt anything, if left out")
    parser.add_argument("--picture", type=Path, help="where to draw it: a .png or .svg")
    parser.add_argument("--figure", choices=FIGURES, default="ssim", help="in the picture")
    options = parser.parse_args()
    by = options.by.split(",")
    runs = read_runs(options.folders)
    attacks = attacks_that_rebuild(runs)
    if not attacks:
        parser.error(f"no finished run under {', '.join(map(str, options.folders))} rebuilt anything")
    attack = options.attack or attacks[0]
    found = settings([run for run in runs if attack in attacks_that_rebuild([run])], by)
    print(inversion_table(found, by, attack))
    if options.picture:
        draw_inversion(found, by, attack, options.figure).savefig(options.picture, dpi=150)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
