"""What summary.json and the manifest say of leaks. It loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vflbench.metrics.leak import CLASS_FIGURES, Leak
from vflbench.metrics.verdict import reading, strength

if TYPE_CHECKING:
    from vflbench.metrics.reconstruction import Reconstruction


def leak_figures(leaks: Sequence[Leak]) -> dict[str, Any]:
    """The parts of summary.json about leaks: a tree a figure, and all of them as they are."""
    return {
        "leak_auc": _tree(leaks, "raw"),
        "leak_auc_two_sided": _tree(leaks, "two_sided"),
        **{f"leak_{figure}": _tree(leaks, figure) for figure in CLASS_FIGURES},
        "leaks": [asdict(leak) for leak in leaks],
    }


def leak_quantities(leaks: Sequence[Leak], reconstructions: Sequence[Reconstruction]) -> list[str]:
    """Names of what attacks came to."""
    names: list[str] = []
    for leak in leaks:
        figures = [f"leak_{figure}" for figure in leak.classes] + ([] if leak.of_classes else ["leak_auc"])
        names += [name for figure in figures for name in (figure, f"{figure}:{leak.attack}")]
    for rebuilt in reconstructions:
        names += [f"rebuilt.{figure}" for figure in rebuilt.figures if ":" not in figure]
    return sorted(set(names))


def _tree(leaks: Sequence[Leak], figure: str) -> dict[str, dict[str, dict[str, float]]]:
    """attack -> message -> layer -> that figure; of several parties with such a layer, of the one that learns most.

    figure: raw or two_sided of the leak AUC, or a name in CLASS_FIGURES; leaks that have none are left out.
    """
    worst: dict[tuple[str, str, str], Leak] = {}
    for leak in leaks:
        key = (leak.attack, leak.message, leak.layer)
        is_there = figure in leak.classes if figure in CLASS_FIGURES else not leak.of_classes
        if is_there and (key not in worst or _weight(leak) > _weight(worst[key])):
            worst[key] = leak
    tree: dict[str, dict[str, dict[str, float]]] = {}
    for (attack, message, layer), leak in worst.items():
        interval = leak.classes[figure] if figure in CLASS_FIGURES else getattr(leak, figure)
        tree.setdefault(attack, {}).setdefault(message, {})[layer] = interval.mean
    return tree


def _weight(leak: Leak) -> tuple[bool, float]:
    """Leaks that an attacker sees weigh more than hidden ones; an undefined leak (nan) weighs least."""
    if not leak.batches:
        return leak.visible, -math.inf
    one = reading(leak)
    return leak.visible, strength(one.figure, one.value)
