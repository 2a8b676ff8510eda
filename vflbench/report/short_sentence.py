"""A result in one sentence: what share of label pairs the messages give away, beside a coin and the model itself."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.numerics.interval import Interval
from vflbench.report.other_messages import other_messages
from vflbench.report.plain_numbers import auc_text, mean, percent
from vflbench.report.readings import over_seeds
from vflbench.report.rebuilt_words import rebuilt_words
from vflbench.report.worst_reading import (
    COIN,
    WHAT,
    WORST_OF_ALL,
    counts,
    knows_words,
    place_of,
    read_by,
    says_nothing,
    verdict_of,
    worst_of,
)
from vflbench.results import quantity
from vflbench.results.levels import level_of
from vflbench.results.runs import Run


def short_sentence(runs: Sequence[Run]) -> str:
    """What the worst attack of one setting reads, or what was rebuilt; empty for runs that record no verdict.

    runs: of one setting, one a seed; values are means over them. `Gradients at the cut give 91 % of label pairs away (AUC
    0.91; a coin 0.50); embeddings 79 %; the model itself 0.79 on new rows.` A leak AUC of a is the share a of the pairs of a
    positive and a negative that the attack puts in the right order. For more than two classes: the AUC of each class against
    the rest, or adjusted mutual information.
    """
    if not runs or not all(isinstance(run.summary.get("verdict"), Mapping) and "worst" in verdict_of(run) for run in runs):
        return ""
    read = [run for run in runs if verdict_of(run)["worst"]]
    several = f" (mean of {len(runs)} seeds)" if len(runs) > 1 else ""
    if not read:
        rebuilt = rebuilt_words(runs)
        return f"{' '.join(rebuilt)}{several}" if rebuilt else _nothing(runs[0])
    figure = str(verdict_of(max(read, key=lambda run: _strength(verdict_of(run)["worst"])))["worst"]["figure"])
    over = over_seeds([_reading(run, figure) for run in read])
    parts = [_reads(figure, read, over)] if over else []
    if over and (math.isnan(over.low) or over.low > COIN[figure]):
        parts += other_messages(read, figure)
    parts += _model(runs, figure)
    return f"{'; '.join(parts)}{several}."


def _reads(figure: str, runs: Sequence[Run], over: Interval) -> str:
    """What is read over the seeds, and where: the worst of each seed, whose places are all named where they differ."""
    worsts = [worst_of(run) for run in runs]
    differ = len({tuple(worst[key] for key in (*WHAT, "layer")) for worst in worsts}) > 1
    each = ", the worst of each seed," if len({worst["message"] for worst in worsts}) > 1 else ""
    words = dict.fromkeys(knows_words(str(w["attack"]), run) for w, run in zip(worsts, runs, strict=True))
    knows = " or ".join(word or "without labels" for word in words) if any(words) else ""
    cheats = "".join(f"With party {one.get('party')} cheating ({name}), " for name, one in runs[0].adversaries.items())
    number = f"{figure} {auc_text(over.mean)}{f' {knows}' if knows else ''}"
    coin = f"a coin {COIN[figure]:.{2 if COIN[figure] else 0}f}"
    if not math.isnan(over.low) and over.low <= COIN[figure]:
        tells = "ranks the labels" if figure == "AUC" else "distinguishes the classes"
        sure = sum(quantity.number(worst.get("low")) > COIN[figure] for worst in worsts)
        where = f" in more than {sure} of {len(runs)} seeds" if sure else ""
        strongest = f"the strongest{' of each seed' if differ else ''}, {_attacks(runs)}, reads "
        says = f"{WORST_OF_ALL} {over.low:.2f} to {over.high:.2f}"
        between = "too few batches for an interval" if says_nothing(figure, over.low, over.high) else says
        text = f"no attack that ran {tells} significantly better than a coin{where}: {strongest}"
        return _capital(f"{cheats}{text}{number} ({between}; {coin})")
    alone = math.nan if differ else mean([_own_columns(w, run) for w, run in zip(worsts, runs, strict=True)])
    beside = f"; own columns alone {auc_text(alone)}" if not math.isnan(alone) else ""
    gives = {
        "AUC": f"give {percent(over.mean)} of label pairs away",
        "macro AUC": f"give {percent(over.mean)} of label pairs away, each class against the rest",
        "AMI": f"give {percent(over.mean)} of the information on classes away",
    }[figure]
    single = ", from a single batch" if math.isnan(over.low) else ""
    return _capital(f"{cheats}{_subject(runs)}{each} {gives} ({number}{single}; {coin}{beside})")


def _subject(runs: Sequence[Run]) -> str:
    """`gradients at the cut`: what the worst attack of each run reads; a place where it is the same cut in all."""
    worsts = [worst_of(run) for run in runs]
    kinds = Counter(f"{worst['message']}s" for worst in worsts)
    text = " and ".join(kind for kind, _ in kinds.most_common())
    places = {place_of(worst, run) for worst, run in zip(worsts, runs, strict=True)}
    return f"{text} {places.pop()}" if len(places) == 1 and all(map(_is_at_the_cut, runs)) else text


def _attacks(runs: Sequence[Run]) -> str:
    """`norm on gradients at the cut and at layer f2`: the worst attack of each run, the most frequent first."""
    places: dict[str, Counter[str]] = {}
    for run in runs:
        worst = worst_of(run)
        places.setdefault(f"{worst['attack']} on {worst['message']}s", Counter())[place_of(worst, run)] += 1
    heads = sorted(places, key=lambda head: -places[head].total())
    return " and ".join(f"{head} {' and '.join(place for place, _ in places[head].most_common())}" for head in heads)


def _is_at_the_cut(run: Run) -> bool:
    worst = worst_of(run)
    return str(worst["layer"]) in run.layers.cut.get(str(worst["party"]), ())


def _model(runs: Sequence[Run], figure: str) -> list[str]:
    """What the model is worth on rows that it was not trained on; nothing where that is not known, as of most audits."""
    name = "test_accuracy" if figure == "AMI" else "test_auc"
    value = mean([quantity.number(run.summary.get(name)) for run in runs])
    if math.isnan(value):
        return []
    if figure == "AMI":
        return [f"the model itself classifies {percent(value)} of new rows correctly"]
    return [f"the model itself {auc_text(value)} on new rows"]


def _nothing(run: Run) -> str:
    what = "audit" if run.is_audit else "run"
    why = "could be scored" if {*run.skipped, *run.unscored} else "was chosen"
    return f"No attack on messages {why}, so this {what} says nothing about what they give away."


def _best(run: Run, figure: str) -> float:
    """The strongest reading of any attack on messages, at any layer that an attacker sees."""
    values = [read_by(leak, figure) for leak in quantity.leaks(run) if counts(leak, run)]
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _reading(run: Run, figure: str) -> Mapping[str, Any] | None:
    """The worst reading in terms of this figure, without an interval if the worst is in terms of another."""
    if worst_of(run)["figure"] == figure:
        return worst_of(run)
    value = _best(run, figure)
    return None if math.isnan(value) else {"value": value}


def _own_columns(worst: Mapping[str, Any], run: Run) -> float:
    """What the same attack reads on the party's own columns, without a message; nan if that wasn't tried."""
    at_level = (verdict_of(run).get("levels") or {}).get(level_of(str(worst["attack"]), run.threats)) or {}
    return quantity.number(at_level.get("own_columns")) if at_level.get("attack") == worst["attack"] else math.nan


def _strength(worst: Mapping[str, Any]) -> float:
    value = quantity.number(worst["value"])
    return value if worst["figure"] == "AMI" else 2 * value - 1


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
