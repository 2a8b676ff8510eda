"""The last lines of table.txt: test AUC, the worst attack at each level, and whether the defenses stand."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vflbench.numerics.digits import apart
from vflbench.report.picture_rows import NO_MESSAGE
from vflbench.results.levels import LEVELS, knowledge
from vflbench.results.runs import AS_RECORDED, Run, mappings

NOBODY = "no defense"
LABEL_PRIVACY = "what the messages add about one row, given everything else"


def verdict_lines(run: Run) -> list[str]:
    """Leaks above a ceiling first; then the verdict. None for a run of an older version.

    With an interval for what the worst of a level truly reads, whichever attack it is (`metrics.verdict.worst`).
    """
    verdict = run.summary.get("verdict")
    if not isinstance(verdict, Mapping):
        return []
    promises = (run.summary.get("guarantees") or {}).items()
    lines = [exceeded_line(name, promise, run) for name, promise in promises if promise and promise.get("exceeded")]
    return [*lines, _verdict(run, verdict)]


def exceeded_line(defense: str, promise: Mapping[str, Any], run: Run) -> str:
    """What is above a defense's ceiling, and what that means."""
    worst, *others = promise["exceeded"]
    more = f", and {len(others)} more leaks are above it" if others else ""
    low, ceiling = apart(worst["low"], worst["ceiling"])
    what = (
        f"{worst['attack']}, {knowledge(worst['attack'], run.threats)}, reads {_value(worst)} of {_place(worst)}, at least "
        f"{low}, above the ceiling of {ceiling}{more}"
    )
    if promise["bounds"] == LABEL_PRIVACY:
        return (
            f"{defense}: {what}. This breaks no promise: the ceiling is on {LABEL_PRIVACY}, and features predict labels "
            "as well; canaries measure what it bounds"
        )
    refused = promise.get("assumption_holds") is False
    why = f", whose assumption does not hold here: {promise['assumption']}" if refused else ""
    return f"ABOVE THE CEILING of {defense}{why}; {what}"


def _verdict(run: Run, verdict: Mapping[str, Any]) -> str:
    falls, levels, references = verdict.get("falls"), verdict["levels"], verdict["references"]
    who, changed = (
        "+".join(run.summary.get("guarantees") or {}) or (AS_RECORDED if run.is_audit else NOBODY),
        verdict.get("changed", ()),
    )
    on_changed = verdict.get("on_changed") or {}
    cheats = [f"{name} cheats at party {one.get('party')}" for name, one in run.adversaries.items()]
    parts = [*cheats, f"test AUC {_digits(run.summary.get('test_auc'), 3)}"]
    parts = cheats if run.is_audit and run.summary.get("test_auc") is None else parts
    for level in LEVELS:
        if level in levels:
            part = f"{knowledge(levels[level]['attack'], run.threats)} {_reads(levels[level])}"
            if levels[level]["message"] not in changed and who not in (NOBODY, AS_RECORDED):
                part += f", which {who} leaves as they are"
            if level in on_changed:
                part += f" ({_reads(on_changed[level])})"
            parts.append(part)
    rebuilt = list(_rebuilt(run))
    parts += rebuilt or ([] if levels else ["no attack on messages was scored"])
    parts += [f"{name} {_value(one, 3)}" for name, one in references.items()]
    text = "; ".join(parts)
    if falls:
        return f"{who} FALLS to {falls['attack']}, which reads {_value(falls)}, {falls['because']}: {text}"
    return f"{who}: {text}"


def _rebuilt(run: Run) -> Iterator[str]:
    """What each attack rebuilt from messages, in a few words: where it beat every guess, if it did anywhere."""
    entries = mappings(run.summary.get("reconstructions"))
    compared = [
        one for one in entries if isinstance(one.get("beats_every_guess"), bool) and one.get("message") != NO_MESSAGE
    ]
    for attack in dict.fromkeys(one["attack"] for one in compared):
        beaten = [one["party"] for one in compared if one["attack"] == attack and one["beats_every_guess"]]
        yield (
            f"{attack} rebuilds {', '.join(dict.fromkeys(beaten))} better than every guess"
            if beaten
            else (f"{attack} does not significantly beat every guess")
        )


def _reads(one: Mapping[str, Any]) -> str:
    alone = one.get("own_columns")
    beside = "" if alone is None else f", own columns {alone:.3f}"
    return f"{one['attack']} reads {_value(one)} {interval_text(one)} of {_place(one)}{beside}"


def interval_text(one: Mapping[str, Any]) -> str:
    low = one.get("low")
    return "(one batch: no interval)" if low is None or math.isnan(low) else f"(the worst: {low:.3f} .. {one['high']:.3f})"


def _place(one: Mapping[str, Any]) -> str:
    return f"{one['message']}s at {one['party']} {one['layer']}"


def _value(one: Mapping[str, Any], digits: int = 4) -> str:
    unit = "" if one["figure"] == "AUC" else f"{one['figure']} "
    return f"{unit}{_digits(one['value'], digits)}"


def _digits(value: Any, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) and not math.isnan(value) else "undefined"
