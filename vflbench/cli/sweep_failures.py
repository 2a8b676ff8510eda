"""What is said of the failed runs of a sweep at its end."""

from collections.abc import Iterable
from pathlib import Path

_MOST_ALIKE = 10
"""Runs that failed for the same reason, of which the folders are listed."""


def failures_text(failed: Iterable[tuple[str, str, Path]]) -> str:
    """Each reason once, and the folders. failed: of each run, the overrides of its own, the reason and the folder."""
    by_reason: dict[str, list[tuple[str, Path]]] = {}
    for words, reason, folder in failed:
        by_reason.setdefault(reason, []).append((words, folder))
    lines: list[str] = []
    for reason, runs in by_reason.items():
        if len(runs) == 1:
            lines += ["", f"failed: {runs[0][0]}", f"  {reason}", f"  {runs[0][1]}"]
            continue
        lines += ["", f"failed: {len(runs)} runs", f"  {reason}"]
        lines += [f"  {words}: {folder}" for words, folder in runs[:_MOST_ALIKE]]
        lines += [f"  and {len(runs) - _MOST_ALIKE} more"] * (len(runs) > _MOST_ALIKE)
    return "\n".join(lines)
