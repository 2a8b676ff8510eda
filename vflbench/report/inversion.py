"""Numbers of runs that rebuilt data, for the tables along options."""

import math
from collections.abc import Sequence

from vflbench.report.pictures import FIGURES, bits_per_row
from vflbench.results.runs import Run

__all__ = ["FIGURES", "attacks_that_rebuild", "beats_every_guess", "bits_per_row", "rebuilt"]


def rebuilt(run: Run, attack: str, figure: str, guess: str | None = None) -> float:
    """A figure of the last epoch: of what the attack rebuilt from messages, or of one of `GUESSES`; nan if there is none.

    Of several parties: the figure of whole pictures, else the mean over the parties.
    """
    entries = [
        entry
        for entry in run.summary.get("reconstructions", [])
        if entry["attack"] == attack and (entry["layer"] == guess if guess else entry["message"] != "none")
    ]
    entries = [entry for entry in entries if entry["party"].split(" by ")[0] == "all"] or entries
    values = [entry["figures"][figure]["mean"] for entry in entries if figure in entry["figures"]]
    values = [value for value in values if value is not None]
    return math.fsum(values) / len(values) if values else math.nan


def attacks_that_rebuild(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(entry["attack"] for run in runs for entry in run.summary.get("reconstructions", [])))


def beats_every_guess(run: Run, attack: str) -> bool | None:
    """Whether what it rebuilt of any party beats every guess without messages; None if that was not compared."""
    answers = [
        entry.get("beats_every_guess")
        for entry in [entry for entry in run.summary.reconstructions if entry.attack == attack]
    ]
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None
