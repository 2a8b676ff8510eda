"""Results in words: what leaks, what was rebuilt, what is promised. A fact is worded, and a number rounded, here alone.

    verdict([run])               Gradients at the cut give 91 % of label pairs away (AUC 0.91; a coin 0.50); ...
    line(run.summary)            leak AUC 0.912 (norm at layer f4), test AUC 0.788
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

from vflbench.numerics.interval import Interval
from vflbench.results.gate import COIN, Judgement, Outcome, apart, judged, strength
from vflbench.results.runs import AS_RECORDED, Run
from vflbench.results.schema import (
    LEAST_TEST_ROWS,
    LEVELS,
    Leak,
    Power,
    Privacy,
    Promise,
    Reading,
    Rebuilt,
    Summary,
    Threat,
    base_name,
    level_of,
)

if TYPE_CHECKING:
    from vflbench.report.group import Section, Setting

NO_MESSAGE = "none"
LABEL_PRIVACY = "what the messages add about one row, given everything else"
WORST = (
    "The worst attack is the one that reads most at any layer that an attacker sees, in the last epoch. Leak AUC: max(a, "
    "1 - a) of the mean over batches or, if larger, what an attack reaches if it knows in each batch which end is "
    "positive, less what a coin reaches. Of more than two classes: the stronger of adjusted mutual information and macro "
    "AUC. The interval is that of the worst of all attacks, layers and directions, whichever it is (95 %, Bonferroni)"
)
LEAKS = (
    "Two-sided: max(a, 1 - a) of the mean over batches. Oriented: the mean over batches of max(a, 1 - a). Coin: what a coin "
    "reaches there. Net: oriented without the part of a coin. A leak counts as the larger of two-sided and net."
)
MORE_BATCHES = "audit.batches=all, or more rows, would tell"
_WORST_OF_ALL = "the worst of all:"
NOBODY = "Without a defense"
HOW_TO = 'the how-to "Which defense should I use?"'
MOST_DEFENSES, MOST_BASES, MOST_NAMED = 8, 3, 6
_USEFUL = 0.55
"""Test AUC from which on a model is called better than a coin, over seeds."""
_AS_A_GUESS = 0.02
"""So much more than by a guess says nothing where no batch was found."""
MOST_ENTRIES = 3
"""Entries of a list that a setting's name shows."""
_DOTS = " ... "
_OF_PARTIES = {"parties": "columns of", "party_files": "file of"}
"""Option of a data set -> what it holds for each party."""
_COLUMN = "attribute_auc"
_STRENGTH = ("entries_right", "recognised", "id_accuracy", "r2", "labels_right")
"""By the first of these that it has, the strongest of an attack's answers is chosen."""
_SHARES = {
    "entries_right": "{} of the entries rebuilt",
    "recognised": "{} of the pictures recognised",
    "id_accuracy": "{} of the ids rebuilt",
    "labels_right": "{} of the labels rebuilt",
}


# Numbers


def number(value: float | None, digits: int = 2, *, share: bool = False) -> str:
    """`0.91`, of a share `91 %`: with more digits where it would look like 0 or 1 without being it; `undefined` for nan."""
    if value is None or math.isnan(value):
        return "undefined"
    scale, first = (100, 0) if share else (1, digits)
    texts = [f"{scale * value:.{n}f}" for n in range(first, max(first, 4) + 1)]
    plain = texts[0] if value in (0, 1) else next((text for text in texts if float(text) not in (0, scale)), texts[0])
    return f"{plain} %" if share else plain


def share(value: float | None) -> str:
    """`91 %`."""
    return number(value, share=True)


def between(low: float | None, high: float | None, digits: int = 2) -> str:
    """`0.89 to 0.93`; empty without an interval."""
    return "" if low is None or high is None else f"{number(low, digits)} to {number(high, digits)}"


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
            return f"Too few {kind} rows to test the model on ({count}; {utility(summary, 2)})"
    return f"The model learned nothing ({utility(summary, 2)}; a coin 0.50)"


def utility(summary: Summary, digits: int = 3) -> str:
    """`test AUC 0.788 (0.78 to 0.80)`, with its 95 % interval; within a parenthesis, of two digits, after a comma."""
    ends = between(summary.test_auc_low, summary.test_auc_high)
    beside = "" if not ends else f" ({ends})" if digits > 2 else f", {ends}"
    return f"test AUC {number(summary.test_auc, digits)}{beside}"


def _learned(runs: Sequence[Run]) -> str:
    """The first words on runs whose model learned nothing: no low reading is a protection there."""
    reasons = [reason for reason in (learned_nothing(run.summary) for run in runs) if reason]
    if not reasons:
        return ""
    often = "" if len(runs) == 1 else f" in {len(reasons)} of {len(runs)} seeds"
    return f"{reasons[0]}{often}: a low leak is no protection here. "


# The verdict


def over_seeds(readings: Sequence[Reading | None]) -> Interval | None:
    """The mean, from the lowest low end to the highest high end; no interval if any run has none. None without a reading."""
    given = [one for one in readings if one]
    lows, highs = [one.low for one in given if one.low is not None], [one.high for one in given if one.high is not None]
    known = given and len(lows) == len(highs) == len(given)
    ends = (min(lows), max(highs)) if known else (math.nan, math.nan)
    return Interval(mean([one.value for one in given]), *ends) if given else None


def verdict(runs: Sequence[Run], *, named: bool = False) -> str:
    """What the worst attack of a setting reads, or what was rebuilt, in a sentence.

    A model that learned nothing is said first. That there is no leak is only said where one worth finding would have been
    seen. For more than two classes: the AUC of each class against the rest, or adjusted mutual information.

    runs: of one setting, one a seed; values are means over them. named: name the defenses.
    """
    if not runs:
        return ""
    learned, read = _learned(runs), [(run, worst) for run in runs if (worst := run.summary.verdict.worst)]
    several = f" (mean of {len(runs)} seeds)" * (len(runs) > 1)
    if read:
        figure = max((worst for _, worst in read), key=lambda one: strength(one.figure, one.value)).figure
        over = over_seeds([_reading(run, worst, figure) for run, worst in read])
        parts = [_reads(figure, read, over)] if over else []
        if over and judged(figure, over.low, over.high) is Judgement.LEAK:
            parts += _other_messages(read, figure)
        text = f"{'; '.join(parts if learned else [*parts, *_model(runs, figure)])}{several}."
    else:
        texts = rebuilt(runs)
        text = f"{' '.join(texts)}{several}" if texts else _nothing(runs[0])
    who = "+".join(runs[0].summary.guarantees) if named else ""
    return f"{learned}{f'With {who}: {text[:1].lower()}' if who else text[:1].upper()}{text[1:]}"


def _reads(figure: str, read: Sequence[tuple[Run, Reading]], over: Interval) -> str:
    """What is read over the seeds, and where: the worst of each seed, whose places are all named where they differ."""
    worsts, coin = [worst for _, worst in read], COIN[figure]
    differ = len({(one.attack, one.message, one.party, one.layer) for one in worsts}) > 1
    knows = dict.fromkeys(_known_labels(worst.attack, run) for run, worst in read)
    known = f" {' or '.join(words or 'without labels' for words in knows)}" if any(knows) else ""
    cheats = "".join(f"with party {one.party} cheating ({name}), " for name, one in read[0][0].adversaries.items())
    value, against = f"{figure} {number(over.mean)}", f"a coin {coin:.{2 if coin else 0}f}"
    ends = f"{_WORST_OF_ALL} {between(over.low, over.high)}; " if over.low > coin or over.high < 1 else ""
    sure = sum(judged(figure, worst.low, worst.high) is Judgement.LEAK for worst in worsts)
    match judged(figure, over.low, over.high):
        case Judgement.UNKNOWN:
            where = f" in {len(read) - sure} of {len(read)} seeds" if sure else ""
            strongest = f"{value} by {_attacks(read)}{known}"
            text = f"too few audited batches to judge{where} ({strongest}; {ends}{against}); {MORE_BATCHES}"
        case Judgement.NONE:
            ranks = "ranks the labels" if figure == "AUC" else "distinguishes the classes"
            where = f" in more than {sure} of {len(read)} seeds" if sure else ""
            strongest = f"the strongest{' of each seed' * differ}, {_attacks(read)}, reads {value}{known}"
            text = f"no attack that ran {ranks} significantly better than a coin{where}: {strongest} ({ends}{against})"
        case Judgement.LEAK:
            each = ", the worst of each seed," if len({one.message for one in worsts}) > 1 else ""
            levels = [run.summary.verdict.levels.get(level_of(worst.attack, run.threats)) for run, worst in read]
            same = [one.own_columns for one in levels if one and one.attack == worsts[0].attack]
            alone = math.nan if differ else mean(same)
            beside = "" if math.isnan(alone) else f"; own columns alone {number(alone)}"
            rest = ", each class against the rest" if figure == "macro AUC" else ""
            what = "the information on classes" if figure == "AMI" else "label pairs"
            gives = f"give {share(over.mean)} of {what} away{rest}"
            text = f"{_subject(read)}{each} {gives} ({value}{known}; {against}{beside})"
    return f"{cheats}{text}"


def _subject(read: Sequence[tuple[Run, Reading]]) -> str:
    """`gradients at the cut`: what the worst attack of each run reads; a place where it is the same cut in all."""
    text = " and ".join(kind for kind, _ in Counter(f"{worst.message}s" for _, worst in read).most_common())
    places = {place(worst, run) for run, worst in read}
    at_the_cut = all(run.layers.crosses(worst.party, worst.layer) for run, worst in read)
    return f"{text} {places.pop()}" if len(places) == 1 and at_the_cut else text


def _attacks(read: Sequence[tuple[Run, Reading]]) -> str:
    """`norm on gradients at the cut and at layer f2`: the worst attack of each run, the most frequent first."""
    places: dict[str, Counter[str]] = {}
    for run, worst in read:
        places.setdefault(f"{worst.attack} on {worst.message}s", Counter())[place(worst, run)] += 1
    heads = sorted(places, key=lambda head: -places[head].total())
    return " and ".join(f"{head} {' and '.join(name for name, _ in places[head].most_common())}" for head in heads)


def _model(runs: Sequence[Run], figure: str) -> list[str]:
    """What the model is worth on rows that it was not trained on; nothing where that is not known, as of most audits."""
    value = mean([run.summary.test_accuracy if figure == "AMI" else run.summary.test_auc for run in runs])
    right = f"classifies {share(value)} of new rows correctly" if figure == "AMI" else f"{number(value)} on new rows"
    return [] if math.isnan(value) else [f"the model itself {right}"]


def _nothing(run: Run) -> str:
    why = "could be scored" if run.skipped or run.unscored else "was chosen"
    return (
        f"No attack on messages {why}, so this {'audit' if run.is_audit else 'run'} says nothing about what they give away."
    )


def _other_messages(read: Sequence[tuple[Run, Reading]], figure: str) -> list[str]:
    """What other kinds of messages give away to attacks that know no more than the worst one.

    `embeddings of party a 64 % with 100 known labels`: the party where there are several. Of equal readings that of an
    attack that knows less counts.
    """
    best: dict[str, list[tuple[float, Leak, Run]]] = {}
    for run, worst in read:
        of_run: dict[str, tuple[float, int, Leak]] = {}
        for leak in run.summary.leaks:
            mine = leak_value(leak, figure), -_level(leak.attack, run), leak
            if counts(leak, run) and mine[1] >= -_level(worst.attack, run) and not math.isnan(mine[0]):
                of_run[leak.message] = max(mine, of_run.get(leak.message, mine), key=lambda one: one[:2])
        for kind, (value, _, leak) in of_run.items():
            best.setdefault(kind, []).append((value, leak, run))
    made = []
    for kind in [kind for kind in best if {worst.message for _, worst in read} != {kind}]:
        value = mean([value for value, _, _ in best[kind]])
        parties = dict.fromkeys(f"party {leak.party}" for _, leak, run in best[kind] if len(run.layers.cut) > 1)
        knows = dict.fromkeys(known for _, leak, run in best[kind] if (known := _known_labels(leak.attack, run)))
        whose, known = f" of {' and '.join(parties)}" * bool(parties), f" {' or '.join(knows)}" * bool(knows)
        made.append(f"{kind}s{whose} {number(value) if figure == 'AMI' else share(value)}{known}")
    return made


def _level(attack: str, run: Run) -> int:
    """The more an attack knows, the higher."""
    level = level_of(attack, run.threats)
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def _reading(run: Run, worst: Reading, figure: str) -> Reading | None:
    """The worst reading in terms of this figure, without an interval if the worst is in terms of another."""
    values = [leak_value(leak, figure) for leak in run.summary.leaks if counts(leak, run)]
    best = max((value for value in values if not math.isnan(value)), default=None)
    other = None if best is None else Reading.model_validate({"figure": figure, "value": best})
    return worst if worst.figure == figure else other


def leak_value(leak: Leak, figure: str) -> float:
    """What a leak comes to in terms of a figure of the verdict: of an AUC the larger of two-sided and net; else nan."""
    of_classes = leak.classes.get({"AUC": "", "macro AUC": "macro_auc", "AMI": "ami"}[figure])
    known = [one.mean for one in ((leak.two_sided, leak.net) if figure == "AUC" else (of_classes,)) if one]
    value = max((one for one in known if one is not None), default=math.nan)
    return max(value, 1 - value) if figure == "macro AUC" else value


def counts(leak: Leak, run: Run) -> bool:
    """Whether it counts in a verdict: an attacker sees the layer, reads a message, and is no reference."""
    return leak.visible and leak.message != NO_MESSAGE and level_of(leak.attack, run.threats) in LEVELS


def place(one: Reading | Leak, run: Run) -> str:
    """`at the cut`, `at party b's layer f2`: the party is named where there are several."""
    whose = f"party {one.party}'s " if len(run.layers.cut) > 1 else ""
    return f"at {whose or 'the '}cut" if run.layers.crosses(one.party, one.layer) else f"at {whose}layer {one.layer}"


def _known_labels(attack: str, run: Run) -> str:
    """`with 100 known labels`; empty of an attack that knows none."""
    return knowledge(attack, run.threats).replace("without labels", "").replace("actively", "by cheating")


def figure_text(one: Reading) -> str:
    """`AUC 0.912`."""
    return f"{one.figure} {number(one.value, 3)}"


def attack(run: Run, worst: Reading) -> str:
    """`norm on gradients at layer f4, AUC 0.912 (the worst of all: 0.89 to 0.93); at the cut, f5, 0.907; needs no label`.

    The interval holds for the worst of all readings, whichever it is (`metrics.verdict.worst`), not for this attack alone.
    """
    ends = between(worst.low, worst.high)
    ends = f"{_WORST_OF_ALL} {ends}" if ends else "one batch, no interval"
    if worst.low is not None and worst.low <= COIN[worst.figure] and (worst.high or 0) >= 1:
        ends = "too few batches for an interval"
    beside, name = "", (worst.attack, worst.message, worst.party)
    at_cut = [one for one in run.summary.leaks if run.layers.crosses(worst.party, one.layer)]
    at_cut = [one for one in at_cut if (one.attack, one.message, one.party) == name]
    values = [(value, one.layer) for one in at_cut if not math.isnan(value := leak_value(one, worst.figure))]
    if values and (best := max(values))[1] != worst.layer:
        beside = f"; at the cut{'' if best[1] == 'cut' else f', {best[1]}'}, {number(best[0], 3)}"
    knows = knowledge(worst.attack, run.threats).replace("without labels", "needs no label")
    return f"{worst.attack} on {worst.message}s {place(worst, run)}, {figure_text(worst)} ({ends}){beside}; {knows}"


def line(summary: Summary) -> str:
    """`leak AUC 0.912 (norm at party b's layer f4), test AUC 0.788`: a finished run in a line of a sweep.

    A model that learned nothing, and a leak that can't be judged, are said to be so.
    """
    reason, worst = learned_nothing(summary), summary.verdict.worst
    parts = [f"{reason[:1].lower()}{reason[1:]}"] if reason else []
    if worst:
        several = len({leak.party for leak in summary.leaks if leak.visible}) > 1
        where = (f"party {worst.party}'s " if several else "") + f"layer {worst.layer}"
        unknown = judged(worst.figure, worst.low, worst.high) is Judgement.UNKNOWN
        unsure = "; too few batches to judge" * unknown
        parts.append(f"leak {figure_text(worst)} ({worst.attack} at {where}{unsure})")
    answers = [one for one in summary.reconstructions if one.message != NO_MESSAGE]
    for figure, words in _SHARES.items():
        if known := [(value, one.attack) for one in answers if (value := _means([one]).get(figure)) is not None]:
            parts.append(f"{words.format(share(max(known)[0]))} ({max(known)[1]})")
            break
    return ", ".join(parts if reason else [*parts, f"test AUC {number(summary.test_auc, 3)}"])


# What was rebuilt


def rebuilt(runs: Sequence[Run]) -> list[str]:
    """A sentence for each attack that rebuilt data from messages, on its strongest answer; means over the runs.

    Each figure stands beside what a guess without messages reaches, and a guess is not called a leak.
    """
    answers: dict[tuple[str, ...], list[Rebuilt]] = {}
    for one in chain.from_iterable(run.summary.reconstructions for run in runs):
        answers.setdefault((one.attack, one.message, one.party, one.layer), []).append(one)
    means, made = {key: _means(of) for key, of in answers.items()}, []
    crossing = {layer for run in runs for layer in run.layers.crossing}
    for name in dict.fromkeys(key[0] for key in answers):
        mine = [key for key, of in answers.items() if key[0] == name and key[1] != NO_MESSAGE and of[0].visible]
        made += [_column(key, means[key], crossing) for key in mine if _COLUMN in means[key]]
        if others := [key for key in mine if _COLUMN not in means[key]]:
            best = max(others, key=lambda key: next((means[key][f] for f in _STRENGTH if f in means[key]), -math.inf))
            if "entries_right" in means[best]:
                made.append(_batch(best, means[best], crossing))
            else:
                made.append(_rows(best, means, [one.beats_every_guess for one in answers[best]], crossing))
    return made


_Means = dict[str, float]


def _means(answer: Sequence[Rebuilt]) -> _Means:
    """Figure -> its mean over the runs, where it is known."""
    names = dict.fromkeys(name for one in answer for name in one.figures)
    made = {name: mean([one.figures[name].mean for one in answer if name in one.figures]) for name in names}
    return {name: value for name, value in made.items() if not math.isnan(value)}


def _gives(key: tuple[str, ...], crossing: Collection[str]) -> tuple[str, str]:
    """(`Embeddings at the cut`, `party a`): what an answer was made of, and whose data it is about."""
    _, message, party, layer = key
    owner, _, reader = party.partition(" by ")
    where = " at the cut" if layer in crossing and message != "update" else ""
    by = f", read by party {reader}," if reader else ""
    source = "The joint model's predictions" if message == "prediction" else f"{message.capitalize()}s{where}{by}"
    return source, "all parties" if owner == "all" else f"party {owner}"


def _batch(key: tuple[str, ...], of: _Means, crossing: Collection[str]) -> str:
    """Of whole private batches."""
    (source, whose), name, right, exact = _gives(key, crossing), key[0], of["entries_right"], of.get("exact", math.nan)
    guess = of.get("matched_guess_right", of.get("guess_entries_right", math.nan))
    shares = {"entries": (right, guess), "labels": (of.get("labels_right"), of.get("guess_labels_right", math.nan))}
    what = " and ".join(
        f"{share(value)} of the {things}{'' if math.isnan(by_guess) else f' (a guess {share(by_guess)})'}"
        for things, (value, by_guess) in shares.items()
        if value is not None
    )
    if right <= guess + _AS_A_GUESS and exact == 0:
        return f"{source} don't give the private batches of {whose} away: {name} finds no batch, and guesses {what}."
    if exact == 1:
        return f"{source} give the private batches of {whose} away, exactly: {name} rebuilds {what}."
    part = f"{share(exact)} of the batches exactly" if exact > 0 else "no batch exactly"
    return f"{source} give parts of the private batches of {whose} away: {name} rebuilds {what}, {part}."


def _rows(
    key: tuple[str, ...], means: dict[tuple[str, ...], _Means], beats: Sequence[bool | None], crossing: Collection[str]
) -> str:
    """Of rows or pictures, which are compared with guesses without a message."""
    (source, whose), of = _gives(key, crossing), means[key]

    def beside(figure: str, **guesses: str) -> str:
        """` (a row by chance 10 %, the class mean 100 %)`. guesses: layer -> its name."""
        by = {name: means.get((key[0], NO_MESSAGE, key[2], layer), {}).get(figure) for layer, name in guesses.items()}
        known = ", ".join(f"{name} {share(value)}" for name, value in by.items() if value is not None)
        return f" ({known})" if known else ""

    shown, of_rows = [], {"random_row": "a row by chance", "class_mean": "the class mean"}
    for figure, text in (("recognised", "pictures of which {} are recognised"), ("id_accuracy", "{} of the category ids")):
        if figure in of:
            shown.append(text.format(share(of[figure])) + beside(figure, **of_rows))
    if not shown and "r2" in of:
        shown.append(f"{share(of['r2'])} of their variance" if of["r2"] > 0 else "no better than by their mean")
    if "identified" in of:
        text = f"{share(of['identified'])} are distinguished from others of their class"
        shown.append(text + beside("identified", chance="by chance"))
    if not shown:
        shown = [f"mse {of['mse']:.3g}" if "mse" in of else "nothing that could be measured"]
    things = "pictures" if "recognised" in of or "ssim" in of else "columns"
    gives = "give" if None in beats or all(beats) else "do not clearly give"
    better = "" if None in beats else f"; {'not surely ' * (not all(beats))}better than every guess without messages"
    return f"{source} {gives} the {things} of {whose} away: {key[0]} rebuilds {', '.join(shown)}{better}."


def _column(key: tuple[str, ...], of: _Means, crossing: Collection[str]) -> str:
    """An attack on a column that is no label."""
    (source, whose), area = _gives(key, crossing), of[_COLUMN]
    without = f"; without messages {number(area - of['attribute_gain'])}" if "attribute_gain" in of else ""
    return (
        f"{source} give {share(max(area, 1 - area))} of the pairs of column {key[3]} of {whose} away to "
        f"{key[0]} (AUC {number(area)}; a coin 0.50{without})."
    )


# What is promised


def exceeded(defense: str, promise: Promise, run: Run) -> str:
    """What is above a defense's ceiling, and what that means."""
    worst, *others = promise.exceeded
    low, ceiling = apart(worst.low or 0.0, worst.ceiling or 0.0)
    text = (
        f"{worst.attack}, {knowledge(worst.attack, run.threats)}, reads {figure_text(worst)} of {worst.message}s at "
        f"{worst.party} {worst.layer}, at least {low}, above the ceiling of {defense}, {ceiling}"
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
    for name, promise in run.summary.guarantees.items():
        if promise is None or promise.bounds == LABEL_PRIVACY:
            continue
        tested = "; what it assumes was tested, and not refused" * bool(promise.assumption_holds)
        text = f"{name}: a leak AUC of at most {number(promise.leak_auc_all_messages, 3)}{tested}"
        if promise.assumption_holds is False:
            text = f"{name} promises nothing here: a test refutes its assumption"
        if promise.exceeded:
            rows.insert(0, ("ALARM", exceeded(name, promise, run), True))
        else:
            rows.append(("promise", text, False))
    return rows


def _spent(privacy: Privacy) -> list[tuple[str, str, bool]]:
    """The label privacy that a run spent, and what its canaries prove of it."""
    figures = {"eps": (privacy.epsilon, privacy.epsilon_low), "mu": (privacy.mu, privacy.mu_low)}
    spent = " and ".join(f"{name} = {most:.4g}" for name, (most, _) in figures.items() if most is not None)
    proven = " and ".join(f"{name} at least {least:.3g}" for name, (_, least) in figures.items() if least)
    measured = f"{privacy.canaries:,} canaries prove {proven or 'none of it'}"
    text = f"{measured if privacy.canaries else 'not checked, as there are no canaries'}{': VIOLATED' * privacy.violated}"
    return [("privacy", f"label DP with {spent}; {text}", privacy.violated)] if spent else []


def above_label_privacy(run: Run, worst: Reading) -> list[str]:
    """That an AUC above the ceiling of label privacy is no alarm: it bounds what messages add, and features tell labels too.

    Empty where the AUC does not look higher than the lowest such ceiling for all messages.
    """
    given = [
        (p.leak_auc_all_messages, name) for name, p in run.summary.guarantees.items() if p and p.bounds == LABEL_PRIVACY
    ]
    height, name = min(((ceiling, name) for ceiling, name in given if ceiling is not None), default=(1.0, ""))
    if worst.figure != "AUC" or not round(worst.value or 0, 3) > round(height, 3):
        return []
    return [f"{number(worst.value, 3)} is above {name}'s {number(height, 3)}: no alarm, as features tell labels too"]


def checked(privacy: Sequence[Privacy]) -> str:
    """Whether a run of a setting saw the promise broken, and how weak it had to be for the canaries of each to show that."""
    if any(one.violated for one in privacy):
        return "violated"
    if not any(one.canaries for one in privacy):
        return "not checked: no canaries (audit.canaries)"
    least = [
        min(same, key=lambda one: one.probability or 0) for same in zip(*(p.power for p in privacy if p.power), strict=False)
    ]
    caught = ", ".join(f"{one.times:g} times too weak with probability {_probability(one)}" for one in least)
    return f"not violated, which does not verify it{f'; caught at best: {caught}' if caught else ''}"


def _probability(power: Power) -> str:
    """Of catching a promise that is too weak."""
    value = power.probability or 0.0
    return "below 0.001" if value < 0.001 else "above 0.999" if value > 0.999 else f"{value:.2g}"


def not_run(run: Run) -> list[str]:
    """`Not run: norm, direct: no gradients.`: a line for each reason why attacks were not run, or not scored."""
    made = []
    for what, reasons in (("Not run", run.skipped), ("Not scored", run.unscored)):
        names: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            names.setdefault(reason, []).append(name)
        made += [f"{what}: {', '.join(names[reason])}: {reason}." for reason in sorted(names, key=lambda r: -len(names[r]))]
    return made


# Thresholds


def threshold(outcome: Outcome) -> str:
    """What a threshold of --fail-above came to: `FAIL: leak_auc_worst is 0.985, 0.385 above 0.6 (norm, ...); ...`."""
    limit, gap, row = outcome.gate.threshold, abs(outcome.row.value - outcome.gate.threshold), outcome.row
    digits = 3 if gap >= 0.0005 or gap == 0 else min(12, 1 - math.floor(math.log10(gap)))  # as many as show the gap
    is_cut = row.layer in outcome.crossing.get(row.party, ()) and row.layer != "cut"
    where = [row.attack, f"{row.message}s", f"{row.party} {row.layer}{', the cut' * is_cut}"]
    where += [f"epoch {row.epoch}"] if row.epoch != outcome.last_epoch else []
    start, beyond = {True: "PASS", False: "FAIL", None: "NOT JUDGED"}[outcome.passed], row.value > limit
    value = f"{row.value:.{digits}f}, {gap:.{digits}f} {'above' if beyond else 'below'} {limit:g}"
    parts = [f"{start}: {outcome.gate.key} is {value} ({', '.join(where)})"]
    if math.isnan(row.ci_low) or math.isnan(row.ci_high):
        parts.append("from a single batch: no interval")
    else:
        side = "all of it above" if row.ci_low > limit else "not above" if row.ci_high <= limit else "partly above"
        which = "the 95 % interval of the worst of all readings" if outcome.of_all else "its own 95 % interval"
        parts.append(f"{which} is {between(row.ci_low, row.ci_high, 3)}: {side}")
    if outcome.passed is None:
        parts.append(f"too few audited batches to judge: {MORE_BATCHES}")
    if outcome.undefined:
        parts.append(f"without a value, so not judged: {', '.join(outcome.undefined)}")
    if outcome.passed and outcome.other_side > limit:
        least, turned = number(1 - outcome.other_side, 3), number(outcome.other_side, 3)
        other = f"another reading is {least}: turned around, that is {turned}, above {limit:g}"
        parts.append(f"but it is one-sided, and {other} (leak_auc_two_sided counts both sides)")
    return "; ".join(parts)


# Several settings


def defense_sentences(section: "Section") -> list[tuple[str, str]]:
    """(defense, sentence), the undefended first, then the lowest leak first; of a model that learned nothing last.

    Of the settings of a defense the one that leaks least is named; without a defense the one that leaks most. Only of the
    settings that may be compared with the others, if the defense has any (`Section.front`).
    """
    by_defense: dict[tuple[str, str], list[Setting]] = {}
    for group in section.groups:
        by_defense.setdefault((group.defense, group.adversary), []).append(group)
    made = []
    for (defense, adversary), every in by_defense.items():
        groups = [one for one in every if one.name in section.front.settings] or every
        groups = [one for one in groups if not math.isnan(worst_of(one))] or groups
        group = (max if defense == "none" else min)(groups, key=rank)
        name = {"none": NOBODY, AS_RECORDED: AS_RECORDED.capitalize()}.get(defense, defense)
        name += "" if adversary == "none" else f", adversary {adversary}"
        name += group.name.removeprefix(defense) if len(every) > 1 else ""
        made.append((defense != "none", *rank(group), name, verdict(group.runs)))
    made.sort(key=lambda one: one[:3])
    more = [(f"{len(made) - MOST_DEFENSES} more defenses", "they are in the tables below.")]
    return [one[3:] for one in made[:MOST_DEFENSES]] + more * (len(made) > MOST_DEFENSES)


def worst_of(group: "Setting") -> float:
    """What the worst attack of each run reads, mean over seeds; nan without one."""
    return mean([run.summary.verdict.worst.value for run in group.runs if run.summary.verdict.worst])


def rank(group: "Setting") -> tuple[bool, float]:
    """The better the defense, the lower; a setting whose model learned nothing comes after all that learned."""
    return any(run.summary.learned is False for run in group.runs), worst_of(group)


def remarks(section: "Section") -> list[str]:
    """Which defenses lower the leak; of one run or audit what was rebuilt, what was not run, notes; the next step."""
    lower, run = _lowering(section), section.groups[0].runs[0]
    if len(section.runs) > 1:
        lines = [text for text, _ in lower[:MOST_BASES]]
    else:
        lines = rebuilt([run]) if run.summary.verdict.worst else []
        lines += [run.summary.observed_privacy.verdict] if run.is_audit and run.summary.observed_privacy else []
        notes = [f"{note[:1].upper()}{note[1:]}." for note in run.manifest.notes]
        lines += [*not_run(run), *notes] if run.is_audit else []
    open_ones = [run for one in section.groups if one.undefended or one.runs[0].is_audit for run in one.runs]
    worsts = [(run, worst) for run in open_ones if (worst := run.summary.verdict.worst)]
    leaking = [run for run, one in worsts if judged(one.figure, one.low, one.high) is Judgement.LEAK]
    if not leaking or any(is_lowered for _, is_lowered in lower):
        return lines
    if all(run.is_audit for run in leaking):
        return [
            *lines,
            "What to do next: messages that were recorded can't be defended afterwards. Train again with a defense, record "
            f"and audit that training, and compare both audits on a page of vflbench report. {HOW_TO[:1].upper()}"
            f"{HOW_TO[1:]} says which to try first: of a model that vflbench trains, defense=label_gdp.",
        ]
    return [*lines, f"What to do next: {HOW_TO} compares the defenses, and says which to try first."]


def _lowering(section: "Section") -> list[tuple[str, bool]]:
    """(sentence, whether any defense lowers it) for each undefended setting with defended ones of the same data beside it.

    The defenses that lower it with all else equal, that with the lowest reading first. Readings are of the worst attack at
    any layer that an attacker sees, means over seeds. A model that learned nothing does not count.
    """
    data = {one.name: {run.manifest.data.fingerprint for run in one.runs} for one in section.groups}
    worsts = {one.name: [run.summary.verdict.worst for run in one.runs] for one in section.groups}
    groups = [one for one in section.groups if all(worst and worst.figure == "AUC" for worst in worsts[one.name])]
    utility = {one.name: mean([run.summary.test_auc for run in one.runs]) for one in groups}

    def text(one: "Setting") -> str:
        return f"{one.name}: AUC {number(worst_of(one))} with test AUC {number(utility[one.name])}"

    made = []
    for base in (one for one in groups if one.undefended):
        beside = [one for one in groups if not one.undefended and section.settings.baseline[one.name] == base.name]
        beside = [one for one in beside if data[one.name] == data[base.name]]
        useful = [one for one in beside if not rank(one)[0] and not utility[one.name] < _USEFUL]
        lower = sorted((one for one in useful if worst_of(one) < worst_of(base)), key=worst_of)
        first = f"What lowers it most, as measured here on the same data: {'; '.join(map(text, lower[:MOST_NAMED]))}"
        first = first if lower else "No defense that was measured here lowers it with a useful model"
        made += [(f"{first}. Without a defense, {text(base)}.", bool(lower))] if beside else []
    return made


def knowledge(attack: str, threats: Mapping[str, Threat]) -> str:
    """What it knows of the labels, for a sentence: `without labels`, `with 100 known labels`, `actively`."""
    level, threat = level_of(attack, threats), threats.get(base_name(attack), Threat())
    known = [f"{threat.known_rows} known labels"] if threat.known_rows else []
    known += [f"{threat.hints} known positive{'s' * (threat.hints > 1)} a batch"] if threat.hints else []
    labels = f"with {' and '.join(known or ['known labels'])}"
    actively = f"actively, {labels}" if known else "actively"
    return {LEVELS[0]: "without labels", LEVELS[2]: actively}.get(level, labels)


# Options, in the names of settings


def short(key: str) -> str:
    """The last part of a dotted key; of a class, the part before."""
    return _parts(key)[-1]


def shown(value: Any) -> str:
    """An option's value in a name; of a class or a file only the last part, of a list the first entries."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        more = [f"{len(value) - MOST_ENTRIES} more"] if len(value) > MOST_ENTRIES else []
        return "+".join([*map(shown, value[:MOST_ENTRIES]), *more]) or "none"
    text = str(value)
    return text.rsplit(".", 1)[-1] if text.startswith("vflbench.") else text.rsplit("/", 1)[-1]


def in_words(options: Mapping[str, Any]) -> list[str]:
    """Each option with its value, `mu 1`, `audit.epochs last`, `columns of a opened+score`, but for those that are null.

    A key that shares its last part with another has one part more, so that no name stands twice.
    """
    known = {key: value for key, value in options.items() if value is not None}
    times = Counter(map(_name, known))
    names = [_name(key) if times[_name(key)] == 1 else ".".join(_parts(key)[-2:]) for key in known]
    return [f"{name} {shown(value)}" for name, value in zip(names, known.values(), strict=True)]


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
