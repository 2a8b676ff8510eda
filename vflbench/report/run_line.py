"""A finished run in a few words, for a line of a sweep: what leaks, and what the model is worth."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from vflbench.report.plain_numbers import auc_text, percent
from vflbench.results import quantity
from vflbench.results.runs import mappings

_REBUILT = {
    "entries_right": "{} of the entries rebuilt",
    "recognised": "{} of the pictures recognised",
    "id_accuracy": "{} of the ids rebuilt",
    "labels_right": "{} of the labels rebuilt",
}


def run_line(summary: Mapping[str, Any]) -> str:
    """`leak AUC 0.912 (norm at party b's layer f4), test AUC 0.788`, the party where there are several.

    What a summary lacks, or holds in another form, is left out.
    """
    verdict = summary.get("verdict")
    worst = verdict.get("worst") if isinstance(verdict, Mapping) else None
    parts = []
    if isinstance(worst, Mapping):
        where = _where(worst, _parties(summary))
        parts.append(f"leak {worst.get('figure')} {_three(quantity.number(worst.get('value')))} ({where})")
    parts += _rebuilt(summary)
    parts.append(f"test AUC {_three(quantity.number(summary.get('test_auc')))}")
    return ", ".join(parts)


def _where(worst: Mapping[str, Any], parties: Collection[str]) -> str:
    """The party is named where there are several."""
    layer = worst.get("layer")
    whose = f"party {worst.get('party')}'s " if len(parties) > 1 else ""
    return f"{worst.get('attack')} at {whose}layer {layer}" if layer else str(worst.get("attack"))


def _parties(summary: Mapping[str, Any]) -> set[str]:
    """The parties whose layers an attacker sees."""
    return {str(leak.get("party")) for leak in mappings(summary.get("leaks")) if leak.get("visible")}


def _rebuilt(summary: Mapping[str, Any]) -> list[str]:
    """The strongest of what was rebuilt, of the first figure that there is."""
    entries = [one for one in mappings(summary.get("reconstructions")) if one.get("message") != quantity.NO_MESSAGE]
    for figure, words in _REBUILT.items():
        values = [(quantity.mean_of((one.get("figures") or {}).get(figure)), one.get("attack")) for one in entries]
        known = [pair for pair in values if not math.isnan(pair[0])]
        if known:
            share, attack = max(known, key=lambda pair: pair[0])
            return [f"{words.format(percent(share))} ({attack})"]
    return []


def _three(value: float) -> str:
    return auc_text(value) if math.isnan(value) or value > 0.9995 else f"{value:.3f}"
