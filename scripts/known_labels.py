"""Finished runs side by side: what leaks to an attacker, by the number of rows whose labels it knows.

    vflbench train experiment=known_labels dataset=criteo dataset.path=train.txt.gz
    python scripts/known_labels.py outputs --picture known_labels.png

Prints a Markdown table, one line for each defense and message: train AUC of the model and the leak AUC at the cut layer (or
--layer) of `completion` with each number of known rows, two-sided; means over the runs (seeds) of a line, with Student's
95 % intervals. With --picture it also draws a PNG or SVG of the same.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from vflbench.numerics.interval import Interval, interval_text
from vflbench.results.files import SUMMARY
from vflbench.results.report.chart import Chart, Level, Point, Series, exact
from vflbench.results.report.comparison import Line, lines, read_runs
from vflbench.results.report.raster import write_png
from vflbench.results.report.svg import svg
from vflbench.results.runs import Run

STYLES = ("solid", "dashed", "dotted")  # of messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--layer", help="by default the cut layer")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    runs = [run for run in read_runs(options.folders) if completions(run)]
    if not runs:
        where = ", ".join(map(str, options.folders))
        parser.error(f"there is no finished run with the attack completion (no {SUMMARY} that has it) under {where}")
    table = lines(runs, [])
    print(markdown(table, options.layer))
    if options.picture:
        picture = chart(table, options.layer)
        if options.picture.suffix == ".svg":
            options.picture.write_text(svg(picture, standalone=True))
        else:
            write_png(picture, options.picture)
        print(f"\n{options.picture}")


def completions(run: Run) -> dict[tuple[str, int], str]:
    """(message, known rows) -> the name of the attack with these options."""
    attacks = run.option("attack") or {}
    return {
        (node.get("message", "embeddings"), node.get("known", 100)): name
        for name, node in attacks.items()
        if str(node.get("_target_", "")).endswith(".Completion")
    }


def choices(table: Sequence[Line]) -> tuple[list[str], list[int]]:
    """The messages and the numbers of known rows of all lines."""
    found = {key for line in table for key in completions(line.runs[0])}
    return sorted({message for message, _ in found}, reverse=True), sorted({known for _, known in found})


def leak(line: Line, message: str, known: int, layer: str | None) -> Interval:
    """Two-sided leak AUC; nan if the runs of the line have no such attack."""
    name = completions(line.runs[0]).get((message, known))
    return exact(math.nan) if name is None else line.over_seeds("two_sided", name, layer)


def markdown(table: Sequence[Line], layer: str | None = None) -> str:
    messages, counts = choices(table)
    header = ["defense", "message", "runs", "train AUC", *(f"{known} known" for known in counts)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for line in table:
        for message in messages:
            cells = [line.defense, message, str(len(line.runs)), interval_text(line.over_seeds("train_auc"))]
            cells += [interval_text(leak(line, message, known, layer)) for known in counts]
            rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def chart(table: Sequence[Line], layer: str | None = None) -> Chart:
    """A colour for each defense, a kind of line for each message; the marks of all but the first are hollow."""
    messages, counts = choices(table)
    series = []
    for look, line in enumerate(table):
        for style, message in zip(STYLES, messages, strict=False):
            values = [(i, leak(line, message, known, layer)) for i, known in enumerate(counts)]
            points = tuple(Point(exact(float(i)), value) for i, value in values if not math.isnan(value.mean))
            if points:
                series.append(Series(f"{line.defense}, {message}", points, look=look, line=style, hollow=style != STYLES[0]))
    ticks = tuple((float(i), str(known)) for i, known in enumerate(counts))
    axes = "rows whose labels are known", "two-sided leak AUC of completion"
    return Chart("known_labels", "Leak with known labels", *axes, tuple(series), (Level(0.5, "0.5, a coin"),), ticks)


if __name__ == "__main__":
    main()
