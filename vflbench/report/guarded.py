"""Keeps one run whose values can't be shown from ending a report.

What a file may hold is checked when it is read (`vflbench.results.schema`). This is for what is noticed only when a table, a
chart or a sentence is made.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from vflbench.errors import UserError
from vflbench.results.runs import Oddity, Run
from vflbench.results.untrusted import shown

T = TypeVar("T")


def without_bad_runs(runs: Sequence[Run], make: Callable[[Sequence[Run]], T]) -> tuple[T, list[Run], list[Oddity]]:
    """What `make` returns for the runs, those that it could be made of, and why it could not be of the others.

    First those are left out that fail alone, then each that fails beside those before it. Raises UserError if `make` does.
    """
    kept, odd = list(runs), []
    outcome = _tried(kept, make)
    if isinstance(outcome, _Failure):
        wrong = {id(run): reason for run in kept if (reason := _error([run], make)) is not None}
        odd = [_oddity(run, wrong[id(run)]) for run in kept if id(run) in wrong]
        kept = [run for run in kept if id(run) not in wrong]
        outcome = _tried(kept, make)
    while isinstance(outcome, _Failure):
        if not kept:
            raise outcome.error
        low, high = 0, len(kept)  # the first `low` can be shown, the first `high` can't
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _error(kept[:middle], make) else (middle, high)
        odd.append(_oddity(kept.pop(high - 1), outcome.error))
        outcome = _tried(kept, make)
    return outcome, kept, odd


@dataclass(frozen=True)
class _Failure:
    error: Exception


def _error(runs: Sequence[Run], make: Callable[[Sequence[Run]], T]) -> Exception | None:
    """How `make` fails for a part of the runs, if it does."""
    with suppress(UserError):
        outcome = _tried(runs, make)
        return outcome.error if isinstance(outcome, _Failure) else None
    return None


def _tried(runs: Sequence[Run], make: Callable[[Sequence[Run]], T]) -> T | _Failure:
    """What `make` returns, or how it fails. Raises UserError if `make` does."""
    try:
        return make(runs)
    except UserError:  # what the user asked for, which is no fault of a run
        raise
    except Exception as error:  # whatever it is: the other runs are to be shown
        return _Failure(error)


def _oddity(run: Run, error: Exception) -> Oddity:
    return Oddity("unreadable", run.folder, shown(f"it can't be shown: {type(error).__name__}: {error}", 300))
