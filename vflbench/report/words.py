"""Results in words: what leaks, what was rebuilt, what is promised. A fact is worded, and a number rounded, here alone.

    verdict([run])               Gradients at the cut give 91 % of label pairs away (AUC 0.91; a coin 0.50); ...
    line(run)                    leak AUC 0.912 (norm on gradients at layer f4), test AUC 0.788
    attack(run)                  norm on gradients at layer f4, AUC 0.912 (the worst of all: 0.89 to 0.93); needs no label
    learned_nothing(summary)     The model learned nothing (test AUC 0.45, 0.37 to 0.52; a coin 0.50)

A leak AUC of a is the share a of the pairs of a positive and a negative row that the attack puts in the right order. A
reading counts as what it is when its sign is turned: far below 0.5 is a leak as well.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from vflbench.errors import shown as printable
from vflbench.numerics.interval import Interval
from vflbench.results.gate import COIN, Judgement, Outcome, distinct_rounding, judged, leak_strength
from vflbench.results.runs import AS_RECORDED, Run
from vflbench.results.schema import (
    LEAST_TEST_ROWS,
    LEVELS,
    OF_THE_TRUTH,
    LeakRecord,
    Privacy,
    Promise,
    Reading,
    Rebuilt,
    Summary,
    ThreatRecord,
    Verdict,
    base_name,
    level_of,
)
from vflbench.results.schema import IntervalRecord as Recorded

if TYPE_CHECKING:
    from vflbench.report.group import Section, Setting

_NO_MESSAGE = "none"
LABEL_PRIVACY = "what the messages add about one row, given everything else"
WORST = (
    "The worst attack is the one that reads most at any layer that an attacker sees, in the last epoch. Leak AUC: max(a, "
    "1 - a) of the mean over batches or, if larger, what an attack reaches if it knows in each batch which end is "
    "positive, less what a coin reaches. Of more than two classes: the stronger of adjusted mutual information and macro "
    "AUC. The interval is that of the worst of all attacks, layers and directions, whichever it is (95 %, Bonferroni)"
)
LEAK_FIGURES = (
    "Two-sided: max(a, 1 - a) of the mean over batches. Oriented: the mean over batches of max(a, 1 - a). Coin: what a coin "
    "reaches there. Net: oriented without the part of a coin. A leak counts as the larger of two-sided and net."
)
MORE_BATCHES = "audit.batches=all, or more rows, would tell"
_WORST_OF_ALL = "the worst of all:"
_READS = {
    Judgement.UNKNOWN: "too few audited batches to judge{where} ({value} by {attacks}{known}; {ends}{coin}); {more}",
    Judgement.NONE: "no attack that ran {ranks} significantly better than a coin{where}: the strongest{each}, {attacks}, "
    "reads {value}{known} ({ends}{coin})",
    Judgement.LEAK: "{subject} give {gives} away{rest} ({value}{known}; {coin}{columns})",
}
"""What the worst attack comes to -> how it is said."""
_SAYS = {Judgement.UNKNOWN: "too few batches to judge", Judgement.NONE: "no leak seen", Judgement.LEAK: "leaks"}
NOBODY = "Without a defense"
HOW_TO = 'the how-to "Which defense should I use?"'
MOST_DEFENSES = 8
_AS_A_GUESS = 0.02
"""So much more than by a guess says nothing where no batch was found."""
MOST_ENTRIES = 3
"""Entries of a list that a setting's name shows."""
_DOTS = " ... "
_OF_PARTIES = {"parties": "columns of", "party_files": "file of"}
"""Option of a data set -> what it holds for each party."""
_SHARES = {
    "entries_right": "{} of the entries",
    "recognised": "{} of the pictures recognisably",
    "id_accuracy": "{} of the ids",
    "attribute_auc": "{} of the order of pairs of rows",
    "r2": "{} of the variance",
    "labels_right": "{} of the labels",
    "exact": "{} of the batches exactly",
    "identified": "{} of the rows distinguishably from others of their class",
}
"""Figure of what was rebuilt -> how it is said. By the first of these that it has, the strongest answer is chosen."""
_GUESSED = {
    "entries_right": ("guess_entries_right", "matched_guess_right"),
    "labels_right": ("guess_labels_right",),
    "attribute_auc": ("attribute_guess",),
}
"""Such a figure -> what a guess reaches of it, where the answer itself says so."""


# Numbers


def number(value: float | None, digits: int = 2, *, share: bool = False) -> str:
    """`0.91`, of a share `91 %`; `undefined` for nan.

    More digits where it would look like 0 or 1 without being it, fewer from 10 on.
    """
    if value is None or math.isnan(value):
        return "undefined"
    if abs(value) >= 10:
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    scale, first = (100, 0) if share else (1, digits)
    texts = [f"{scale * value:.{n}f}" for n in range(first, max(first, 4) + 1)]
    plain = texts[0] if value in (0, 1) else next((text for text in texts if float(text) not in (0, scale)), texts[0])
    plain = f"{value:.2g}" if value and not share and not float(plain) else plain
    return f"{plain} %" if share else plain


def as_share(value: float | None) -> str:
    """`91 %`."""
    return number(value, share=True)


def _between(low: float | None, high: float | None, digits: int = 2) -> str:
    """`0.89 to 0.93`; empty without an interval."""
    ends = number(low, digits), number(high, digits)
    return "" if "undefined" in ends else " to ".join(ends)


def text_of(cell: Any) -> str:
    """What a table holds, as a person reads it; `-` of what is missing.

    `0.760 (0.751 to 0.769)`; over runs `0.760 (2 runs: no interval)`, or `1.000 (5 equal runs)`, whose spread says nothing.
    """
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "no"
        case float():
            return "-" if math.isnan(cell) else number(cell, 3)
        case Interval() | Recorded():
            runs, ends = getattr(cell, "runs", 0), _between(cell.low, cell.high, 3)
            of_runs = f"{runs} run{'s' * (runs > 1)}: no interval" if not ends else f"{runs} equal runs"
            bracketed = ends if ends and not (runs and cell.low == cell.high) else of_runs * bool(runs)
            return text_of(cell.mean) + f" ({bracketed})" * bool(bracketed)
        case list():
            return "; ".join(map(text_of, cell))
        case {"mean": float() | None, "low": float() | None, "high": float() | None}:
            return text_of(Recorded(**cell))
        case Mapping():
            return ", ".join(f"{key.replace('_', ' ')} {text_of(one)}" for key, one in cell.items() if one is not None)
    return f"{cell:,}" if isinstance(cell, int) else printable(cell, 2_000) or "-"


def mean(values: Sequence[float | None]) -> float:
    """Of the values that are defined; nan if none is."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


# The model


def learned_nothing(summary: Summary) -> str | None:
    """Why its model is no evidence for a defense (`Summary.learned`); None where it learned, or where that isn't known."""
    if summary.learned is not False:
        return None
    for count, kind in ((summary.test_positives, "positive"), (summary.test_negatives, "negative")):
        if count is not None and count < LEAST_TEST_ROWS:
            return f"Too few {kind} rows to test the model on ({count}; {utility_text(summary, 2)})"
    return f"The model learned nothing ({utility_text(summary, 2)}; a coin 0.50)"


def utility_text(summary: Summary, digits: int = 3) -> str:
    """`test AUC 0.788 (0.78 to 0.80)`, with its 95 % interval; within a parenthesis, of two digits, after a comma."""
    ends = _between(summary.test_auc_low, summary.test_auc_high)
    bracketed = "" if not ends else f" ({ends})" if digits > 2 else f", {ends}"
    return f"test AUC {number(summary.test_auc, digits)}{bracketed}"


# The verdict


def range_over_seeds(readings: Sequence[Reading]) -> Interval:
    """The mean, from the lowest low end to the highest high end; nan for ends if any run has no interval."""
    lows, highs = (np.array([getattr(one, end) for one in readings], np.float64) for end in ("low", "high"))
    return Interval(mean([one.value for one in readings]), float(lows.min()), float(highs.max()))


def verdict_text(runs: Sequence[Run], *, named: bool = False) -> str:
    """What the worst attack of a setting reads, or what was rebuilt, in a sentence.

    A model that learned nothing is said first. That there is no leak is only said where one worth finding would have been
    seen. For more than two classes: the AUC of each class against the rest, or adjusted mutual information.

    runs: of one setting, one a seed; values are means over them. named: name the defenses.
    """
    reasons = [reason for run in runs if (reason := learned_nothing(run.summary))]
    often = f" in {len(reasons)} of {len(runs)} seeds" * (len(runs) > 1)
    learned = f"{reasons[0]}{often}: a low leak is no protection here. " if reasons else ""
    if of := _strongest(runs):
        figure, read, over = of
        parts = [_reads(figure, read, over)]
        if judged(figure, over.low, over.high) is Judgement.LEAK:
            parts += _other_messages(read, figure)
        value = mean([run.summary.test_accuracy if figure == "AMI" else run.summary.test_auc for run in runs])
        if not (learned or math.isnan(value)):
            correct = f"classifies {as_share(value)} of new rows correctly"
            parts.append(f"the model itself {correct if figure == 'AMI' else f'{number(value)} on new rows'}")
        count, text, end = len(read), "; ".join(parts), "."
    else:
        texts = rebuilt(runs)
        count, text, end = len(runs) if texts else 1, " ".join(texts) or _nothing(runs[0]), ""
    who = "+".join(runs[0].summary.guarantees) if named else ""
    text = f"{text}{f' (mean of {count} seeds)' * (count > 1)}{end}"
    return f"{learned}{f'With {who}: {text[:1].lower()}' if who else text[:1].upper()}{text[1:]}"


def _strongest(runs: Sequence[Run]) -> tuple[str, list[tuple[Run, Reading]], Interval] | None:
    """The figure in which the worst attack reads most, the runs with their readings of it, and these over the seeds."""
    worsts = [(run, worst) for run in runs if (worst := run.summary.verdict.worst)]
    if not worsts:
        return None
    figure = max((one for _, one in worsts), key=lambda one: leak_strength(one.figure, one.value)).figure
    read = [(run, one) for run, one in worsts if one.figure == figure]
    return figure, read, range_over_seeds([one for _, one in read])


def judgement_of(runs: Sequence[Run]) -> Judgement | None:
    """Of the worst attack over the seeds; None where no attack on messages was scored."""
    return judged(of[0], of[2].low, of[2].high) if (of := _strongest(runs)) else None


def _reads(figure: str, read: Sequence[tuple[Run, Reading]], over: Interval) -> str:
    """What is read over the seeds, and where: the worst of each seed, whose places are all named where they differ."""
    coin, seeds, judgement = COIN[figure], len(read), judged(figure, over.low, over.high)
    sure = sum(judged(figure, worst.low, worst.high) is Judgement.LEAK for _, worst in read)
    attacks = dict.fromkeys(f"{one.attack} on {one.message}s {place(one, run)}" for run, one in read)
    messages, places = dict.fromkeys(f"{one.message}s" for _, one in read), {place(one, run) for run, one in read}
    at_the_cut = len(places) == 1 and all(run.crosses(one.party, one.layer) for run, one in read)
    knows = dict.fromkeys(knowledge(worst.attack, run.manifest.threats, "", "by cheating") for run, worst in read)
    levels = [(one, worst) for run, worst in read for one in run.summary.verdict.levels.values()]
    alone = mean([one.features_only for one, worst in levels if one.attack == worst.attack and len(attacks) == 1])
    cheats = "".join(f"with party {one.party} cheating ({name}), " for name, one in read[0][0].manifest.adversary.items())
    wheres = {
        Judgement.UNKNOWN: f" in {seeds - sure} of {seeds} seeds",
        Judgement.NONE: f" in more than {sure} of {seeds} seeds",
    }
    return cheats + _READS[judgement].format(
        value=f"{figure} {number(over.mean)}",
        known=f" {' or '.join(words or 'without labels' for words in knows)}" if any(knows) else "",
        attacks=" and ".join(attacks),
        subject=" and ".join(messages) + f" {min(places)}" * at_the_cut + ", the worst of each seed," * (len(messages) > 1),
        gives=f"{as_share(over.mean)} of {'the information on classes' if figure == 'AMI' else 'label pairs'}",
        rest=", each class against the rest" * (figure == "macro AUC"),
        ranks="ranks the labels" if figure == "AUC" else "distinguishes the classes",
        each=" of each seed" * (len(attacks) > 1),
        where=wheres.get(judgement, "") * bool(sure),
        ends=f"{_WORST_OF_ALL} {_between(over.low, over.high)}; " * (over.low > coin or over.high < 1),
        more=MORE_BATCHES,
        coin=f"a coin {coin:.{2 if coin else 0}f}",
        columns="" if math.isnan(alone) else f"; own columns alone {number(alone)}",
    )


def _nothing(run: Run) -> str:
    why = "could be scored" if run.summary.skipped or run.summary.unscored else "was chosen"
    what = "audit" if run.is_audit else "run"
    return f"No attack on messages {why}, so this {what} says nothing about what they give away."


def _other_messages(read: Sequence[tuple[Run, Reading]], figure: str) -> list[str]:
    """`embeddings 64 %`: what other kinds of messages give away to attacks that know no more than the worst one."""
    best: dict[str, list[float]] = {}
    for run, worst in read:
        level, values = level_of(worst.attack, run.manifest.threats), dict[str, float]()
        no_more = LEVELS[: LEVELS.index(level) + 1] if level in LEVELS else LEVELS  # of other hands any level
        for leak in run.summary.leaks:
            if counts(leak, run) and level_of(leak.attack, run.manifest.threats) in no_more:
                values[leak.message] = max(values.get(leak.message, 0.0), leak_value(leak, figure))
        for kind, value in values.items():
            best.setdefault(kind, []).append(value or math.nan)
    others = {kind: mean(values) for kind, values in best.items() if {one.message for _, one in read} != {kind}}
    return [f"{kind}s {as_share(value)}" for kind, value in others.items() if not math.isnan(value)]


def leak_value(leak: LeakRecord, figure: str) -> float:
    """What a leak comes to in terms of a figure of the verdict: of an AUC the larger of two-sided and net; else nan."""
    of_classes = leak.classes.get({"AUC": "", "macro AUC": "macro_auc", "AMI": "ami"}[figure])
    known = [one.mean for one in ((leak.two_sided, leak.net) if figure == "AUC" else (of_classes,)) if one]
    value = max((one for one in known if one is not None), default=math.nan)
    return max(value, 1 - value) if figure == "macro AUC" else value


def counts(leak: LeakRecord, run: Run) -> bool:
    """Whether it counts in a verdict: an attacker sees the layer, reads a message, and is no reference."""
    return leak.visible and leak.message != _NO_MESSAGE and level_of(leak.attack, run.manifest.threats) in LEVELS


def place(one: Reading | LeakRecord, run: Run) -> str:
    """`at the cut`, `at party b's layer f2`: the party is named where there are several."""
    whose = f"party {one.party}'s " if len(run.manifest.cut_layers) > 1 else ""
    return f"at {whose or 'the '}cut" if run.crosses(one.party, one.layer) else f"at {whose}layer {one.layer}"


def figure_text(one: Reading) -> str:
    """`AUC 0.912`."""
    return f"{one.figure} {number(one.value, 3)}"


def attack_text(run: Run, worst: Reading) -> str:
    """`norm on gradients at layer f4, AUC 0.912 (the worst of all: 0.89 to 0.93); at the cut, f5, 0.907; needs no label`.

    The interval holds for the worst of all readings, whichever it is (`metrics.leak.worst`), not for this attack alone.
    """
    ends = _between(worst.low, worst.high)
    ends = f"{_WORST_OF_ALL} {ends}" if ends else "one batch, no interval"
    if worst.low is not None and worst.low <= COIN[worst.figure] and (worst.high or 0) >= 1:
        ends = "too few batches for an interval"
    bracketed, name = "", (worst.attack, worst.message, worst.party)
    same = [one for one in run.summary.leaks if (one.attack, one.message, one.party) == name]
    known = [(leak_value(one, worst.figure), one.layer) for one in same if run.crosses(one.party, one.layer)]
    values = [(value, layer) for value, layer in known if not math.isnan(value)]
    if values and (best := max(values))[1] != worst.layer:
        bracketed = f"; at the cut{'' if best[1] == 'cut' else f', {best[1]}'}, {number(best[0], 3)}"
    threat = run.manifest.threats.get(base_name(worst.attack), ThreatRecord())
    no_label = "needs the share of positives and no label" if "class shares" in threat.knows else "needs no label"
    knows = knowledge(worst.attack, run.manifest.threats, no_label)
    return f"{worst.attack} on {worst.message}s {place(worst, run)}, {figure_text(worst)} ({ends}){bracketed}; {knows}"


def line(run: Run) -> str:
    """`leak AUC 0.912 (norm on gradients at party b's cut), test AUC 0.788`: a finished run in a line of a sweep.

    A model that learned nothing, and a leak that can't be judged, are said to be so.
    """
    summary, reason, worst = run.summary, learned_nothing(run.summary), run.summary.verdict.worst
    parts = [f"{reason[:1].lower()}{reason[1:]}"] if reason else []
    if worst:
        unsure = "; too few batches to judge" * (judged(worst.figure, worst.low, worst.high) is Judgement.UNKNOWN)
        parts.append(f"leak {figure_text(worst)} ({worst.attack} on {worst.message}s {place(worst, run)}{unsure})")
    answers = {one.attack: _means([one]) for one in summary.reconstructions if one.message != _NO_MESSAGE}
    if answers and (name := max(answers, key=lambda name: _strength(answers[name]))) and (shares := _shares(answers[name])):
        parts.append(f"{shares[0]} rebuilt ({name})")
    return ", ".join(parts if reason else [*parts, f"test AUC {number(summary.test_auc, 3)}"])


def verdict_lines(verdict: Verdict, *, every: bool = False) -> list[tuple[str, Reading]]:
    """(level of knowledge or reference, its worst reading), also of what the defense changes, where another attack is the
    worst of that. every: also where it is the same one.
    """
    of, levels = verdict.on_changed, verdict.levels.items()
    those = [level for level, one in levels if level in of or (every and one.message in verdict.changed)]
    changed = [(f"{level}, of what the defense changes", of.get(level, verdict.levels[level])) for level in those]
    return [*levels, *changed, *((f"reference: {name}", one) for name, one in verdict.references.items())]


# What was rebuilt


def rebuilt(runs: Sequence[Run]) -> list[str]:
    """A sentence for each attack that rebuilt data from messages, on its strongest answer; means over the runs.

    Each figure stands beside the best guess without messages, and a guess is not called a leak.
    """
    answers: dict[tuple[str, ...], list[Rebuilt]] = {}
    for one in chain.from_iterable(run.summary.reconstructions for run in runs):
        answers.setdefault((one.attack, one.message, one.party, one.layer), []).append(one)
    means = {key: _means(of) for key, of in answers.items()}
    crossing = {layer for run in runs for layer in run.crossing}
    best: dict[tuple[str, str], tuple[str, ...]] = {}
    for key in (key for key, of in answers.items() if key[1] != _NO_MESSAGE and of[0].visible):
        what = key[0], key[3] if "attribute_auc" in means[key] else ""
        best[what] = max(best.get(what, key), key, key=lambda key: _strength(means[key]))
    return [_rebuilt(key, means, answers[key], crossing) for key in best.values()]


_Means = dict[str, float]


def _means(answer: Sequence[Rebuilt]) -> _Means:
    """Figure -> its mean over the runs, where it is known. An AUC below 0.5 counts turned around."""
    names = dict.fromkeys(name for one in answer for name in one.figures)
    made = {name: mean([one.figures[name].mean for one in answer if name in one.figures]) for name in names}
    if "attribute_auc" in made:
        made["attribute_guess"] = made["attribute_auc"] - made.get("attribute_gain", math.nan)
        made["attribute_auc"] = max(made["attribute_auc"], 1 - made["attribute_auc"])
    return {name: value for name, value in made.items() if not math.isnan(value)}


def _strength(of: _Means) -> float:
    return next((of[name] for name in _SHARES if name in of), -math.inf)


def _shares(of: _Means, guesses: Mapping[str, _Means] | None = None) -> list[str]:
    """`90 % of the entries (a guess 64 %)` for each figure that is a share. guesses: name -> its figures."""
    made = []
    for name, words in _SHARES.items():
        by = [(of[guess], "a guess") for guess in _GUESSED.get(name, ()) if guess in of]
        by += [(figures[name], guess.replace("_", " ")) for guess, figures in (guesses or {}).items() if name in figures]
        bracketed = f" ({max(by)[1]} {as_share(max(by)[0])})" if by else ""
        made += [words.format(as_share(max(of[name], 0.0))) + bracketed] if name in of else []
    return made


def _rebuilt(
    key: tuple[str, ...], means: Mapping[tuple[str, ...], _Means], entries: Sequence[Rebuilt], crossing: Collection[str]
) -> str:
    """On one answer of an attack."""
    (attack, message, party, layer), of, beats = key, means[key], [one.beats_every_guess for one in entries]
    owner, _, reader = party.partition(" by ")
    source = "The joint model's predictions" if message == "prediction" else f"{message.capitalize()}s"
    source += " at the cut" * (layer in crossing and message not in ("update", "prediction"))
    source += f", read by party {reader}," * bool(reader)
    kinds = {"attribute_auc": f"column {layer}", "entries_right": "private batches"}
    kinds |= dict.fromkeys(("recognised", "ssim"), "pictures")
    things = next((name for figure, name in kinds.items() if figure in of), "columns")
    guess = max((of[name] for name in _GUESSED["entries_right"] if name in of), default=math.nan)
    is_guess = of.get("exact") == 0 and of["entries_right"] <= guess + _AS_A_GUESS
    gives = "do not clearly give" if is_guess or not (None in beats or all(beats)) else "give"
    better = "" if None in beats else f"; {'not surely ' * (not all(beats))}better than every guess without messages"
    same = {name[3]: m for name, m in means.items() if name[:3] == (attack, _NO_MESSAGE, party)}
    guesses = {name: m for name, m in same.items() if name not in OF_THE_TRUTH}
    shown = ", ".join(_shares(of, guesses)) or (f"mse {of['mse']:.3g}" if "mse" in of else "nothing that could be measured")
    whose = "all parties" if owner == "all" else f"party {owner}"
    return f"{source} {gives} the {things} of {whose} away: {attack} rebuilds {shown}{better}."


# What is promised


def exceeded(defense: str, promise: Promise, run: Run) -> str:
    """What is above a defense's ceiling, and what that means."""
    worst, *others = promise.exceeded
    low, ceiling = distinct_rounding(worst.low or 0.0, worst.ceiling or 0.0)
    text = (
        f"{worst.attack}, {knowledge(worst.attack, run.manifest.threats)}, reads {figure_text(worst)} of {worst.message}s "
        f"at {worst.party} {worst.layer}, at least {low}, above the ceiling of {defense}, {ceiling}"
    )
    text += f", and {len(others)} more leaks are above it" if others else ""
    if promise.bounds == LABEL_PRIVACY:
        why = f"the ceiling is on {LABEL_PRIVACY}, and features predict labels as well"
        return f"{text}. This breaks no promise: {why}; canaries measure what it bounds"
    refused = promise.assumption_holds is False
    return f"{text}; its assumption does not hold here: {promise.assumption}" if refused else text


def promises(run: Run) -> list[tuple[str, str, bool]]:
    """(name, text, whether it is an alarm): what each defense promises and whether a leak is above it, in a few words."""
    rows = _spent(run.summary.privacy) if run.summary.privacy else []
    tested = {True: "; what it assumes was tested, and not refused", False: ", but a test refutes its assumption", None: ""}
    for name, promise in run.summary.guarantees.items():
        is_bound = promise is not None and promise.bounds != LABEL_PRIVACY
        if promise is not None and promise.exceeded:
            rows.append(("ALARM" if is_bound else "ceiling", exceeded(name, promise, run), is_bound))
        elif promise is not None and is_bound:
            most = f"a leak AUC of at most {number(promise.leak_auc_all_messages, 3)}"
            if promise.leak_auc_all_messages == 1:
                one = number(promise.leak_auc_one_message, 3)
                most = f"a leak AUC of at most {one} from one message, of several nothing"
            rows.append(("promise", f"{name}: {most}{tested[promise.assumption_holds]}", False))
    return sorted(rows, key=lambda row: not row[2])


def _spent(privacy: Privacy) -> list[tuple[str, str, bool]]:
    """The label privacy that a run spent, and what its canaries prove of it."""
    figures = {"eps": (privacy.epsilon, privacy.epsilon_low), "mu": (privacy.mu, privacy.mu_low)}
    spent = " and ".join(f"{name} = {most:.4g}" for name, (most, _) in figures.items() if most is not None)
    proven = " and ".join(f"{name} at least {least:.3g}" for name, (_, least) in figures.items() if least)
    measured = f"{privacy.canaries:,} canaries prove {proven or 'none of it'}"
    text = f"{measured if privacy.canaries else 'not checked, as there are no canaries'}{': VIOLATED' * privacy.violated}"
    return [("privacy", f"label DP with {spent}; {text}", privacy.violated)] if spent else []


def checked_text(privacy: Sequence[Privacy]) -> str:
    """Whether a run of a setting saw the promise broken, and how weak it had to be for the canaries of each to show that."""
    if any(one.violated for one in privacy):
        return "violated"
    if not any(one.canaries for one in privacy):
        return "not checked: no canaries (audit.canaries)"
    powers = zip(*(p.power for p in privacy if p.power), strict=False)
    least = [min(same, key=lambda one: one.probability or 0) for same in powers]
    caught = ", ".join(f"{one.times:g} times too weak with probability {number(one.probability, 3)}" for one in least)
    return f"not violated, which does not verify it{f'; caught at best: {caught}' if caught else ''}"


def not_run(run: Run) -> list[str]:
    """`Not run: norm, direct: no gradients.`: a line for each reason why attacks were not run, or not scored."""
    made = []
    for what, reasons in (("Not run", run.summary.skipped), ("Not scored", run.summary.unscored)):
        names: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            names.setdefault(reason, []).append(name)
        made += [f"{what}: {', '.join(names[reason])}: {reason}." for reason in sorted(names, key=lambda r: -len(names[r]))]
    return made


# Thresholds


def threshold(outcome: Outcome) -> str:
    """What a threshold of --fail-above came to: `FAIL: leak_auc_worst is 0.985, 0.385 above 0.6 (norm, ...); ...`."""
    limit, row = outcome.gate.threshold, outcome.row
    gap, verb = abs(row.value - limit), {True: "PASS", False: "FAIL", None: "NOT JUDGED"}[outcome.passed]
    is_cut = row.layer in outcome.crossing.get(row.party, ()) and row.layer != "cut"
    where = f"{row.attack}, {row.message}s, {row.party} {row.layer}{', the cut' * is_cut}"
    where += f", epoch {row.epoch}" * (row.epoch != outcome.last_epoch)
    by = f"{gap:.3f}" if gap >= 0.0005 or not gap else f"{gap:.2g}"
    side = "all of it above" if row.ci_low > limit else "not above" if row.ci_high <= limit else "partly above"
    which = "the 95 % interval of the worst of all readings" if outcome.of_all else "its own 95 % interval"
    ends = _between(row.ci_low, row.ci_high, 3)
    least, turned = number(1 - outcome.other_side, 3), number(outcome.other_side, 3)
    beyond = "above" if row.value > limit else "below"
    said = {
        f"{verb}: {outcome.gate.key} is {row.value:.3f}, {by} {beyond} {limit:g} ({where})": True,
        f"{which} is {ends}: {side}" if ends else "from a single batch: no interval": True,
        f"too few audited batches to judge: {MORE_BATCHES}": outcome.passed is None,
        f"without a value, so not judged: {', '.join(outcome.undefined)}": bool(outcome.undefined),
        f"but it is one-sided, and another reading is {least}: turned around, that is {turned}, above {limit:g} "
        "(leak_auc_two_sided counts both sides)": bool(outcome.passed) and outcome.other_side > limit,
    }
    return "; ".join(text for text, is_so in said.items() if is_so)


# Several settings


def defense_sentences(section: "Section") -> list[tuple[str, str]]:
    """(defense, sentence), the undefended first, then the lowest leak first; of a model that learned nothing last.

    Of the settings of a defense the one that leaks least is named; without a defense the one that leaks most. Only of the
    settings that may be compared with the others, if the defense has any (`Section.front`).
    """
    made = []
    for (defense, adversary), of in section.settings.groupby(["defense", "adversary"], sort=False):
        every = [one for one in section.groups if one.name in of.index]
        groups = [one for one in every if one.name in section.front.settings] or every
        groups = [one for one in groups if not math.isnan(worst_of(one))] or groups
        group = (max if defense == "none" else min)(groups, key=_rank)
        name = {"none": NOBODY, AS_RECORDED: AS_RECORDED.capitalize()}.get(defense, defense)
        name += "" if adversary == "none" else f", adversary {adversary}"
        name += group.name.removeprefix(defense) if len(every) > 1 else ""
        made.append((defense != "none", *_rank(group), name, verdict_text(group.runs)))
    made.sort(key=lambda one: one[:3])
    more = [(f"{len(made) - MOST_DEFENSES} more defenses", "they are in the tables below.")]
    return [one[3:] for one in made[:MOST_DEFENSES]] + more * (len(made) > MOST_DEFENSES)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names[:MOST_ENTRIES]) + f" and {len(names) - MOST_ENTRIES} more" * (len(names) > MOST_ENTRIES)


def worst_of(group: "Setting") -> float:
    """What the worst attack of each run reads, mean over seeds; nan without one."""
    return mean([run.summary.verdict.worst.value for run in group.runs if run.summary.verdict.worst])


def _rank(group: "Setting") -> tuple[bool, float]:
    """The better the defense, the lower; a setting whose model learned nothing comes after all that learned."""
    return any(run.summary.learned is False for run in group.runs), worst_of(group)


def standing(section: "Section", group: "Setting") -> str:
    """What its worst attack says, in a few words, and whether its model learned nothing."""
    known, lost = judgement_of(group.runs), int((~section.runs["learned"][section.runs["setting"] == group.name]).sum())
    text = _SAYS[known] if known else "rebuilds" if any(run.summary.reconstructions for run in group.runs) else ""
    text = "falls" if any(run.summary.verdict.falls for run in group.runs) else text
    unlearned = "the model learned nothing" + f" in {lost} of {group.seeds} seeds" * (lost < group.seeds)
    return "; ".join([text] * (not lost or known is Judgement.LEAK) + [unlearned] * (lost > 0))


def _least_leaking(section: "Section") -> "Setting | None":
    """The defense that leaks least, of those that the same attacks read, and surely less than no defense.

    None of it falls, learned nothing, or couldn't be judged in any run.
    """
    groups, baselines = {one.name: one for one in section.groups}, section.settings["baseline"]

    def helps(one: "Setting") -> bool:
        base = groups.get(str(baselines[one.name]))
        promises = [promise for run in one.runs for promise in run.summary.guarantees.values() if promise]
        exceeded = any(promise.exceeded for promise in promises)
        falls = exceeded or any(run.summary.verdict.falls or run.summary.learned is not True for run in one.runs)
        if base is None or falls or one.undefended or {base.name, one.name} - set(section.front.settings):
            return False
        judgements = judgement_of(base.runs), *(judgement_of([run]) for run in one.runs)
        is_known = judgements[0] is Judgement.LEAK and not {None, Judgement.UNKNOWN} & set(judgements)
        return is_known and worst_of(one) < worst_of(base)

    if section.layer is not None or (section.settings["adversary"] != "none").any():
        return None
    return min(filter(helps, section.groups), key=worst_of, default=None)


def remarks(section: "Section") -> list[str]:
    """Of one run or audit what was rebuilt, and notes; then the next step."""
    lines, run = [], section.groups[0].runs[0]
    if len(section.runs) == 1:
        lines = rebuilt([run]) if run.summary.verdict.worst else []
        lines += [run.summary.observed_privacy.verdict] if run.is_audit and run.summary.observed_privacy else []
        lines += [f"{note[:1].upper()}{note[1:]}." for note in run.manifest.notes] if run.is_audit else []
    steps, said = list[str](), {one.name: judgement_of(one.runs) for one in section.groups}
    best = _least_leaking(section)
    if Judgement.LEAK in said.values() and best is None:
        if section.settings["is_audit"].all():
            steps = ["messages that were recorded can't be defended afterwards; train again with a defense, and audit that"]
        steps.append(f"{HOW_TO} compares the defenses, and says which to try first")
    if unjudged := [name for name, one in said.items() if one is Judgement.UNKNOWN]:
        steps.append(f"audit.batches=all, or more rows, to judge {_listed(unjudged)}")
    lost = section.runs["setting"][~section.runs["learned"]].unique()
    if unlearned := [str(name) for name in lost if said[str(name)] is not Judgement.LEAK]:
        steps.append(f"more rows or epochs for {_listed(unlearned)}: a low leak is no protection there")
    if best:
        steps.append(f"{best.name} leaks least of what can be judged; attack=strongest tries it harder")
    return [*lines, f"What to do next: {'; '.join(steps)}."] if steps else lines


def knowledge(
    attack: str, threats: Mapping[str, ThreatRecord], none: str = "without labels", active: str = "actively"
) -> str:
    """What it knows of the labels, for a sentence: `without labels`, `with 100 known labels`, `actively`.

    none, active: how it is said of an attack that knows none, and of a party that cheats.
    """
    level, threat = level_of(attack, threats), threats.get(base_name(attack), ThreatRecord())
    known = [f"{threat.known_rows} known labels"] if threat.known_rows else []
    known += [f"{threat.hints} known positive{'s' * (threat.hints > 1)} a batch"] if threat.hints else []
    labels = f"with {' and '.join(known or ['known labels'])}"
    return {LEVELS[0]: none, LEVELS[2]: f"{active}, {labels}" if known else active}.get(level, labels)


# Options, in the names of settings


def short(key: str) -> str:
    """The last part of a dotted key; of a class, the part before."""
    return _parts(key)[-1]


def shown_text(value: Any) -> str:
    """An option's value in a name; of a class or a file only the last part, of a list the first entries."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = [f"{len(value) - MOST_ENTRIES} more"] if len(value) > MOST_ENTRIES else []
        return "+".join([*map(shown_text, value[:MOST_ENTRIES]), *more]) or "none"
    text = str(value)
    return text.rsplit(".", 1)[-1] if text.startswith("vflbench.") else text.rsplit("/", 1)[-1]


def in_words(options: Mapping[str, Any]) -> list[str]:
    """Each option with its value, `mu 1`, `audit.epochs last`, `columns of a opened+score`, but for those that are null.

    A key that shares its last part with another has one part more, so that no name stands twice.
    """
    known = {key: value for key, value in options.items() if value is not None}
    times = Counter(map(_name, known))
    names = [_name(key) if times[_name(key)] == 1 else ".".join(_parts(key)[-2:]) for key in known]
    return [f"{name} {shown_text(value)}" for name, value in zip(names, known.values(), strict=True)]


def within(name: str, most: int) -> str:
    """The name in at most so many characters: its beginning and its end, as long names often differ in one of them alone."""
    if len(name) <= most:
        return name
    end = (most - len(_DOTS)) // 2
    return f"{name[: most - len(_DOTS) - end]}{_DOTS}{name[len(name) - end :]}"


def _name(key: str) -> str:
    head = _parts(key)[-2:]
    if head[0] == "audit":  # `epochs last` would be another option's name
        return ".".join(head)
    return f"{_OF_PARTIES[head[0]]} {head[1]}" if len(head) == 2 and head[0] in _OF_PARTIES else head[-1]


def _parts(key: str) -> list[str]:
    return key.removesuffix("._target_").split(".")
