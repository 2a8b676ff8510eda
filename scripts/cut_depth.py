"""Finished runs side by side: what leaks at the cut, by the number of layers below it, beside what the columns alone tell.

    vflbench train experiment=cut_depth dataset=criteo dataset.path=train.txt.gz
    python scripts/cut_depth.py outputs --picture cut_depth.png

Prints a Markdown table, one line for each set of defenses and depth of the cut: test and train AUC of the model and each
attack's two-sided leak AUC at the cut layer; an attack that reads no message tells what the party knows anyway. Means over
the runs (seeds) of a line, with Student's 95 % intervals. With --picture it also draws a PNG or SVG of the same.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from vflbench.numerics.interval import Interval, interval_text
from vflbench.results.files import SUMMARY
from vflbench.results.levels import PROBE
from vflbench.results.report.chart import Chart, Level, Point, Series, exact
from vflbench.results.report.comparison import Line, along, attacks_of, lines, read_runs
from vflbench.results.report.raster import write_png
from vflbench.results.report.svg import svg

DEPTH = "model.bottom_layers"
STYLES = ("solid", "dashed", "dotted")  # of defenses
MODEL = {"test_auc": "test AUC", "train_auc": "train AUC"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--attacks", help="separated by commas; by default all that scored, without the probe")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    runs = read_runs(options.folders)
    if not runs:
        parser.error(f"there is no finished run (no {SUMMARY}) under {', '.join(map(str, options.folders))}")
    attacks = options.attacks.split(",") if options.attacks else [name for name in attacks_of(runs) if name != PROBE]
    table = lines(runs, [DEPTH])
    print(markdown(table, attacks))
    if options.picture:
        picture = chart(table, attacks)
        if options.picture.suffix == ".svg":
            options.picture.write_text(svg(picture, standalone=True))
        else:
            write_png(picture, options.picture)
        print(f"\n{options.picture}")


def figures(line: Line, attacks: Sequence[str]) -> dict[str, Interval]:
    """Name -> AUC of the model, and the two-sided leak AUC of each attack at the cut."""
    return {title: line.over_seeds(name) for name, title in MODEL.items()} | {
        attack: line.over_seeds("two_sided", attack) for attack in attacks
    }


def markdown(table: Sequence[Line], attacks: Sequence[str]) -> str:
    header = ["defense", DEPTH, "runs", *MODEL.values(), *attacks]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line in table:
        cells = [
            line.defense,
            str(line.options[0]),
            str(len(line.runs)),
            *map(interval_text, figures(line, attacks).values()),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def chart(table: Sequence[Line], attacks: Sequence[str]) -> Chart:
    """A colour for each attack, grey for the model, a kind of line for each set of defenses."""
    series = []
    defenses = list(dict.fromkeys(line.defense for line in table))
    for style, defense in zip(STYLES, defenses, strict=False):
        swept = list(along([line for line in table if line.defense == defense]))
        for look, name in enumerate(["test AUC", *attacks], start=-1):
            values = [(depth, figures(line, attacks)[name]) for depth, line in swept]
            points = tuple(Point(exact(depth), value) for depth, value in values if not math.isnan(value.mean))
            label = f"{name} of the model" if name == "test AUC" else name
            label += f", {defense}" if len(defenses) > 1 else ""
            if points:
                series.append(Series(label, points, look=look, line=style))
    axes = "layers below the cut", "AUC; of attacks two-sided, at the cut"
    return Chart("cut_depth", "Leak by the depth of the cut", *axes, tuple(series), (Level(0.5, "0.5, a coin"),))


if __name__ == "__main__":
    main()
