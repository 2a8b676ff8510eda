"""Finished runs on one page: what every attack reads under every defense.

    vflbench train experiment=matrix dataset=criteo dataset.path=train.txt.gz dataset.rows=30000
    python scripts/matrix.py outputs --page matrix.html --picture matrix.png

Prints a Markdown table, one line for each set of defenses and their options: test AUC of the model, the ceiling where one is
promised and stands, and for each attack the two-sided leak AUC at the visible layer where it is largest; means over the
runs (seeds) of a line. Attacks are grouped by what they know. Last come the strongest attack of each group, and its name.
Of the references, `probe` is the best of the probes, and `own columns` the strongest attack on the party's own columns.
With --page it also writes an HTML page with colours and intervals, with --picture a PNG.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.numerics.interval import Interval, interval_text, over_runs
from vflbench.results.files import SUMMARY
from vflbench.results.levels import LEVELS, PROBE, REFERENCE, base_name
from vflbench.results.report import quantity
from vflbench.results.report.comparison import read_runs
from vflbench.results.report.defense_names import defense_name
from vflbench.results.report.heat_map import Cell, Columns, HeatMap, page, write_png
from vflbench.results.runs import Run

EXPERIMENT = "matrix"
OWN = "own columns"
NOTE = (
    "Two-sided leak AUC of each attack under each defense, at the visible layer where it is largest; 0.5 is a coin, 1 reads "
    "every label. A ceiling bounds what messages add about a label, and not what features tell. References are no attacks. "
    "{}."
)
Key = tuple[str, str]
"""Level of knowledge, and attack."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--page", type=Path, help="the HTML page to write")
    parser.add_argument("--picture", type=Path, help="the PNG to draw")
    options = parser.parse_args()
    runs = [run for run in read_runs(options.folders) if run.experiment == EXPERIMENT]
    where = ", ".join(map(str, options.folders))
    if not runs:
        parser.error(f"there is no finished run of experiment={EXPERIMENT} (no {SUMMARY}) under {where}")
    if any(run.config.get("dataset") != runs[0].config.get("dataset") for run in runs):
        parser.error(f"the runs under {where} differ in the options of their dataset; name a folder with runs of one")
    drawn = heat_map(runs)
    print(markdown(drawn))
    if options.page:
        options.page.write_text(page(drawn), encoding="utf-8")
    if options.picture:
        write_png(drawn, options.picture)


def heat_map(runs: Sequence[Run]) -> HeatMap:
    """Undefended runs first, then from the defense that leaves most to the one that leaves least without labels."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(defense_name(run), []).append(run)
    columns = columns_of(runs)
    levels = [level for level in LEVELS if any(key[0] == level for key in columns)]
    read = {name: {key: reading([readings(run) for run in of], key) for key in columns} for name, of in by_name.items()}
    worst = {name: {level: strongest(line, level) for level in levels} for name, line in read.items()}
    order = sorted(by_name, key=lambda name: (name != "none", *(-_rank(of.value) for of in worst[name].values()), name))
    groups = [
        Columns(
            level,
            tuple(attack for of, attack in columns if of == level),
            tuple(
                tuple(cell_of(attack, read[name][level, attack]) for name in order) for of, attack in columns if of == level
            ),
        )
        for level in (*levels, REFERENCE)
        if any(key[0] == level for key in columns)
    ]
    groups.append(Columns("strongest", tuple(levels), tuple(tuple(worst[n][level] for n in order) for level in levels)))
    utility = tuple(f"{over_runs(quantity.value(run, 'test_auc') for run in by_name[n]).mean:.3f}" for n in order)
    facts = ("test AUC", utility), ("ceiling", tuple(ceiling(by_name[name]) for name in order))
    counts = sorted({len(of) for of in by_name.values()})
    note = NOTE.format(f"Means over {' or '.join(map(str, counts))} runs" if counts != [1] else "One run each")
    return HeatMap("Every attack against every defense", note, tuple(order), facts, tuple(groups))


def readings(run: Run) -> dict[Key, float]:
    """Two-sided leak AUC at the worst visible layer."""
    worst: dict[Key, float] = {}
    for leak in quantity.leaks(run):
        if quantity.counts(leak, run, "all"):
            key = key_of(leak, run)
            worst[key] = max(worst.get(key, math.nan), quantity.leak_value(leak, "leak_two_sided"), key=_rank)
    return worst


def _rank(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def key_of(leak: Mapping[str, Any], run: Run) -> Key:
    name = base_name(str(leak["attack"]))
    if not quantity.is_reference(leak, run):
        return quantity.level(leak, run), name
    return REFERENCE, PROBE if name == PROBE else OWN


def columns_of(runs: Sequence[Run]) -> list[Key]:
    """All columns, in the order in which the runs chose their attacks."""
    found = {key for run in runs for key in readings(run)}
    chosen = {name: place for run in runs for place, name in enumerate(run.config.get("attack") or {})}
    return sorted(found, key=lambda key: (chosen.get(key[1], len(chosen)), key[1] != PROBE, key))


def reading(runs: Sequence[Mapping[Key, float]], key: Key) -> Interval:
    return over_runs((run.get(key, math.nan) for run in runs), (0.5, 1.0))


def cell_of(attack: str, read: Interval) -> Cell:
    return Cell(read.mean, "" if math.isnan(read.mean) else f"{attack}: {interval_text(read)}")


def strongest(line: Mapping[Key, Interval], level: str) -> Cell:
    """The largest mean of a level, and whose it is."""
    of_level = {attack: read for (of, attack), read in line.items() if of == level and not math.isnan(read.mean)}
    if not of_level:
        return Cell(math.nan)
    attack = max(of_level, key=lambda name: of_level[name].mean)
    return Cell(of_level[attack].mean, f"{attack}: {interval_text(of_level[attack])}", attack)


def ceiling(runs: Sequence[Run]) -> str:
    """The lowest leak AUC promised of all messages; `refuted` if what the promises assume did not hold."""
    promises = [promise for run in runs for promise in (run.summary.get("guarantees") or {}).values() if promise]
    stands = [quantity.number(p["leak_auc_all_messages"]) for p in promises if p.get("assumption_holds") is not False]
    if not stands:
        return "refuted" if promises else ""
    return f"{min(stands):.3f}"


def markdown(drawn: HeatMap) -> str:
    """The same table; the names of the levels stand before those of their first attacks."""
    header = ["defense", *(title for title, _ in drawn.facts)]
    for group in drawn.groups:
        header += [f"*{group.title}:* {name}" if not i else name for i, name in enumerate(group.names)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for place, name in enumerate(drawn.rows):
        cells = [name, *(texts[place] for _, texts in drawn.facts)]
        for group in drawn.groups:
            cells += [_value(column[place]) for column in group.cells]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _value(cell: Cell) -> str:
    value = "-" if math.isnan(cell.value) else f"{cell.value:.3f}"
    return f"`{cell.tag}` {value}" if cell.tag else value


if __name__ == "__main__":
    main()
