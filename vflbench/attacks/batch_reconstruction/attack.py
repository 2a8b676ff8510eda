"""Batch reconstruction: a whole private batch from the updates that it was answered with."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.attacks.batch_reconstruction.batch_search import SearchOptions, SearchResult, search
from vflbench.attacks.batch_reconstruction.recover_gram import TrainingRules
from vflbench.messages.facts import ClassShares, OwnColumns, Rules, Updates
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import View
from vflbench.options import Count, Positive, options


@options
class BatchReconstruction(Attack):
    """Solve for the rows and labels of the other participants' batch, from the models they were sent and what came back.

        4 g(theta) = alpha theta - 2 beta,   alpha = X^T X,   beta = X^T Y:   d + 1 rounds of one batch tell both,
        and then X, Y in integers from alpha and beta

    Of several other participants it sees the sum of updates, and rebuilds all their rows together.

    recovery: of alpha and beta, `least_squares` over d + 1 rounds or more, or `lattice`, integer relations among few rounds
    (extra `lattice`). solver: `exact` enumerates every batch that fits, `highs`, `cbc` and `cpsat` (extra `cpsat`) solve an
    integer programme for one; formulation, of a programme: `tight`, or as `published`. knows_batch_size: else it is told
    from the mean gradients, as the least that makes all integers. time_limit: seconds for one batch. max_batches: more that
    fit are not listed. Columns that are not binary are told apart, and solved for where the binary ones determine the rows.

    The entries of the answer are those of the first batch that fits; `matches` counts them all. Where it has no answer it
    guesses every entry by the majority of its own rows, and every label by that of the training rows.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019; the enumeration, the tight
    programme, integer relations, real-valued columns and the answer to asynchronous training are ours.
    """

    threat = Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares})

    recovery: Literal["least_squares", "lattice"] = "least_squares"
    solver: Literal["exact", "highs", "cbc", "cpsat"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    knows_batch_size: bool = True
    time_limit: Positive = 10.0
    max_batches: Count = 1000

    def __post_init__(self) -> None:
        self._seen: dict[str, dict[str, Any]] = {}
        self._found: dict[str, SearchResult] = {}

    def batch(self, view: View) -> None:
        """One more round of the batch of view.step."""
        updates, own = view[Updates], view[OwnColumns].numeric.double().cpu()
        seen = self._seen.setdefault(str(view.step), _nothing(updates.rules, own.shape[1]))
        seen["before"] = torch.cat([seen["before"], updates.before[None].cpu()])
        seen["others"] = torch.cat([seen["others"], updates.others[None].cpu()])
        kept_back = (updates.own.cpu() == 0) & (own != 0).any(dim=0) & bool(updates.before.any())
        seen["partial"] = seen["partial"] + int(kept_back.any())
        seen["ones"], seen["rows"] = seen["ones"] + own.sum(dim=0), seen["rows"] + len(own)

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """Every batch that was met, as far as its rounds determine it."""
        positive = view[ClassShares].positive
        return [self._rebuild(step, positive) for step in sorted(map(int, self._seen))]

    def _rebuild(self, step: int, positive: float) -> RebuiltBatch:
        """positive: the share of positives among the training rows."""
        key, seen = str(step), self._seen[str(step)]
        thetas, updates = seen["before"].numpy(), seen["others"].numpy()
        self._found[key] = found = search(thetas, updates, _setting(seen), self._search(), self._found.get(key))
        guess, label = (seen["ones"] / seen["rows"] > 0.5).double(), 1.0 if positive > 0.5 else -1.0
        return _answered(step, found, guess, label)

    def _search(self) -> SearchOptions:
        names = ("recovery", "solver", "formulation", "knows_batch_size", "time_limit", "max_batches")
        return SearchOptions(**{name: getattr(self, name) for name in names})

    def state(self) -> dict[str, Any]:
        """What it saw; what it made of that it can work out again."""
        return {"seen": self._seen}

    def restore(self, state: dict[str, Any]) -> None:
        self._seen = {
            step: {name: value.clone() if isinstance(value, Tensor) else value for name, value in seen.items()}
            for step, seen in state["seen"].items()
        }


def _nothing(rules: Rules, columns: int) -> dict[str, Any]:
    """Of a batch that was not met yet."""
    empty = torch.empty((0, columns), dtype=torch.float64)
    return {
        "rules": asdict(rules),
        "before": empty,
        "others": empty,
        "ones": torch.zeros(columns).double(),
        "rows": 0,
        "partial": 0,
    }


def _setting(seen: Mapping[str, Any]) -> TrainingRules:
    """What was agreed to; that updates are sent in part, it sees by its own: in most rounds some of it is 0."""
    rules = seen["rules"]
    agreed = {name: rules[name] for name in ("rate", "reduction", "batches", "batch_size")}
    return TrainingRules(others=rules["parties"] - 1, **agreed, whole=2 * seen["partial"] < len(seen["before"]))


def _answered(step: int, found: SearchResult, guess: Tensor, guess_label: float) -> RebuiltBatch:
    told = {name: getattr(found, name) for name in ("rows", "labels", "steps", "binary", "shares")}
    tensors: dict[str, Any] = {name: None if value is None else torch.from_numpy(value) for name, value in told.items()}
    candidates = tuple(torch.from_numpy(batch) for batch in found.candidates)
    return RebuiltBatch(step, guess, guess_label, **tensors, candidates=candidates, figures=found.figures, note=found.note)
