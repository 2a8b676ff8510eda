"""The verdict in a sentence: what can be read from what a party received, beside a coin and the model itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vflbench.results import quantity
from vflbench.results.levels import LEVELS, base_name
from vflbench.results.runs import Run, mappings

_SEEN = ("embedding", "prediction")
"""Messages that a party computes itself, or both of them: it doesn't only receive them."""
_COLUMN = "attribute_auc"
_REBUILT = {
    "labels_right": ("of the labels", "guess_labels_right"),
    "entries_right": ("of the entries", "guess_entries_right"),
    "recognised": ("of the pictures recognised", ""),
    "id_accuracy": ("of the category ids", ""),
}
"""Shares of rebuilt data -> words, and the figure of a guess beside them."""


def verdict_block(run: Run, *, gates: Sequence[str] = ()) -> list[str]:
    """The first lines of a result: the sentence, how to read it, and of an audit what was not run and must be known.

    Empty for a run of an older version, which records no worst attack.

    gates: what thresholds came to, a line each.
    """
    verdict = run.summary.get("verdict")
    if not isinstance(verdict, Mapping) or "worst" not in verdict:
        return list(gates)
    lines = [sentence(run), *gates]
    if verdict["worst"]:
        lines.append(legend(verdict["worst"]))
        lines += rebuilt_sentences(run)
    return lines + ([*_promise(run), *not_run(run), *map(_note, run.manifest.get("notes") or ())] if run.is_audit else [])


def _promise(run: Run) -> list[str]:
    """What the messages show against the label DP that the recording claims."""
    observed = run.summary.get("observed_privacy")
    return [str(observed.get("verdict", ""))] if isinstance(observed, Mapping) else []


def _note(line: Any) -> str:
    """What a recording's reader must know, as that its values are of half precision."""
    text = str(line)
    is_name = "." in text.split(" ")[0]
    return f"{text if is_name else text[:1].upper() + text[1:]}."


def sentence(run: Run) -> str:
    """What the worst attack reads, beside a coin and the model. Of a run that reads no labels: what it rebuilds."""
    worst = (run.summary.get("verdict") or {}).get("worst")
    if worst:
        return f"{_reads(worst, run)} Worst attack: {_attack(worst, run)}; {needs(worst['attack'], run)}."
    rebuilt = list(rebuilt_sentences(run))
    if rebuilt:
        return " ".join(rebuilt)
    what = "audit" if run.is_audit else "run"
    if not {*run.skipped, *run.unscored}:
        return f"No attack on messages was chosen, so this {what} says nothing about what they give away."
    return f"No attack on messages could be scored, so this {what} says nothing about what they give away."


def _reads(worst: Mapping[str, Any], run: Run) -> str:
    figure, low = worst["figure"], quantity.number(worst.get("low"))
    start = f"From what party {worst['party']} {'sees' if worst['message'] in _SEEN else 'received'},"
    value = f"{worst['value']:.2f} ({_interval(worst)})"
    name = {"AUC": "AUC", "macro AUC": "macro AUC", "AMI": "adjusted mutual information"}[figure]
    ranked = "labels can be ranked" if figure == "AUC" else "classes can be distinguished"
    if low <= (0 if figure == "AMI" else 0.5):
        told = "ranks the labels" if figure == "AUC" else "distinguishes the classes"
        text = f"{start} no attack that was run {told} significantly better than a coin: the worst reads {name} {value}; "
    else:
        text = f"{start} {ranked} with {name} {value}; "
    if figure == "AMI":
        accuracy = quantity.number(run.summary.get("test_accuracy"))
        beside = "" if math.isnan(accuracy) else f". The model itself classifies {accuracy:.0%} of new rows correctly"
        return f"{text}a coin has 0, the classes themselves 1{beside}."
    auc = quantity.number(run.summary.get("test_auc"))
    beside = "" if math.isnan(auc) else f", the model itself {auc:.2f} on new rows"
    return f"{text}a coin has 0.50{beside}."


def _interval(worst: Mapping[str, Any]) -> str:
    low, high = quantity.number(worst.get("low")), quantity.number(worst.get("high"))
    if math.isnan(low) or math.isnan(high):
        return "from a single batch: no interval"
    return f"{low:.2f} to {high:.2f}"


def legend(worst: Mapping[str, Any]) -> str:
    """How the sentence is to be read."""
    of = {"AUC": "AUC: max(a, 1 - a) of the mean over batches, or what an attacker reads who knows in each batch which end "}
    of["AUC"] += "is positive, less what a coin reaches in this way. The larger value counts."
    of["macro AUC"] = of["AMI"] = "The value is the stronger of adjusted mutual information and macro AUC."
    text = f"The worst of all attacks, layers and directions of the last epoch. {of[worst['figure']]}"
    if math.isnan(quantity.number(worst.get("low"))):
        return text
    return (
        f"{text} Interval: 95 % for the worst of all {worst['readings']} readings, whichever it is (Bonferroni): from their "
        "highest low end to their highest high end. The named attack alone has the interval of its row."
    )


def _attack(worst: Mapping[str, Any], run: Run) -> str:
    party, layer = str(worst["party"]), str(worst["layer"])
    cut = run.layers.cut.get(party, ())
    where = f"at layer {layer}"
    if layer in cut:
        where = "at the cut" if len(cut) == 1 else f"at the cut, layer {layer}"
    return f"{worst['attack']} on {worst['message']}s {where}"


def needs(attack: str, run: Run) -> str:
    """What the attacker needs: `it needs no label`, `it knows the labels of 20 rows`."""
    threat = run.threats.get(attack) or run.threats.get(base_name(attack)) or {}
    level = quantity.level({"attack": attack}, run)
    rows, hints = threat.get("known_rows") or 0, threat.get("hints") or 0
    known = [f"the labels of {rows} rows"] if rows else []
    known += [f"{hints} positive{'s' if hints > 1 else ''} of each batch"] if hints else []
    known += [fact for fact in map(str, threat.get("knows") or ()) if fact.startswith("one known row of each class")]
    knows = f"it knows {' and '.join(known)}" if known else ""
    if level == LEVELS[2]:
        cheats = ", ".join(run.adversaries)
        return f"it deviates from the protocol{f' ({cheats})' * bool(cheats)}" + (f", and {knows}" if knows else "")
    return knows or ("it needs no label" if level == LEVELS[0] else "it knows labels of some rows")


def rebuilt_sentences(run: Run) -> Iterator[str]:
    """A sentence on each attack that rebuilt data from messages: where it rebuilt most."""
    entries = mappings(run.summary.get("reconstructions"))
    of_messages = [entry for entry in entries if entry.get("message") != quantity.NO_MESSAGE and entry.get("visible", True)]
    for attack in dict.fromkeys(str(entry["attack"]) for entry in of_messages):
        mine = [entry for entry in of_messages if entry["attack"] == attack]
        yield from (_read_column(entry) for entry in mine if _is_there(entry, _COLUMN))
        mine = [entry for entry in mine if not _is_there(entry, _COLUMN)]
        if not mine:
            continue
        entry = max(
            mine, key=lambda one: max((_mean(one, figure) for figure in _REBUILT if _is_there(one, figure)), default=-1.0)
        )
        shares = [_share(entry, figure, entries) for figure in _REBUILT if _is_there(entry, figure)]
        errors = [f"{figure} {_mean(entry, figure):.3g}" for figure in ("r2", "mse") if _is_there(entry, figure)]
        seat = str((run.threats.get(attack) or {}).get("seat") or "")
        who = {"participant": "a participant", "label party": "the label party"}.get(seat, "a non-label party")
        known = [*(shares or errors[:1]), *_identified(entry, entries)]
        shown = ", ".join(known) or "nothing that could be measured"
        owner, _, attacker = str(entry["party"]).partition(" by ")
        who = f"party {attacker}" if attacker else who
        read = "the joint model's predictions" if entry.get("message") == "prediction" else f"what {who} received"
        yield f"From {read}, {attack} rebuilds data of party {owner}: {shown}.{_against_guesses(entry)}"


def _identified(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> list[str]:
    if not _is_there(entry, "identified"):
        return []
    words = f"{_mean(entry, 'identified'):.0%} identified among rows of their class"
    chance = [_mean(one, "identified") for one in _guesses_beside(entry, entries) if one.get("layer") == "chance"]
    return [words + (f" (by chance: {chance[0]:.0%})" if chance else "")]


def _against_guesses(entry: Mapping[str, Any]) -> str:
    """A sentence on whether it beats every guess without messages; empty where it wasn't compared."""
    beats = entry.get("beats_every_guess")
    if beats is None:
        return ""
    if beats:
        return " It beats every guess without messages."
    margins = entry.get("beats_guesses") or {}
    better = [guess.replace("_", " ") for guess, margin in margins.items() if not (margin or {}).get("beats")]
    if better:
        return f" It does not significantly beat every guess without messages: {', '.join(better)}."
    return (
        " It beats the error of every guess, but rows are not distinguished from others of their class: no message was read."
    )


def _guesses_beside(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    mine = (entry["attack"], entry["party"])
    none = quantity.NO_MESSAGE
    return [one for one in entries if one.get("message") == none and (one.get("attack"), one.get("party")) == mine]


def _read_column(entry: Mapping[str, Any]) -> str:
    """An attack on a column that is no label."""
    area, gain = _mean(entry, _COLUMN), _mean(entry, "attribute_gain")
    return (
        f"From what the label party received, {entry['attack']} reads a column of party {entry['party']}, "
        f"{entry['layer']}, with AUC {area:.3f}; without messages it reads {area - gain:.3f}."
    )


def _is_there(entry: Mapping[str, Any], figure: str) -> bool:
    return not math.isnan(_mean(entry, figure))


def _mean(entry: Mapping[str, Any], figure: str) -> float:
    return quantity.mean_of((entry.get("figures") or {}).get(figure))


def _share(entry: Mapping[str, Any], figure: str, entries: Sequence[Mapping[str, Any]]) -> str:
    words, guess = _REBUILT[figure]
    same = _guesses_beside(entry, entries)
    beside = [("a guess", _mean(entry, guess))] if guess else []
    for name, layer in (("a row by chance", "random_row"), ("the class mean", "class_mean")) if not guess else ():
        beside += [(name, _mean(one, figure)) for one in same if one.get("layer") == layer]
    known = ", ".join(f"{name}: {value:.0%}" for name, value in beside if not math.isnan(value))
    return f"{_mean(entry, figure):.0%} {words}" + (f" ({known})" if known else "")


def not_run(run: Run) -> list[str]:
    """A line for each reason why attacks were not run, or not scored: most attacks first."""
    made = []
    for what, reasons in (("Not run", run.skipped), ("Not scored", run.unscored)):
        groups: dict[str, list[str]] = {}
        for attack, reason in reasons.items():
            groups.setdefault(reason, []).append(attack)
        for reason, attacks in sorted(groups.items(), key=lambda item: -len(item[1])):
            made.append(f"{what}: {', '.join(attacks)}: {reason}.")
    return made
