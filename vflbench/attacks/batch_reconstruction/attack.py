"""Batch reconstruction: a whole private batch, from the updates that were computed on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.messages.facts import ClassShares, OwnColumns, Rules, Schema, Updates
from vflbench.messages.threat import Seat, Threat, View
from vflbench.options import Seconds, Steps, options

if TYPE_CHECKING:
    from vflbench.attacks.batch_reconstruction.search import SearchOptions, SearchResult, TrainingRules


@options
class BatchReconstruction(Attack):
    """Solve for the rows and labels of the other participants' batch, from the models and the updates of several rounds.

        4 g(theta) = alpha theta - 2 beta,   alpha = X^T X,   beta = X^T Y:   d + 1 rounds of one batch determine both,
        and then X, Y in integers from alpha and beta

    With several other participants, the attacker knows the sum of their updates, and rebuilds all their rows together. If it
    sees each update (protocol.aggregation=plain), it rebuilds each batch alone.

    solver: `exact` enumerates every batch that matches, `highs` and `cbc` solve an integer programme for one. formulation:
    form of the programme: `tight`, or as `published`.
    knows_batch_size: otherwise the batch size follows from the mean gradients, as the least one that makes all numbers
    integers. time_limit: seconds for one batch. max_batches: largest number of matching batches that are listed. Columns
    that are not binary, by the rules' schema, are solved for where the binary ones determine the rows. Without a schema they
    are recognised by their sums, which proves
    nothing: like every `assumption` of a result, it sets what figures claim to 0.

    The answer holds the first matching batch; `matches` counts all of them. If none is found, the answer is a guess, and
    counts as no match: entries are drawn with the shares of ones in the attacker's own rows, and labels are the majority of
    the training rows.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019; the enumeration, the tight
    programme, real-valued columns and the answer to asynchronous training are ours.
    """

    threat = Threat(Seat.PARTICIPANT, {Updates, OwnColumns, ClassShares})

    solver: Literal["exact", "highs", "cbc"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    knows_batch_size: bool = True
    time_limit: Seconds = 10.0
    max_batches: Steps = 1000

    def __post_init__(self) -> None:
        self._rounds: dict[str, dict[str, Any]] = {}  # step -> what is kept of its rounds
        self._results: dict[str, list[SearchResult]] = {}  # one for each update that it sees

    def batch(self, view: View) -> None:
        """Keep one more round of the batch of view.step."""
        updates, columns = view[Updates], view[OwnColumns].numeric.double().cpu()
        kept = self._rounds.setdefault(
            str(view.step), _nothing(updates.rules, max(1, len(updates.received)), columns.shape[1])
        )
        kept["before"] = torch.cat([kept["before"], updates.before[None].cpu()])
        kept["others"] = torch.cat([kept["others"], _seen(updates)[None].cpu()])
        withheld = (updates.sent.cpu() == 0) & (columns != 0).any(dim=0) & bool(updates.before.any())
        kept["partial"] = kept["partial"] + int(withheld.any())
        kept["ones"], kept["rows"] = kept["ones"] + columns.sum(dim=0), kept["rows"] + len(columns)

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """Every batch so far, as far as its rounds determine it."""
        positive = view[ClassShares].positive
        return [self._rebuild(step, positive) for step in sorted(map(int, self._rounds))]

    def _rebuild(self, step: int, positive: float) -> RebuiltBatch:
        """positive: the share of positives among the training rows."""
        from vflbench.attacks.batch_reconstruction.search import search, side_by_side
        from vflbench.attacks.batch_reconstruction.solutions import guesses_by_columns

        key, kept = str(step), self._rounds[str(step)]
        thetas, updates = kept["before"].numpy(), kept["others"].numpy()
        sources, rules = updates.shape[1], _training_rules(kept)
        rules = rules if sources == 1 else replace(rules, others=1)
        earlier = self._results.get(key, [None] * sources)
        self._results[key] = [search(thetas, updates[:, k], rules, self._options(), earlier[k]) for k in range(sources)]
        rows = rules.others * rules.batches * rules.batch_size
        result = side_by_side(self._results[key], [rows] * sources, self.max_batches)
        shares, label = kept["ones"] / kept["rows"], 1.0 if positive > 0.5 else -1.0
        return _answer(step, result, guesses_by_columns(shares.numpy(), sources * rows, seed=step), shares, label)

    def _options(self) -> SearchOptions:
        from vflbench.attacks.batch_reconstruction.search import SearchOptions

        names = ("solver", "formulation", "knows_batch_size", "time_limit", "max_batches")
        return SearchOptions(**{name: getattr(self, name) for name in names})

    def state(self) -> dict[str, Any]:
        """The rounds so far; results follow from them."""
        return {"rounds": self._rounds}

    def restore(self, state: dict[str, Any]) -> None:
        self._rounds = {
            step: {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in kept.items()}
            for step, kept in state["rounds"].items()
        }


def _nothing(rules: Rules, sources: int, columns: int) -> dict[str, Any]:
    """What is kept of a batch before its first round."""
    empty = torch.empty((0, columns), dtype=torch.float64)
    return {
        "rules": asdict(rules),
        "before": empty,
        "others": torch.empty((0, sources, columns), dtype=torch.float64),
        "ones": torch.zeros(columns).double(),
        "rows": 0,
        "partial": 0,
    }


def _training_rules(kept: Mapping[str, Any]) -> TrainingRules:
    """What all participants agreed to. Whether updates are whole, if nothing says so, the attacker's own ones tell."""
    from vflbench.attacks.batch_reconstruction.search import TrainingRules

    rules = kept["rules"]
    agreed = {name: rules[name] for name in ("rate", "reduction", "batches", "batch_size")}
    schema = None if rules["schema"] is None else Schema(**rules["schema"])
    agreed_whole = rules["whole"]
    whole = 2 * kept["partial"] < len(kept["before"]) if agreed_whole is None else agreed_whole
    rest = {"whole": whole, "whole_is_known": agreed_whole is not None, "schema": schema}
    return TrainingRules(others=rules["parties"] - 1, **agreed, **rest)


def _seen(updates: Updates) -> Tensor:
    """(s, d): the update of each other participant where they are seen one by one, else their sum."""
    return torch.stack(list(updates.received.values())) if updates.received else updates.others[None]


def _answer(step: int, result: SearchResult, column_guesses: np.ndarray, shares: Tensor, guess_label: float) -> RebuiltBatch:
    names = ("rows", "labels", "steps", "binary", "shares")
    arrays = {name: getattr(result, name) for name in names}
    tensors: dict[str, Any] = {name: None if part is None else torch.from_numpy(part) for name, part in arrays.items()}
    guesses = torch.from_numpy(column_guesses).double()
    if result.rows is None or np.isnan(result.rows).any():
        tensors["guessed_rows"] = guesses[0]
    candidates = tuple(torch.from_numpy(batch) for batch in result.candidates)
    return RebuiltBatch(
        step,
        (shares > 0.5).double(),
        guess_label,
        **tensors,
        column_guesses=guesses,
        candidates=candidates,
        figures=result.figures,
        note=result.note,
    )
