"""Batch reconstruction: a whole private batch, from the updates that were computed on it."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.attacks.batch_reconstruction.search import SearchResult, Solved, search, side_by_side
from vflbench.attacks.batch_reconstruction.solutions import guesses_by_columns
from vflbench.messages.facts import ClassShares, PartyFeatures, Rules, Schema, Updates
from vflbench.messages.threat import Role, Threat, View
from vflbench.options import Seconds, Steps, options


@options
class BatchReconstruction(Attack):
    """Solve for the rows and labels of the other participants' batch, from the models and the updates of several rounds.

        4 g(theta) = alpha theta - 2 beta,   alpha = X^T X,   beta = X^T Y:   d + 1 rounds of one batch determine both,
        and then X, Y in integers from alpha and beta

    With several other participants, the attacker knows the sum of their updates, and rebuilds all their rows together. If it
    sees each update (protocol.aggregation=plain), it rebuilds each batch alone.

    solver: `exact` enumerates every batch that matches, `highs` and `cbc` solve an integer programme for one. formulation:
    form of the programme: `tight`, or as `published`.
    time_limit: seconds for one batch. max_batches: largest number of matching batches that are listed. Columns
    that are not binary, by the rules' schema, are solved for where the binary ones determine the rows.

    The answer holds the first matching batch; `matches` counts all of them. If none is found, the answer is a guess, and
    counts as no match: entries are drawn with the shares of ones in the attacker's own rows, and labels are the majority of
    the training rows.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019; the enumeration, the tight
    programme, real-valued columns and the answer to asynchronous training are ours.
    """

    threat = Threat(Role.PARTICIPANT, {Updates, PartyFeatures, ClassShares})

    solver: Literal["exact", "highs", "cbc"] = "exact"
    formulation: Literal["tight", "published"] = "tight"
    time_limit: Seconds = 10.0
    max_batches: Steps = 1000

    def __post_init__(self) -> None:
        self._rounds: dict[str, dict[str, Any]] = {}  # step -> what is kept of its rounds
        self._solved: dict[str, Solved] = {}

    def batch(self, view: View) -> None:
        """Keep one more round of the batch of view.step."""
        updates, columns = view[Updates], view[PartyFeatures].numeric.double().cpu()
        # (sources, d): the update of each other participant where they are seen one by one, else their sum.
        seen = torch.stack(list(updates.received.values()) or [updates.others]).cpu()
        before = updates.before.cpu()
        nothing = {"before": before[None][:0], "others": seen[None][:0], "ones": 0, "rows": 0}
        kept = self._rounds.setdefault(str(view.step), {"rules": asdict(updates.rules), **nothing})
        kept["before"], kept["others"] = torch.cat([kept["before"], before[None]]), torch.cat([kept["others"], seen[None]])
        kept["ones"], kept["rows"] = kept["ones"] + columns.sum(dim=0), kept["rows"] + len(columns)

    def epoch(self, view: View) -> Sequence[RebuiltBatch]:
        """Every batch so far, as far as its rounds determine it."""
        return [self._rebuild(step, view[ClassShares].positive) for step in sorted(map(int, self._rounds))]

    def _rebuild(self, step: int, positive: float) -> RebuiltBatch:
        """positive: the share of positives among the training rows."""
        kept, solved = self._rounds[str(step)], self._solved.setdefault(str(step), {})
        thetas, updates = kept["before"].double().numpy(), kept["others"].double().numpy()
        rules = Rules(**{**kept["rules"], "schema": Schema(**kept["rules"]["schema"])})
        sources = updates.shape[1]
        rules = rules if sources == 1 else replace(rules, parties=2)
        results = [search(thetas, updates[:, k], rules, self, solved=solved) for k in range(sources)]
        rows = (rules.parties - 1) * rules.batches * rules.batch_size
        shares, label = kept["ones"] / kept["rows"], 1.0 if positive > 0.5 else -1.0
        guesses = guesses_by_columns(shares.numpy(), sources * rows, seed=step)
        return _answer(step, side_by_side(results, rows, self.max_batches), guesses, shares, label)

    def state(self) -> dict[str, Any]:
        """The rounds so far; results follow from them."""
        return {"rounds": self._rounds}

    def restore(self, state: dict[str, Any]) -> None:
        self._rounds = copy.deepcopy(state["rounds"])


def _answer(step: int, result: SearchResult, column_guesses: np.ndarray, shares: Tensor, guess_label: float) -> RebuiltBatch:
    known = {name: getattr(result, name) for name in ("rows", "labels", "steps", "binary", "shares")}
    tensors: dict[str, Any] = {name: torch.from_numpy(part) for name, part in known.items() if part is not None}
    guesses = torch.from_numpy(column_guesses).double()
    if result.rows is None or np.isnan(result.rows).any():
        tensors["guessed_rows"] = guesses[0]
    tensors |= {"column_guesses": guesses, "candidates": tuple(map(torch.from_numpy, result.candidates))}
    return RebuiltBatch(step, (shares > 0.5).double(), guess_label, **tensors, figures=result.figures, note=result.note)
