"""Finished runs with split_guard: when it notices a label party that cheats, and how often it accuses an honest one.

    vflbench train -m dataset=digits model=cnn defense=split_guard adversary=hijack attack=hijack seed=0,1,2,3
    python scripts/split_guard_curve.py outputs --by adversary.hijack.honest_share --picture split_guard.png

Reads the scores in the log of each run, and of the honest run beside it, and applies each policy at each threshold to them:
no run is computed again. Prints a Markdown table, one line for each value of --by, policy and threshold: runs that noticed,
at which batch (median, smallest and largest), and honest runs with a false alarm. With --picture it also draws the curve of
the first policy: noticed and false alarms by threshold, and the median batch.
"""

import argparse
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vflbench.defenses.split_guard import alarm
from vflbench.results.files import HONEST
from vflbench.results.report.comparison import Line, lines, read_runs

LOG = "train.log"
_SCORE = re.compile(r"party (\S+): split_guard score ([0-9.]+) at batch (\d+)$", re.MULTILINE)
Scores = list[tuple[int, float]]
"""Batch and score of each fake batch."""


def scores_in(folder: Path) -> list[Scores]:
    """Those of each party of a run; none where it has none."""
    path = folder / LOG
    found: dict[str, dict[int, float]] = {}
    for party, score, batch in _SCORE.findall(path.read_text() if path.is_file() else ""):
        found.setdefault(party, {})[int(batch)] = float(score)  # a run that went on has written a batch twice, alike
    return [sorted(of_party.items()) for of_party in found.values()]


def noticed(run: Sequence[Scores], policy: str, window: int, threshold: float) -> int | None:
    """The first batch with an alarm at any party; None for no alarm."""
    batches = []
    for scores in run:
        values = [score for _, score in scores]
        ends = (end for end in range(len(values)) if alarm(values[: end + 1], policy, window, threshold))
        batches += [scores[end][0] for end in [next(ends, None)] if end is not None]
    return min(batches, default=None)


def groups(line: Line) -> tuple[list[list[Scores]], list[list[Scores]]]:
    """Scores of the runs in which a party cheats, and of honest ones, also of those beside."""
    cheating = [scores_in(run.folder) for run in line.runs if run.adversaries]
    honest = [scores_in(run.folder) for run in line.runs if not run.adversaries]
    honest += [scores_in(run.folder / HONEST) for run in line.runs if run.adversaries]
    return [run for run in cheating if run], [run for run in honest if run]


def row(line: Line, policy: str, window: int, threshold: float) -> dict[str, Any]:
    cheating, honest = groups(line)
    batches = [batch for run in cheating if (batch := noticed(run, policy, window, threshold)) is not None]
    alarms = sum(noticed(run, policy, window, threshold) is not None for run in honest)
    return {"noticed": len(batches), "of": len(cheating), "batches": batches, "alarms": alarms, "honest": len(honest)}


def table(made: Sequence[Line], by: Sequence[str], policies: Sequence[str], window: int, thresholds: Sequence[float]) -> str:
    heads = [*by, "policy", "threshold", "noticed", "at batch", "false alarms"]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for line in made:
        for policy in policies:
            for threshold in thresholds:
                one = row(line, policy, window, threshold)
                at = one["batches"]
                when = f"{statistics.median(at):g} ({min(at)} .. {max(at)})" if at else "never"
                shares = [f"{one['noticed']} of {one['of']}", when, f"{one['alarms']} of {one['honest']}"]
                rows.append(f"| {' | '.join([*map(str, line.options), policy, f'{threshold:g}', *shares])} |")
    return "\n".join(rows)


def draw(made: Sequence[Line], by: Sequence[str], policy: str, window: int, file: Path) -> None:
    thresholds = [i / 50 for i in range(1, 50)]
    canvas = Figure(figsize=(9, 3.6), layout="constrained")
    shares, steps = canvas.subplots(1, 2)
    for number, line in enumerate(made):
        rows = [row(line, policy, window, threshold) for threshold in thresholds]
        named = (f"{option.rsplit('.', 1)[-1]}={value}" for option, value in zip(by, line.options, strict=True))
        name, colour = ", ".join(named), f"C{number}"
        for axes, values in (
            (shares, [one["noticed"] / one["of"] if one["of"] else float("nan") for one in rows]),
            (steps, [statistics.median(one["batches"]) if one["batches"] else float("nan") for one in rows]),
        ):
            axes.plot(thresholds, values, color=colour, label=name)
        shares.plot(
            thresholds,
            [one["alarms"] / one["honest"] if one["honest"] else float("nan") for one in rows],
            color=colour,
            linestyle=":",
        )
    shares.set_ylabel("share of runs")
    shares.set_title("noticed (lines) and false alarms (dots)", loc="left", fontsize=9)
    steps.set_ylabel("median batch of the alarm")
    for axes in (shares, steps):
        axes.set_xlabel(f"threshold (policy {policy})")
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    steps.legend(fontsize=7, frameon=False)
    canvas.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--by", default="defense.split_guard.p_fake", help="options whose values make a line, with commas")
    parser.add_argument("--policy", nargs="+", choices=("fast", "average", "voting"), default=["average"])
    parser.add_argument("--window", type=int, default=10, help="scores of a mean or a group")
    parser.add_argument("--threshold", nargs="+", type=float, default=[0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    by = options.by.split(",")
    runs = [run for run in read_runs(options.folders) if scores_in(run.folder)]
    if not runs:
        parser.error(f"no finished run under {', '.join(map(str, options.folders))} has scores of split_guard")
    made = lines(runs, by)
    print(table(made, by, options.policy, options.window, options.threshold))
    if options.picture:
        draw(made, by, options.policy[0], options.window, options.picture)
        print(f"\n{options.picture}")


if __name__ == "__main__":
    main()
