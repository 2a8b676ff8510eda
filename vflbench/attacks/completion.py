"""Model completion: a head on the attacker's own messages, fitted to a few rows whose labels it knows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack, Scores
from vflbench.attacks.joined_rows import JoinedRows
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassShares, Gradients, Known, OwnModel
from vflbench.messages.threat import Threat, View
from vflbench.numerics.evidence import added_logits, averaged_ridge
from vflbench.options import Rows, options

_FACTS: Mapping[str, set[type[Fact]]] = {
    "embeddings": {OwnModel},
    "gradients": {Gradients},
    "both": {OwnModel, Gradients},
}


@options
class Completion(Attack):
    """Fit a head to the messages about k rows whose labels are known for the whole run, and score all other rows with it.

        s(x) = log share + a <w, x> + b <v, n>,   w, v: averages of ridge regressions on the known rows

    The priors of the regressions follow the covariance of the rows without labels, and count by their evidence (see
    `vflbench.numerics.evidence`). With few known rows, a fit without these priors overfits to directions of little variance.

    message: `embeddings`: x are the activations of the party's own network at the end of the epoch. `gradients`: x are means
    over the epochs so far of the gradients about a row, and of unit vectors along them, which show the sign of p - y for a
    confident and an unsure prediction alike; n are logs of their lengths outside the first 0, 1, 2, 4, ..., 64 singular
    directions of an epoch, where noise that is added to one class shows. `both`: x has the activations as well. Each part
    of x is in units of its mean length.

    `both` is the adaptive attack on randomized response: the sign of a gradient is the released label, the activations say
    what the features predict, and log-likelihood ratios add up. Noise that is drawn again in each epoch averages out.

    known: rows whose labels it knows. Those that it hasn't met yet are left out. rows: number of other rows that it follows
    through the run, for gradients and both. Scores of two classes are log odds (n,), of more of them logits (n, K).

    The published attack fine-tunes a head of several layers with MixMatch. On Criteo, with 20 and 100 known rows, training
    on pseudo-labels, with and without such mixing, was up to 0.16 below such heads and never 0.01 above them.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022; the heads
    are ours.
    """

    max_classes: ClassVar[float] = math.inf

    known: Rows = 100
    message: Literal["embeddings", "gradients", "both"] = "embeddings"
    rows: Rows = 4096

    def __post_init__(self) -> None:
        self.follows = 0 if self.message == "embeddings" else self.rows
        self._joined = JoinedRows()

    @property
    def threat(self) -> Threat:
        return Threat(knows={ClassShares, *_FACTS[self.message]}, known_rows=self.known)

    def observe(self, view: View) -> None:
        if self.follows:
            self._joined.add(view.ids, view[Gradients].layers)

    def epoch(self, view: View) -> Answers:
        known, shares = view[Known], view[ClassShares].shares
        met, ids, labels = known.ids, view.ids, known.labels
        if self.follows:
            self._joined.end_epoch()
            is_met, here = (torch.isin(rows.cpu(), self._joined.ids).to(rows.device) for rows in (known.ids, view.ids))
            met, ids, labels = known.ids[is_met], view.ids[here], known.labels[is_met]
        if not len(met) or not len(ids):
            return None
        known_parts, parts = self._parts(view, met), self._parts(view, ids)
        return Scores(ids, {layer: completed(known_parts[layer], labels.cpu(), parts[layer], shares) for layer in parts})

    def _parts(self, view: View, ids: Tensor) -> dict[str, list[list[Tensor]]]:
        """Layer -> groups of values (n, d) of these rows; those of a group share a regression."""
        joined = self._joined.of(ids.cpu()) if self.follows else {}
        if self.message == "gradients":
            return {layer: [[total, units], [lengths]] for layer, (total, units, lengths) in joined.items()}
        embedded = {layer: h.cpu() for layer, h in view[OwnModel].embed(ids).items()}
        if self.message == "embeddings":
            return {layer: [[h]] for layer, h in embedded.items()}
        common = [layer for layer in joined if layer in embedded]
        return {layer: [[embedded[layer], *joined[layer][:2]], [joined[layer][2]]] for layer in common}

    def state(self) -> dict[str, Any]:
        return self._joined.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._joined.restore(state)


def completed(
    known: Sequence[Sequence[Tensor]], labels: Tensor, rows: Sequence[Sequence[Tensor]], shares: Sequence[float]
) -> Tensor:
    """Logits of rows by the labels of known ones: (n,) log odds for two classes, (n, K) for more.

    known: groups of values (k, d), each group for a regression of its own. labels: (k,) classes. rows: the same groups of
    values (n, d). shares: K shares of the classes.
    """
    classes = len(shares)
    targets = torch.nn.functional.one_hot(labels, classes).double()[:, 1 if classes == 2 else 0 :]
    fits = [averaged_ridge(k, targets, r) for k, r in (_side_by_side(*group) for group in zip(known, rows, strict=True))]
    logits = added_logits([left_out for left_out, _ in fits], labels, [scores for _, scores in fits], shares)
    return logits[:, 0] if classes == 2 else logits


def _side_by_side(known: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The parts of a group in one matrix, each centred, and in units of its mean length."""
    joined = []
    for k, r in zip(known, rows, strict=True):
        both = torch.cat([k, r]).double()
        centred = both - both.mean(dim=0)
        joined.append(centred / centred.norm(dim=1).mean().clamp_min(1e-300))
    whole = torch.cat(joined, dim=1)
    return whole[: len(known[0])], whole[len(known[0]) :]
