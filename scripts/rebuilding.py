"""Finished runs in one figure: how much of the features every attack rebuilds under every defense, and what defending costs.

    vflbench train experiment=rebuilding_pictures dataset.path=MNIST
    vflbench train experiment=rebuilding_shallow dataset.path=MNIST
    vflbench train experiment=rebuilding_hijack dataset.path=MNIST
    vflbench train experiment=rebuilding_table
    python scripts/rebuilding.py outputs --page rebuilding.html --picture rebuilding.png

Prints a Markdown table, a line for each set of defenses and their options: accuracy of the model on test rows, and for each
attack the share that it closes of the error that the best guess without messages leaves,

    gain = 1 - mse / min over guesses of mse,    guesses: means, rows of the class, a regression on own columns, ...

1 for rows that are rebuilt exactly, 0 for no more than guessing. Of `attribute`, which ranks rows by a column: the same
share of what AUC the attacker without messages leaves to 1. Means over the runs (seeds) of a line with 95 % intervals.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from vflbench.numerics.interval import Interval, interval_text, over_runs
from vflbench.results.files import SUMMARY
from vflbench.results.report.comparison import read_runs
from vflbench.results.report.defense_names import defense_name
from vflbench.results.report.heat_map import Cell, Columns, HeatMap, page, write_png
from vflbench.results.report.inversion import GUESSES, rebuilt
from vflbench.results.report.picture_rows import NO_MESSAGE
from vflbench.results.runs import Run

EXPERIMENTS = {
    "rebuilding_pictures": "pictures",
    "rebuilding_shallow": "one layer",
    "rebuilding_hijack": "active",
    "rebuilding_table": "table",
}
_NEED_THE_TRUTH = ("nearest_row", "true")  # no guesses, although they stand beside them
_RANKED = "attribute_auc"  # of an attack that ranks rows by a column
_RANGE = (-math.inf, 1.0)
NOTE = (
    "Share that each attack closes of the error that the best guess without messages leaves: 1 rebuilds exactly, 0 or less "
    "is no more than guessing. Beside it, what defending costs: the accuracy of the model on test rows. {}."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--page", type=Path, help="the HTML page to write")
    parser.add_argument("--picture", type=Path, help="the PNG to draw")
    options = parser.parse_args()
    runs = [run for run in read_runs(options.folders) if run.experiment in EXPERIMENTS]
    if not runs:
        where = ", ".join(map(str, options.folders))
        parser.error(f"there is no finished run of experiment={' or '.join(EXPERIMENTS)} (no {SUMMARY}) under {where}")
    drawn = heat_map(runs)
    print(markdown(drawn, runs))
    if options.page:
        options.page.write_text(page(drawn), encoding="utf-8")
    if options.picture:
        write_png(drawn, options.picture)


def heat_map(runs: Sequence[Run]) -> HeatMap:
    """A line for each set of defenses, undefended runs first; a group of columns for each experiment."""
    order = _names(runs)
    groups, facts = [], []
    for experiment, title in EXPERIMENTS.items():
        of = [run for run in runs if run.experiment == experiment]
        if not of:
            continue
        attacks = list(dict.fromkeys(attack for run in of for attack in attacks_of(run)))
        lines = {name: [run for run in of if defense_name(run) == name] for name in order}
        read = {attack: [over(lines[name], attack) for name in order] for attack in attacks}
        cells = tuple(
            tuple(_cell(attack, name, value) for name, value in zip(order, read[attack], strict=True)) for attack in attacks
        )
        groups.append(Columns(title, tuple(attacks), cells))
        facts.append((f"accuracy, {title}", tuple(_accuracy(lines[name]) for name in order)))
    counts = sorted(
        {sum(defense_name(run) == defense_name(one) for run in runs if run.experiment == one.experiment) for one in runs}
    )
    note = NOTE.format(f"Means over {' or '.join(map(str, counts))} runs" if counts != [1] else "One run each")
    return HeatMap("Every attack on features against every defense", note, order, tuple(facts), tuple(groups), low=0.0)


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """In the order of the sweep, undefended runs first."""
    return tuple(sorted(dict.fromkeys(defense_name(run) for run in runs), key=lambda name: name != "none"))


def attacks_of(run: Run) -> list[str]:
    """Those that rebuilt something or ranked rows by a column, in the order in which they were chosen."""
    found = {entry["attack"] for entry in run.summary.get("reconstructions", [])}
    return [name for name in run.config.get("attack") or {} if name in found]


def gain(run: Run, attack: str) -> float:
    """Share of the error of the best guess that the attack closes; nan where there is none."""
    read, known = _figure(run, attack, _RANKED), _figure(run, attack, _RANKED, of_guesses=True)
    if not math.isnan(read):
        return (read - known) / (1 - known) if known < 1 else math.nan
    error = rebuilt(run, attack, "mse")
    guesses = [rebuilt(run, attack, "mse", guess) for guess in GUESSES if guess not in _NEED_THE_TRUTH]
    least = min((value for value in guesses if not math.isnan(value)), default=math.nan)
    return 1 - error / least if least > 0 else math.nan


def _figure(run: Run, attack: str, figure: str, *, of_guesses: bool = False) -> float:
    """The largest value of a figure that the attack, or what stands beside it without messages, has."""
    entries = [
        entry["figures"][figure]["mean"]
        for entry in run.summary.get("reconstructions", [])
        if entry["attack"] == attack and (entry["message"] == NO_MESSAGE) == of_guesses and figure in entry["figures"]
    ]
    return max((value for value in entries if value is not None), default=math.nan)


def over(runs: Sequence[Run], attack: str) -> Interval:
    return over_runs((gain(run, attack) for run in runs), _RANGE)


def _cell(attack: str, defense: str, value: Interval) -> Cell:
    return Cell(value.mean, "" if math.isnan(value.mean) else f"{attack}, {defense}: {interval_text(value)}")


def _accuracy(runs: Sequence[Run]) -> str:
    values = over_runs((_utility(run.summary) for run in runs), (0.0, 1.0))
    return "" if math.isnan(values.mean) else f"{values.mean:.3f}"


def _utility(summary: Mapping[str, float]) -> float:
    return summary.get("test_accuracy", summary.get("test_auc", math.nan))


def markdown(drawn: HeatMap, runs: Sequence[Run]) -> str:
    """The same table, with intervals."""
    header = ["defense", *(title for title, _ in drawn.facts)]
    for group in drawn.groups:
        header += [f"*{group.title}:* {name}" if not i else name for i, name in enumerate(group.names)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    titles = {title: experiment for experiment, title in EXPERIMENTS.items()}
    for place, name in enumerate(drawn.rows):
        cells = [name, *(texts[place] for _, texts in drawn.facts)]
        for group in drawn.groups:
            of = [run for run in runs if run.experiment == titles[group.title] and defense_name(run) == name]
            values = [over(of, attack) for attack in group.names]
            cells += ["" if math.isnan(value.mean) else interval_text(value, ".2f") for value in values]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
