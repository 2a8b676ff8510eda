"""When split_guard notices a label party that cheats, and how often it accuses an honest one.

The scores in the log of each run, and of the honest run beside it, are read, and each policy is applied to them at each
threshold: no run is computed again.
"""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from vflbench.numerics.alarm import POLICIES, alarm
from vflbench.report.groups import Group
from vflbench.report.sections import Section
from vflbench.results.files import HONEST, LOG
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table
from vflbench.results.untrusted import Unreadable, read_head

DEFENSE = "split_guard"
THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
_WINDOW = 10  # of a run that names none
_MOST_LOG = 16_000_000
_MOST_SCORES = 20_000  # of a party
_SCORE = re.compile(r"party (\S{1,200}): split_guard score (\d{1,3}(?:\.\d{1,20})?) at batch (\d{1,12})$", re.MULTILINE)
Scores = list[tuple[int, float]]
"""Batch and score of each fake batch."""


@dataclass(frozen=True)
class Alarms:
    """Of `cheating` runs those that noticed did so at these batches; of `honest` ones `false_alarms` accused somebody."""

    batches: tuple[int, ...]
    cheating: int
    false_alarms: int
    honest: int


def guarded_groups(section: Section) -> list[Group]:
    return [g for g in section.groups if DEFENSE in (g.config.get("defense") or {})]


def alarms(group: Group, policy: str, threshold: float) -> Alarms:
    cheating, honest = scores_of(group)
    window = window_of(group)
    batches = [batch for run in cheating if (batch := noticed(run, policy, window, threshold)) is not None]
    accused = sum(noticed(run, policy, window, threshold) is not None for run in honest)
    return Alarms(tuple(batches), len(cheating), accused, len(honest))


def window_of(group: Group) -> int:
    window = ((group.config.get("defense") or {}).get(DEFENSE) or {}).get("window")
    return window if isinstance(window, int) and window > 0 else _WINDOW


def scores_of(group: Group) -> tuple[list[list[Scores]], list[list[Scores]]]:
    """Of the runs in which a party cheats, and of honest ones, also of those beside; runs without scores are left out."""
    cheating = [_scores(run, run.folder) for run in group.runs if run.adversaries]
    honest = [_scores(run, run.folder) for run in group.runs if not run.adversaries]
    honest += [_scores(run, run.folder / HONEST) for run in group.runs if run.honest is not None]
    return [run for run in cheating if run], [run for run in honest if run]


def _scores(run: Run, folder: Path) -> list[Scores]:
    """Those of each party; none where it has none."""
    key = ("split_guard", folder.name == HONEST)
    if key not in run.computed:
        try:
            text = read_head(folder / LOG, _MOST_LOG)
        except (OSError, Unreadable):
            text = ""
        found: dict[str, dict[int, float]] = {}
        for party, score, batch in _SCORE.findall(text):
            found.setdefault(party, {})[int(batch)] = float(score)  # a run that went on has written a batch twice, alike
        run.computed[key] = [sorted(of_party.items())[:_MOST_SCORES] for of_party in found.values()]
    scores: list[Scores] = run.computed[key]
    return scores


def noticed(run: list[Scores], policy: str, window: int, threshold: float) -> int | None:
    """The first batch with an alarm at any party; None for no alarm."""
    batches = []
    for scores in run:
        values = [score for _, score in scores]
        ends = (end for end in range(len(values)) if alarm(values[: end + 1], policy, window, threshold))
        batches += [scores[end][0] for end in [next(ends, None)] if end is not None]
    return min(batches, default=None)


def alarm_table(section: Section) -> Table:
    """A line for each setting, policy and threshold."""
    rows = []
    for group in guarded_groups(section):
        if not any(scores_of(group)):
            continue
        for policy in POLICIES:
            for threshold in THRESHOLDS:
                one = alarms(group, policy, threshold)
                at = one.batches
                when = [statistics.median(at), min(at), max(at)] if at else [None, None, None]
                counts = [f"{len(at)} of {one.cheating}", *when, f"{one.false_alarms} of {one.honest}"]
                rows.append([group.name, policy, window_of(group), threshold, *counts])
    columns = (
        *("setting", "policy", "window", "threshold", "noticed", "at batch (median)", "first", "last"),
        "false alarms",
    )
    note = (
        "Runs with an adversary that were noticed, and at which batch; honest runs, also those beside the others, that "
        "raised an alarm. Each policy at each threshold is applied to the scores in the logs."
    )
    return Table(f"{section.slug}_alarms", "When split_guard raises an alarm", columns, rows, note)
