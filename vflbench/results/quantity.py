"""A number of a run by its name: what the axes and columns of a report show."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflbench.results.levels import REFERENCE, level_of
from vflbench.results.runs import Run, mappings

LOWER_IS_BETTER = ("loss", "seconds", "bytes", "leak", "error")
"""Words in the names of quantities that are better the smaller they are."""
_ERRORS = ("mse", "hamming", "residual")
"""Words in the names of rebuilt figures that are large if the data were rebuilt badly."""

_OF_AUC = {
    "leak_auc": "reading",
    "leak_two_sided": "two_sided",
    "leak_raw": "raw",
    "leak_oriented": "oriented",
    "leak_net": "net",
    "leak_coin": "coin",
    "leak_distance": "distance",
}
_OF_CLASSES = {"leak_accuracy": "accuracy", "leak_ami": "ami", "leak_macro_auc": "macro_auc"}
LEAKS = (*_OF_AUC, *_OF_CLASSES)
NO_MESSAGE = "none"
"""The message of an attack that reads none."""
REBUILT = "rebuilt."

TITLES = {
    "test_auc": "test AUC",
    "train_auc": "train AUC",
    "test_accuracy": "test accuracy",
    "leak_auc": "leak AUC, worst attack",
    "leak_two_sided": "two-sided leak AUC",
    "leak_raw": "one-sided leak AUC",
    "leak_oriented": "oriented leak AUC",
    "leak_coin": "a coin's oriented leak AUC",
    "leak_net": "leak AUC net of a coin's",
    "leak_distance": "|leak AUC - 0.5|",
    "leak_accuracy": "accuracy of the worst attack",
    "leak_ami": "adjusted mutual information, worst attack",
    "leak_macro_auc": "macro AUC of the worst attack",
    "bytes_sent": "bytes sent in training",
    "seconds": "seconds",
    "rebuilt.recognised": "rebuilt pictures that are recognised",
    "rebuilt.entries_right": "entries of a private batch that are right",
}


def title(name: str) -> str:
    """The quantity in words, with the attack if the name has one (`leak_auc:norm`)."""
    head, _, attack = name.partition(":")
    words = TITLES.get(head, head.replace("_", " ").replace(".", " "))
    return f"{words.replace(', worst attack', '').replace('worst attack', attack)}, {attack}" if attack else words


def plain_title(name: str) -> str:
    """`title` without the words on the worst attack, for columns and axes that name the attack themselves."""
    return title(name).replace(", worst attack", "").replace(" of the worst attack", "")


def number(value: Any) -> float:
    """nan for a value that is not a number; null in a JSON file is a missing number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def mean_of(figure: Any) -> float:
    """Of {mean, low, high} the mean; a number is its own."""
    return number(figure.get("mean") if isinstance(figure, Mapping) else figure)


def leaks(run: Run) -> Iterator[Mapping[str, Any]]:
    """The leaks of the last epoch that name their attack and layer."""
    for leak in mappings(run.summary.get("leaks")):
        if "attack" in leak and "layer" in leak:
            yield leak


def label(leak: Mapping[str, Any]) -> str:
    """`norm on gradients`; the name alone of an attack that reads no message."""
    return attack_on(str(leak["attack"]), str(leak.get("message", "")))


def attack_on(attack: str, message: str) -> str:
    return attack if message in ("", NO_MESSAGE) else f"{attack} on {message}s"


def leak_value(leak: Mapping[str, Any], name: str) -> float:
    """name: one of LEAKS. `leak_auc` is what the leak counts as: max(two_sided, net), two_sided in runs that have no net."""
    if name in _OF_CLASSES:
        return number(((leak.get("classes") or {}).get(_OF_CLASSES[name]) or {}).get("mean"))
    figure = _OF_AUC[name]
    values = {name: number((leak.get(name) or {}).get("mean")) for name in ("raw", "two_sided", "oriented", "net")}
    if figure == "coin":
        return number(leak.get("coin"))
    if figure == "distance":
        return abs(values["raw"] - 0.5)
    if figure == "reading":
        return max((values[name] for name in ("two_sided", "net") if not math.isnan(values[name])), default=math.nan)
    return values[figure]


def level(leak: Mapping[str, Any], run: Run) -> str:
    """What its attacker knows beside the messages."""
    return level_of(str(leak["attack"]), run.threats)


def is_reference(leak: Mapping[str, Any], run: Run) -> bool:
    return leak.get("message") == NO_MESSAGE or level(leak, run) == REFERENCE


def counts(leak: Mapping[str, Any], run: Run, layer: str | None) -> bool:
    """Whether a leak counts.

    layer: None: a leak counts if it is at a cut layer of its party, and visible. `all`: if it is visible. A name: if it is
    at that layer, visible or not. An attack that reads no message always counts.
    """
    if leak.get("message") == NO_MESSAGE or (layer is None and level(leak, run) == REFERENCE):
        return True
    if layer == "all":
        return bool(leak.get("visible"))
    if layer is not None:
        return bool(leak["layer"] == layer)
    return bool(leak.get("visible")) and run.layers.crosses(str(leak.get("party", "")), str(leak["layer"]))


def by_attack(run: Run, name: str = "leak_auc", layer: str | None = None, *, reference: bool = False) -> dict[str, float]:
    """Label of the attack -> its leak at the party and layer where it is largest; nan if it is not defined.

    reference: the probe and attacks on own columns, in place of the others.
    """
    key = ("by_attack", name, layer, reference)
    if key not in run.computed:
        worst: dict[str, float] = {}
        for leak in leaks(run):
            if is_reference(leak, run) == reference and counts(leak, run, layer):
                value, old = leak_value(leak, name), worst.get(label(leak), math.nan)
                worst[label(leak)] = value if math.isnan(old) else old if math.isnan(value) else max(value, old)
        run.computed[key] = worst
    found: dict[str, float] = run.computed[key]
    return found


def value(run: Run, name: str, layer: str | None = None) -> float:
    """A quantity of a run; nan if the run does not have it.

    `leak_auc` and the like: the leak of the worst attack; `leak_auc:norm`: of that attack.
    `rebuilt.recognised`, `rebuilt.exact:ATTACK`: a figure of what was rebuilt from messages, the largest.
    Other names are dotted paths in summary.json. Of {mean, low, high} the value is the mean, of other mappings the sum:
    `bytes_sent` adds up all kinds of messages.
    """
    head, _, attack = name.partition(":")
    if head in LEAKS:
        by_name = by_attack(run, head, layer) | (by_attack(run, head, layer, reference=True) if attack else {})
        values = [v for key, v in by_name.items() if not attack or attack in (key, key.split(" on ")[0])]
        return max((v for v in values if not math.isnan(v)), default=math.nan)
    if head.startswith(REBUILT):
        return _rebuilt(run, head.removeprefix(REBUILT), attack)
    node: Any = run.summary
    for part in name.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    if isinstance(node, Mapping):
        node = node["mean"] if "mean" in node else math.fsum(v for v in map(number, node.values()) if not math.isnan(v))
    return number(node)


def _rebuilt(run: Run, figure: str, attack: str) -> float:
    values = [
        mean_of((entry.get("figures") or {}).get(figure))
        for entry in mappings(run.summary.get("reconstructions"))
        if entry.get("message") != NO_MESSAGE and attack in ("", entry.get("attack"))
    ]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def ceiling(run: Run, messages: str) -> float:
    """The lowest leak AUC that any of its defenses promises for `one_message` or `all_messages`; nan without a promise."""
    promises = (promise for promise in (run.summary.get("guarantees") or {}).values() if promise)
    heights = [number(promise.get(f"leak_auc_{messages}")) for promise in promises]
    return min((height for height in heights if not math.isnan(height)), default=math.nan)


def assumptions(runs: Iterable[Run]) -> str:
    """Sentences on what the ceilings of these runs assume, and what was found where it was tested; empty if nothing."""
    tested: dict[tuple[str, str], list[Any]] = {}
    for run in runs:
        for name, promise in (run.summary.get("guarantees") or {}).items():
            if promise and promise.get("assumption"):
                tested.setdefault((name, str(promise["assumption"])), []).append(promise.get("assumption_holds"))
    return "".join(
        f" The ceiling of {name} assumes that {what}, which does not hold in {answers.count(False)} of {len(answers)} runs."
        for (name, what), answers in tested.items()
    )


def is_better_low(name: str) -> bool:
    """Whether a small value is better: for utility and cost as usual, for leaks and rebuilt data in the sense of privacy."""
    if name.startswith(REBUILT):
        return not any(word in name for word in _ERRORS)
    return any(word in name for word in LOWER_IS_BETTER)
