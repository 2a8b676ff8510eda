"""What attacks rebuilt of the data, in a sentence each, beside what is guessed without any message."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflbench.report.plain_numbers import mean, percent
from vflbench.results import quantity
from vflbench.results.runs import Run, mappings

_COLUMN = "attribute_auc"
_STRENGTH = ("entries_right", "recognised", "id_accuracy", "r2", "labels_right")
"""By the first of these that an answer has, the strongest of an attack's answers is chosen."""
_AS_A_GUESS = 0.02
"""So much more than by a guess says nothing where no batch was found."""


def rebuilt_words(runs: Sequence[Run]) -> list[str]:
    """A sentence for each attack that rebuilt data from messages, on its strongest answer; means over the runs."""
    answers = _answers(runs)
    made = []
    for attack in dict.fromkeys(answer.attack for answer in answers):
        mine = [answer for answer in answers if answer.attack == attack and answer.is_of_message]
        made += [_column(answer) for answer in mine if answer.has(_COLUMN)]
        others = [answer for answer in mine if not answer.has(_COLUMN)]
        if others:
            strongest = max(others, key=_strength)
            made.append(_batch(strongest) if strongest.has("entries_right") else _rows(strongest, answers))
    return made


@dataclass(frozen=True)
class _Answer:
    """What one attack rebuilt of one party's data, in each of the runs. entries: of summary.json, one a run."""

    attack: str
    message: str
    owner: str
    layer: str
    reader: str
    at_the_cut: bool
    entries: tuple[Mapping[str, Any], ...]

    @property
    def is_of_message(self) -> bool:
        return self.message != quantity.NO_MESSAGE and bool(self.entries[0].get("visible", True))

    def mean(self, figure: str) -> float:
        return mean([quantity.mean_of((entry.get("figures") or {}).get(figure)) for entry in self.entries])

    def has(self, figure: str) -> bool:
        return not math.isnan(self.mean(figure))

    @property
    def whose(self) -> str:
        return "all parties" if self.owner == "all" else f"party {self.owner}"

    @property
    def source(self) -> str:
        """`Embeddings at the cut`, `What party b received`."""
        if self.message == "prediction":
            return "The joint model's predictions"
        where = " at the cut" if self.at_the_cut and self.message != "update" else ""
        by = f", read by {self.reader}," if self.reader else ""
        return f"{self.message.capitalize()}s{where}{by}"


def _answers(runs: Sequence[Run]) -> list[_Answer]:
    together: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        for entry in mappings(run.summary.get("reconstructions")):
            key = tuple(str(entry.get(name, "")) for name in ("attack", "message", "party", "layer"))
            together.setdefault(key, []).append(entry)
    made = []
    for (attack, message, party, layer), entries in together.items():
        owner, _, reader = party.partition(" by ")
        at_the_cut = any(layer in run.layers.crossing for run in runs)
        made.append(_Answer(attack, message, owner, layer, reader and f"party {reader}", at_the_cut, tuple(entries)))
    return made


def _batch(answer: _Answer) -> str:
    """Of whole private batches."""
    right, labels, exact = (answer.mean(name) for name in ("entries_right", "labels_right", "exact"))
    line = answer.mean("matched_guess_right")
    line = answer.mean("guess_entries_right") if math.isnan(line) else line
    guessed = f" (a guess {percent(answer.mean('guess_labels_right'))})"
    of_labels = f" and {percent(labels)} of the labels{guessed}" if not math.isnan(labels) else ""
    beside = f" (a guess {percent(line)})" if not math.isnan(line) else ""
    what = f"{percent(right)} of the entries{beside}{of_labels}"
    if not math.isnan(line) and right <= line + _AS_A_GUESS and exact == 0:
        start = f"{answer.source} don't give the private batches of {answer.whose} away"
        return f"{start}: {answer.attack} finds no batch, and guesses {what}."
    if exact == 1:
        return f"{answer.source} give the private batches of {answer.whose} away, exactly: {answer.attack} rebuilds {what}."
    part = f"{percent(exact)} of the batches exactly" if exact > 0 else "no batch exactly"
    return (
        f"{answer.source} give parts of the private batches of {answer.whose} away: {answer.attack} rebuilds {what}, {part}."
    )


def _rows(answer: _Answer, answers: Sequence[_Answer]) -> str:
    """Of rows or pictures, which are compared with guesses without a message."""
    things = "pictures" if answer.has("recognised") or answer.has("ssim") else "columns"
    shown = [*_shares(answer, answers), *_identified(answer, answers)]
    shown = shown or [f"{name} {answer.mean(name):.3g}" for name in ("r2", "mse") if answer.has(name)][:1]
    text = ", ".join(shown) or "nothing that could be measured"
    beats = [entry.get("beats_every_guess") for entry in answer.entries]
    gives = "give" if None in beats else "give" if all(beats) else "do not clearly give"
    sentence = f"{answer.source} {gives} the {things} of {answer.whose} away: {answer.attack} rebuilds {text}"
    return f"{sentence}{_against_guesses(answer)}."


def _shares(answer: _Answer, answers: Sequence[_Answer]) -> list[str]:
    made = []
    words = {"recognised": "pictures of which {} are recognised", "id_accuracy": "{} of the category ids"}
    for figure, text in words.items():
        if answer.has(figure):
            beside = [
                f"{name} {percent(other.mean(figure))}"
                for name, layer in (("a row by chance", "random_row"), ("the class mean", "class_mean"))
                for other in _beside(answer, answers, layer)
                if other.has(figure)
            ]
            made.append(text.format(percent(answer.mean(figure))) + (f" ({', '.join(beside)})" if beside else ""))
    if not made and answer.has("r2"):
        share = answer.mean("r2")
        made.append(f"{percent(share)} of their variance" if share > 0 else "no better than by their mean")
    return made


def _identified(answer: _Answer, answers: Sequence[_Answer]) -> list[str]:
    if not answer.has("identified"):
        return []
    chance = [other.mean("identified") for other in _beside(answer, answers, "chance")]
    beside = f" (by chance {percent(chance[0])})" if chance else ""
    return [f"{percent(answer.mean('identified'))} are distinguished from others of their class{beside}"]


def _against_guesses(answer: _Answer) -> str:
    """Whether it beats every guess without messages; empty where it wasn't compared."""
    beats = [entry.get("beats_every_guess") for entry in answer.entries]
    if None in beats:
        return ""
    if all(beats):
        return "; better than every guess without messages"
    margins = answer.entries[0].get("beats_guesses") or {}
    better = sum(not (margin or {}).get("beats") for margin in margins.values())
    if better:
        return (
            f"; {better} of {len(margins)} guesses without messages {'is' if better == 1 else 'are'} not significantly worse"
        )
    return "; a smaller error than every guess, but rows are not distinguished from others of their class"


def _column(answer: _Answer) -> str:
    """An attack on a column that is no label."""
    area, gain = answer.mean(_COLUMN), answer.mean("attribute_gain")
    without = f"; without messages {area - gain:.2f}" if not math.isnan(gain) else ""
    return (
        f"{answer.source} give {percent(max(area, 1 - area))} of the pairs of column {answer.layer} of {answer.whose} away "
        f"to {answer.attack} (AUC {area:.2f}; a coin 0.50{without})."
    )


def _beside(answer: _Answer, answers: Sequence[_Answer], layer: str) -> list[_Answer]:
    """The guess of that name beside an answer."""
    same = (answer.attack, answer.owner, answer.reader, quantity.NO_MESSAGE, layer)
    return [one for one in answers if (one.attack, one.owner, one.reader, one.message, one.layer) == same]


def _strength(answer: _Answer) -> float:
    return next((answer.mean(figure) for figure in _STRENGTH if answer.has(figure)), -math.inf)
