"""What other kinds of messages give away than that of the worst attack."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.report.plain_numbers import auc_text, mean, percent
from vflbench.report.worst_reading import counts, knows_words, read_by, worst_of
from vflbench.results import quantity
from vflbench.results.levels import LEVELS
from vflbench.results.runs import Run


def other_messages(runs: Sequence[Run], figure: str) -> list[str]:
    """What other kinds of messages give away to attacks that know no more than the worst one.

    Each kind where the worst attack reads another one in some seeds. `embeddings of party a 64 % with 100 known labels`: the
    party where it is not that of the worst, and what is known of the labels where anything is, also by the worst.
    """
    worst = {worst_of(run)["message"] for run in runs}
    kinds = dict.fromkeys(str(leak["message"]) for run in runs for leak in quantity.leaks(run) if counts(leak, run))
    made = []
    for kind in kinds:
        best = [(_strongest(run, figure, kind), run) for run in runs]
        given = [(leak, run) for leak, run in best if leak is not None]
        if worst != {kind} and given:
            value = mean([read_by(leak, figure) for leak, _ in given])
            share = auc_text(value) if figure == "AMI" else percent(value)
            made.append(f"{kind}s{_other_party(given)} {share}{_other_knowledge(given)}")
    return made


def _strongest(run: Run, figure: str, message: str) -> Mapping[str, Any] | None:
    """The strongest reading of messages of this kind by an attack that knows no more than the worst of the run.

    Of equal ones that of an attack that knows less, then that at the party of the worst.
    """
    level = LEVELS.index(_level(worst_of(run), run))
    among = [
        leak
        for leak in quantity.leaks(run)
        if counts(leak, run) and leak["message"] == message and LEVELS.index(_level(leak, run)) <= level
    ]
    known = [leak for leak in among if not math.isnan(read_by(leak, figure))]
    party = worst_of(run)["party"]
    return max(
        known,
        key=lambda leak: (read_by(leak, figure), -LEVELS.index(_level(leak, run)), leak.get("party") == party),
        default=None,
    )


def _level(leak: Mapping[str, Any], run: Run) -> str:
    level = quantity.level(leak, run)
    return level if level in LEVELS else LEVELS[-1]


def _other_party(given: Sequence[tuple[Mapping[str, Any], Run]]) -> str:
    """` of party a`, where there are several parties, and it is neither that of the worst attack nor differs over seeds."""
    several = any(len(run.layers.cut) > 1 for _, run in given)
    parties = {str(leak.get("party")) for leak, _ in given}
    if not several or len(parties) > 1 or parties == {str(worst_of(run)["party"]) for _, run in given}:
        return ""
    return f" of party {parties.pop()}"


def _other_knowledge(given: Sequence[tuple[Mapping[str, Any], Run]]) -> str:
    """` with 100 known labels`, ` without labels` where the worst attack knows some; nothing where neither knows any."""
    words = dict.fromkeys(knows_words(str(leak["attack"]), run) for leak, run in given)
    if not any(words) and not any(knows_words(str(worst_of(run)["attack"]), run) for _, run in given):
        return ""
    return f" {' or '.join(word or 'without labels' for word in words)}"
