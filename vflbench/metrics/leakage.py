"""What an attack's scores give away: (scores, truth) -> numbers, over the audited batches of an epoch."""

import math
from dataclasses import astuple, dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.metrics.canary import guess
from vflbench.metrics.leak import CLASS_FIGURES, Key, Leak, leak_of, two_sided
from vflbench.numerics.auc import array_of, auc

__all__ = ["CLASS_FIGURES", "Key", "Leak", "LeakTable", "Values", "checked_scores", "class_figures", "two_sided"]

Values: TypeAlias = Tensor | np.ndarray
"""Of torch, on any device, or of numpy."""
Several = TypeVar("Several", Tensor, np.ndarray)


@dataclass
class LeakTable:
    """Collects leak AUCs, and figures of K classes, batch by batch."""

    _batches: dict[Key, list[dict[str, Any]]] = field(default_factory=dict)

    def add(
        self,
        key: Key,
        scores: Values,
        truth: Values,
        known: Values | None = None,
        canary: Values | None = None,
        candidates: Values | None = None,
        difference: Values | None = None,
    ) -> None:
        """key: (attack, message, party, layer, visible); scores (n,) or (n, 1): higher = more likely positive, or (n, K): a
        column for each class; truth (n,) classes 0 .. K - 1. known: (k,) places of rows whose label the attacker was told,
        which don't count. canary: (n,) bool, rows whose label is a coin: scores of two classes are taken for guesses about
        them, and they count for nothing else. candidates: (n, m) scores along m directions between which, and between whose
        ends, the attacker can't decide; for two classes.

        Of (n, 2) scores the difference gives the leak AUC; difference: (n,), or any with its order, where it is given.
        Raises UserError as `checked_scores` does. Arrays are taken for checked.
        """
        checked: Any = scores
        if not isinstance(scores, np.ndarray):
            checked = checked_scores(scores, len(truth), attack=key[0], layer=key[3])
        columns = array_of(_checked_candidates(candidates, len(truth), attack=key[0], layer=key[3]))
        apart = difference if difference is not None or checked.ndim == 1 else between(checked)
        values, classes = array_of(checked), array_of(truth)
        several, two = values.ndim == 2, None if apart is None else array_of(apart)
        two = two if several else values
        is_canary = None if canary is None else array_of(canary)
        if known is not None and len(known):
            asked = np.ones(len(classes), np.bool_)
            asked[array_of(known)] = False
            values, classes, columns = values[asked], classes[asked], columns[asked]
            two = None if two is None else two[asked]
            is_canary = None if is_canary is None else is_canary[asked]
        figures: dict[str, Any] = {}
        if is_canary is not None and bool(is_canary.any()):
            if two is not None:
                figures["guesses"] = astuple(guess(two, classes != 0, is_canary))
                two = two[~is_canary]
            values, classes, columns = values[~is_canary], classes[~is_canary], columns[~is_canary]
        if several:
            figures |= class_figures(values, classes)
        if two is not None:
            is_positive = classes != 0
            positives = int(is_positive.sum())
            figures |= {"auc": auc(two, is_positive), "positives": positives, "negatives": len(classes) - positives}
            if columns.shape[1]:
                figures["candidates"] = [auc(column, is_positive) for column in columns.T]
        self._batches.setdefault(key, []).append(figures)

    def has(self, attack: str) -> bool:
        """Whether there is anything about that attack."""
        return any(key[0] == attack for key in self._batches)

    def leave_out(self, key: Key) -> None:
        """A batch in which that attack could not be asked."""
        self._batches.setdefault(key, []).append({})

    def leaks(self) -> list[Leak]:
        """One entry a key, in the order they first came."""
        return [leak_of(key, batches) for key, batches in self._batches.items()]


def between(scores: Several) -> Several | None:
    """(n,) by how much class 1 scores above class 0; None for more than two classes. scores: (n, K)."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else None


def checked_scores(scores: Tensor, rows: int, classes: int | None = None, *, attack: str, layer: str) -> Tensor:
    """(n,) or (n, K) floating-point scores. Raises UserError for scores that are not one finite number a row, or one a row
    and class: a broken attack must not pass for a harmless one.

    scores: (n,), (n, 1) or (n, K). rows: n. classes: K; None allows any number of columns.
    """
    wanted = f"({rows},), or ({rows}, {classes or 'K'}) with a column for each class"
    if not isinstance(scores, torch.Tensor):
        problem = f"its scores on {layer} must be a tensor of shape {wanted}, got {type(scores).__name__}"
        raise UserError(problem, key="attack", value=attack)
    scores = scores.detach().as_subclass(torch.Tensor)  # a subclass could read what it is compared with
    shape = tuple(scores.shape)
    if shape == (rows, 1):
        scores = scores[:, 0]
    elif shape != (rows,) and not (len(shape) == 2 and shape[0] == rows and classes in (shape[1], None) and shape[1] > 1):
        raise UserError(f"its scores on {layer} must have the shape {wanted}, got {shape}", key="attack", value=attack)
    wrong = int((~scores.isfinite()).sum())
    if wrong:
        problem = f"its scores on {layer} must be finite numbers, and {wrong} of {scores.numel()} are not"
        raise UserError(problem, key="attack", value=attack)
    return scores if scores.is_floating_point() else scores.double()


def _checked_candidates(
    candidates: Tensor | np.ndarray | None, rows: int, *, attack: str, layer: str
) -> Tensor | np.ndarray:
    """(n, m) floating-point scores; (n, 0) where there are none. Raises UserError as `checked_scores` does."""
    if candidates is None:
        return np.empty((rows, 0), np.float32)
    if isinstance(candidates, np.ndarray):
        return candidates
    if not isinstance(candidates, torch.Tensor) or candidates.ndim != 2 or len(candidates) != rows:
        shape = tuple(candidates.shape) if isinstance(candidates, torch.Tensor) else type(candidates).__name__
        raise UserError(
            f"its candidates on {layer} must have the shape ({rows}, m), got {shape}", key="attack", value=attack
        )
    scores = checked_scores(candidates, rows, attack=attack, layer=layer)
    return scores[:, None] if scores.ndim == 1 else scores


def class_figures(scores: Values, truth: Values) -> dict[str, float]:
    """accuracy: the share of rows whose highest score is that of their class. ami: the adjusted mutual information of the
    answer and the classes, 0 for a coin and 1 for an answer that is the classes under any names. macro_auc: the mean, over
    the classes that have rows here and don't fill them all, of the AUC of a class's scores against the rest; nan for none.

        AMI = (I(answer; y) - E I) / ((H(answer) + H(y)) / 2 - E I),   E I: of random answers with as many rows a class

    scores: (n, K); truth: (n,) classes 0 .. K - 1.

    Source: Vinh, Epps and Bailey, "Information Theoretic Measures for Clusterings Comparison", 2010.
    """
    values, classes = array_of(scores), array_of(truth)
    if not len(classes):
        return dict.fromkeys(CLASS_FIGURES, math.nan)
    from sklearn.metrics import adjusted_mutual_info_score  # takes a second to import, which most runs needn't wait

    answer = values.argmax(axis=1)
    areas = [auc(column, classes == k) for k, column in enumerate(values.T)]
    defined = [area for area in areas if not math.isnan(area)]
    return {
        "accuracy": float((answer == classes).mean()),
        "ami": float(adjusted_mutual_info_score(classes, answer)),
        "macro_auc": math.fsum(defined) / len(defined) if defined else math.nan,
    }
