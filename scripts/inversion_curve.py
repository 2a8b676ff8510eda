"""Finished runs of attacks that rebuild data: how well, against bits sent and against the model's utility.

    vflbench train experiment=inversion_quantize
    python scripts/inversion_curve.py outputs --by defense.quantize.levels --picture quantize.png

Prints a Markdown table, one line for each set of defenses and values of --by: bits of embeddings that cross per row, test
accuracy of the model, and the figures of the rebuilt data; below, the figures of guesses that need no message. Means over
the runs (seeds) of a line, with Student's 95 % intervals. With --picture it also draws a PNG or SVG: --figure against bits
and against accuracy, and below true and rebuilt pictures of the first run of each line. With --recovery it draws error,
similarity and the share identified of all attacks, a row a line, with the guesses. `--attack strongest` prints of each line
the attack with the least error.
"""

import argparse
from pathlib import Path

from vflbench.results.report.comparison import lines, read_runs
from vflbench.results.report.inversion import (
    FIGURES,
    STRONGEST,
    attacks_that_rebuild,
    draw_inversion,
    inversion_table,
    strongest,
)
from vflbench.results.report.recovery import draw_recovery


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--by", default="model.bottom_layers", help="options whose values make a line, separated by commas")
    parser.add_argument("--attack", help="by default the first that rebuilt anything")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    parser.add_argument("--figure", choices=FIGURES, default="ssim", help="the figure in the picture")
    parser.add_argument("--recovery", type=Path, help="the file to draw of all attacks: .png or .svg")
    options = parser.parse_args()
    by = options.by.split(",")
    runs = read_runs(options.folders)
    attacks = attacks_that_rebuild(runs)
    if not attacks:
        parser.error(f"no finished run under {', '.join(map(str, options.folders))} rebuilt anything")
    attack = options.attack or attacks[0]
    table = lines([run for run in runs if attack in (STRONGEST, *attacks_that_rebuild([run]))], by)
    print(inversion_table(table, by, attack))
    if options.recovery:
        draw_recovery(table, by).savefig(options.recovery, dpi=110)
        print(f"\n{options.recovery}")
    if options.picture:
        attack = strongest(runs) if attack == STRONGEST else attack
        draw_inversion(table, by, attack, options.figure).savefig(options.picture, dpi=150)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
