"""A number of a run by its name: what the axes and the columns of a report are about."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from vflbench.results.report.sweep import Run

LOWER_IS_BETTER = ("loss", "seconds", "bytes", "leak", "error")
"""Words in the names of quantities that are better the smaller they are."""

_OF_AUC = {
    "leak_auc": "two_sided",
    "leak_two_sided": "two_sided",
    "leak_raw": "raw",
    "leak_oriented": "oriented",
    "leak_distance": "distance",
}
_OF_CLASSES = {"leak_accuracy": "accuracy", "leak_ami": "ami", "leak_macro_auc": "macro_auc"}
LEAKS = (*_OF_AUC, *_OF_CLASSES)
NO_MESSAGE = "none"
REBUILT = "rebuilt."

TITLES = {
    "test_auc": "test AUC",
    "train_auc": "train AUC",
    "test_accuracy": "test accuracy",
    "leak_auc": "two-sided leak AUC, worst attack",
    "leak_two_sided": "two-sided leak AUC",
    "leak_raw": "leak AUC",
    "leak_oriented": "oriented leak AUC",
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
    head, _, attack = name.partition(":")
    told = TITLES.get(head, head.replace("_", " ").replace(".", " "))
    return f"{told.replace(', worst attack', '').replace('worst attack', attack)}, {attack}" if attack else told


def number(value: Any) -> float:
    """nan for what is no number; null in a JSON file is one that is missing."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def cut(run: Run) -> str:
    model = run.config.get("model")
    return f"f{model['bottom_layers']}" if isinstance(model, Mapping) and "bottom_layers" in model else ""


def leaks(run: Run) -> Iterator[Mapping[str, Any]]:
    """The leaks of its last epoch that are whole."""
    for leak in run.summary.get("leaks") or ():
        if isinstance(leak, Mapping) and "attack" in leak and "layer" in leak:
            yield leak


def label(leak: Mapping[str, Any]) -> str:
    """`norm on gradients`; an attack that looks at no message, by its name alone."""
    message = str(leak.get("message", ""))
    return str(leak["attack"]) if message in ("", NO_MESSAGE) else f"{leak['attack']} on {message}s"


def leak_value(leak: Mapping[str, Any], name: str) -> float:
    """name: one of LEAKS."""
    if name in _OF_CLASSES:
        return number(((leak.get("classes") or {}).get(_OF_CLASSES[name]) or {}).get("mean"))
    figure = _OF_AUC[name]
    raw = number((leak.get("raw") or {}).get("mean"))
    return abs(raw - 0.5) if figure == "distance" else number((leak.get(figure) or {}).get("mean"))


def at(leak: Mapping[str, Any], run: Run, layer: str | None) -> bool:
    """Whether it counts: visible, at that layer (the cut, if left out; `all`: any); by name, a hidden layer as well."""
    if leak.get("message") == NO_MESSAGE:
        return True
    if layer == "all":
        return bool(leak.get("visible"))
    return leak["layer"] == (layer or cut(run)) and (bool(leak.get("visible")) or layer is not None)


def by_attack(run: Run, name: str = "leak_auc", layer: str | None = None, *, reference: bool = False) -> dict[str, float]:
    """Label of the attack -> the leak of the party and layer where it is largest; nan where it is not defined.

    reference: the attacks that look at no message, in place of the others.
    """
    found: dict[str, float] = {}
    for leak in leaks(run):
        if at(leak, run, layer) and (leak.get("message") == NO_MESSAGE) == reference:
            value, old = leak_value(leak, name), found.get(label(leak), math.nan)
            found[label(leak)] = value if math.isnan(old) else old if math.isnan(value) else max(value, old)
    return found


def value(run: Run, name: str, layer: str | None = None) -> float:
    """A leak of the worst attack (`leak_auc`) or of one (`leak_auc:norm`), or a number of summary.json by its dotted path.

    `rebuilt.recognised`, `rebuilt.exact:ATTACK` and so on: a figure of what was rebuilt from messages, the largest of them.
    `bytes_sent` is the sum over the kinds of messages; of a path that ends in {mean, low, high}, the mean.
    """
    head, _, attack = name.partition(":")
    if head in LEAKS:
        found = by_attack(run, head, layer) | (by_attack(run, head, layer, reference=True) if attack else {})
        values = [v for key, v in found.items() if not attack or attack in (key, key.split(" on ")[0])]
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
        number(((found.get("figures") or {}).get(figure) or {}).get("mean"))
        for found in run.summary.get("reconstructions") or ()
        if isinstance(found, Mapping) and found.get("message") != NO_MESSAGE and attack in ("", found.get("attack"))
    ]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def is_better_low(name: str) -> bool:
    return any(word in name for word in LOWER_IS_BETTER)
