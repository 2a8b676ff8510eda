"""Model completion: a head on the attacker's own messages, fitted to a few rows whose labels it knows."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack, Scores
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassShares, Gradients, Known, OwnModel
from vflbench.messages.threat import Threat, View
from vflbench.numerics.evidence import added_logits, averaged_ridge
from vflbench.options import Rows, options

_RANKS = (0, 1, 2, 4, 8, 16, 32, 64)  # of the directions that are removed before a length is measured
_FLOOR = 1e-12  # of squared lengths, relative to their mean

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

    Memory: rows x (3 d + 8) numbers of 4 bytes for each layer of width d, 6.6 MB for 4,196 rows of 128.

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
        self._met: list[tuple[Tensor, dict[str, Tensor]]] = []  # of this epoch: ids, and layer -> gradients (b, d)
        self._ids = torch.empty(0, dtype=torch.int64)  # sorted
        self._sums: dict[str, Tensor] = {}  # layer -> (n, 2 d + ranks + 1), in their order; last: how many messages

    @property
    def threat(self) -> Threat:
        return Threat(knows={ClassShares, *_FACTS[self.message]}, known_rows=self.known)

    def observe(self, view: View) -> None:
        if self.follows:
            self._met.append((view.ids.cpu(), {layer: g.cpu().float() for layer, g in view[Gradients].layers.items()}))

    def epoch(self, view: View) -> Answers:
        known, shares = view[Known], view[ClassShares].shares
        met, ids, labels = known.ids, view.ids, known.labels
        if self.follows:
            self._end_epoch()
            is_met, here = (torch.isin(rows.cpu(), self._ids).to(rows.device) for rows in (known.ids, view.ids))
            met, ids, labels = known.ids[is_met], view.ids[here], known.labels[is_met]
        if not len(met) or not len(ids):
            return None
        known_parts, parts = self._parts(view, met), self._parts(view, ids)
        return Scores(ids, {layer: completed(known_parts[layer], labels.cpu(), parts[layer], shares) for layer in parts})

    def _parts(self, view: View, ids: Tensor) -> dict[str, list[list[Tensor]]]:
        """Layer -> groups of values (n, d) of these rows; those of a group share a regression."""
        joined = self._means(ids.cpu()) if self.follows else {}
        if self.message == "gradients":
            return {layer: [[total, units], [lengths]] for layer, (total, units, lengths) in joined.items()}
        embedded = {layer: h.cpu() for layer, h in view[OwnModel].embed(ids).items()}
        if self.message == "embeddings":
            return {layer: [[h]] for layer, h in embedded.items()}
        common = [layer for layer in joined if layer in embedded]
        return {layer: [[embedded[layer], *joined[layer][:2]], [joined[layer][2]]] for layer in common}

    def _end_epoch(self) -> None:
        """Add what was met since the last call to the sums."""
        if not self._met:
            return
        ids, order = torch.cat([ids for ids, _ in self._met]).sort()
        both = torch.cat([self._ids, ids]).unique()
        for layer in self._met[0][1]:
            added = _parts(torch.cat([layers[layer] for _, layers in self._met])[order])
            total = added.new_zeros(len(both), added.shape[1])
            total.index_add_(0, torch.searchsorted(both, ids), added)
            if layer in self._sums:
                total.index_add_(0, torch.searchsorted(both, self._ids), self._sums[layer])
            self._sums[layer] = total
        self._ids, self._met = both, []

    def _means(self, ids: Tensor) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Layer -> means of the messages (n, d), of unit vectors along them (n, d), and of their log lengths (n, r).

        ids: rows that were met.
        """
        places = torch.searchsorted(self._ids, ids)
        answer: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for layer, sums in self._sums.items():
            means = sums[places, :-1] / sums[places, -1:]
            d = (means.shape[1] - len(_RANKS)) // 2
            mean, units, lengths = means.split([d, d, len(_RANKS)], dim=1)
            answer[layer] = mean, units, lengths
        return answer


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


def _parts(g: Tensor) -> Tensor:
    """(n, 2 d + ranks + 1): g, unit vectors along it, logs of the squared lengths outside its first singular directions, 1.

    A row of zeros has no direction, and the shortest length. g: (n, d).
    """
    scaled = g.double() / g.abs().max().clamp_min(torch.finfo(g.dtype).tiny)
    _, directions = torch.linalg.eigh(scaled.T @ scaled)  # the largest last
    outside = (scaled @ directions).square().cumsum(dim=1)  # column j: outside all but the smallest j + 1
    columns = [max(g.shape[1] - 1 - rank, 0) for rank in _RANKS]
    lengths = (outside[:, columns] + _FLOOR * outside[:, -1].mean() + 1e-30).log()
    units = torch.nn.functional.normalize(scaled, eps=1e-30)
    return torch.cat([g, units.float(), lengths.float(), torch.ones(len(g), 1)], dim=1)
