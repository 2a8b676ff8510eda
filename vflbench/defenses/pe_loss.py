"""Potential energy loss: embeddings of a class repel each other like equal charges."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vflbench.defenses.base import LabelDefense
from vflbench.options import Weight, options

_NEAREST = 1e-3  # radians, or a share of the mean length: nearer pairs coincide, and nothing can tell where to push them
_OPPOSITE = -1 + 1e-15  # cosine, below which rows are opposite, and can't be pushed further apart


@options
class PeLoss(LabelDefense):
    """A penalty if embeddings of one class in a batch are near each other. Falls to `direct`, which needs no label and reads
    as much from gradients as without a defense.

        L = L_c + alpha sum_parties E(h, y),   E = sum_k 1 / n_k sum_{i != j of class k} 1 / d(h_i, h_j)

    with n_k rows of class k, and the distance d between all that a party sends about two rows. E grows with the batch: it is
    n_k - 1 times the mean of 1 / d, added up over the classes.

    alpha: weight; 0 is no penalty. distance: `angular`, between the embeddings as layer normalization leaves them, each less
    its mean over coordinates and of length 1: an angle in [0, pi]. `euclidean`: |h_i - h_j|, which embeddings can also raise
    by growing, without becoming less similar. A pair nearer than 1e-3 (radians, or of the mean length) has no direction to
    push along, nor has a row without an angle: such pairs are left out of E, and counted. Time and memory grow with n^2. Its
    figure `energy` is the mean of 1 / d over ordered pairs of one class, 2 / pi where all are at right angles.

    Made against `completion` with few known labels: rows of a class that are spread out are harder to separate. Gradients
    still reveal the label. If alpha is so large that the force exceeds p - y, rows of a class are pushed in the same way:
    `kmeans` on gradients reads them without a label.

    Source: Zheng et al., "Protecting Split Learning by Potential Energy Loss", IJCAI 2024; the sums, and both distances, as
    in `PELoss` of SecretFlow, whose default alpha is 2 and distance euclidean.
    """

    alpha: Weight = 0.01
    distance: Literal["angular", "euclidean"] = "angular"

    def penalty(self, embeddings: Sequence[Tensor], y: Tensor) -> Tensor | float:
        """embeddings: one (n, d) a non-label party; y: (n,) classes."""
        if self.alpha == 0:
            return 0.0
        return self.alpha * sum(self._of_party(h.double(), y) for h in embeddings)

    def _of_party(self, h: Tensor, y: Tensor) -> Tensor:
        """E of what one party sent. h: (n, d) float64, in which distances from products keep their digits."""
        same = (y[:, None] == y).fill_diagonal_(fill_value=False)
        squares, distinct = _angular(h) if self.distance == "angular" else _euclidean(h)
        counts = same & distinct
        safe = squares.where(counts, 1.0)
        distances = (1 - safe / 2).clamp_min(_OPPOSITE).acos() if self.distance == "angular" else safe.sqrt()
        inverse = counts / distances
        self.tally("coinciding_pairs", int((same & ~distinct).sum()))
        if pairs := int(counts.sum()):
            self.tally("energy", inverse.detach().sum().item(), of=pairs)
        return (inverse.sum(dim=1) / (1 + same.sum(dim=1))).sum()


def _angular(h: Tensor) -> tuple[Tensor, Tensor]:
    """(n, n) squared chords between the rows after layer normalization, and whether both have a direction and differ."""
    centred = h - h.mean(dim=1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True)
    nearest = _NEAREST * lengths.detach().mean()
    has_direction = lengths.detach()[:, 0] > nearest
    squares = _squares(centred / lengths.where(has_direction[:, None], 1.0))
    return squares, (squares.detach() > _NEAREST**2) & has_direction[:, None] & has_direction


def _euclidean(h: Tensor) -> tuple[Tensor, Tensor]:
    """(n, n) squared distances of the rows, and whether they differ."""
    squares = _squares(h - h.mean(dim=0))
    return squares, squares.detach() > (_NEAREST * h.detach().norm(dim=1).mean()) ** 2


def _squares(x: Tensor) -> Tensor:
    lengths = x.square().sum(dim=1)
    return lengths[:, None] + lengths - 2 * x @ x.T
