"""What an attacker knows beside the messages: the levels that verdicts keep apart."""

from collections.abc import Mapping
from typing import Any

LEVELS = ("messages only", "known labels", "active")
"""Nothing but messages and class shares; known labels as well; a party that sends and learns as it likes at its own seat."""
REFERENCE = "reference"
"""The level of what is no verdict: the probe, and attacks on a party's own columns."""
GUESSES = ("mean", "class_mean", "random_row", "class_row", "best_draw", "own_columns", "own_linear")
"""Answers that need no message, in the order of the tables, which stand beside what an attack rebuilds."""
OF_THE_TRUTH = ("nearest_row", "true")
"""Answers that take the truth: what copying could reach at most, and what a perfect answer gets."""
PROBE = "probe"
OWN_COLUMNS = " (own columns)"
"""Follows the name of an attack that is run once more on the party's own columns."""
_AT_THE_END = " (epoch)"
_LABELS = ("known labels", "known positive", "known row", "the labels of")


def base_name(attack: str) -> str:
    """The name under which an attack was chosen, without what follows it in tables."""
    return attack.removesuffix(_AT_THE_END).removesuffix(OWN_COLUMNS).removesuffix(_AT_THE_END)


def level_of(attack: str, threats: Mapping[str, Any]) -> str:
    """The level that the manifest records; for older runs, which record none, from what the attacker knows."""
    name = attack.removesuffix(_AT_THE_END)
    if name.endswith(OWN_COLUMNS) or name in (PROBE, "no_message"):
        return REFERENCE
    threat = threats.get(name) or threats.get(base_name(attack)) or {}
    if "level" in threat:
        return str(threat["level"])
    if threat.get("active"):
        return LEVELS[2]
    knows = [str(fact) for fact in threat.get("knows") or ()]
    labels = any(word in fact for fact in knows for word in _LABELS)
    return LEVELS[1] if labels or threat.get("known_rows") or threat.get("hints") else LEVELS[0]


def knowledge(attack: str, threats: Mapping[str, Any]) -> str:
    """What it knows of the labels, for a sentence: `without labels`, `with 100 known labels`, `actively`."""
    level, threat = level_of(attack, threats), threats.get(base_name(attack)) or {}
    if level == LEVELS[0]:
        return "without labels"
    rows, hints = threat.get("known_rows") or 0, threat.get("hints") or 0
    known = [f"{rows} known labels"] if rows else []
    known += [f"{hints} known positive{'s' if hints > 1 else ''} a batch"] if hints else []
    labels = f"with {' and '.join(known)}" if known else "with known labels"
    if level == LEVELS[2]:
        return f"actively, {labels}" if known else "actively"
    return labels
