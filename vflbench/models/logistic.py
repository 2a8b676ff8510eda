"""Logistic regression, cut in two: every party sends its part of the logits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vflbench.models.base import Bottom, CutModel, TopModel
from vflbench.models.layers import ColumnEmbedding, linear
from vflbench.options import options

_STD = 0.01  # of the first weights of categories, as in wide_deep


@options
class Logistic(CutModel):
    """Each party's columns -> its part of the logits | cut | sum -> logits.

        z_i = b + sum over parties p of (W_p x_ip + sum_j T_pj[id_ipj])

    z: 1 logit for two classes, K for K > 2; softmax regression then. W_p: (outputs, k), T_pj: one row of `outputs` numbers a
    category. b: at the label party. It has no layer in between, and the cut layer f1 is as wide as the logits. With two
    classes the cut gradient is therefore one number a row, (p_i - y_i) / n, whose *sign* is the label. Its predictions
    are affine in every party's columns, which is what `attack=esa` solves.

    Source: the vertical logistic regression of Yang, Liu, Chen and Tong, "Federated machine learning: Concept and
    applications", 2019, section 2.3, with labels and embeddings in the clear.
    """

    @property
    def width(self) -> int:  # type: ignore[override]
        """Of a typical layer."""
        return 1

    def bottom_for(
        self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ) -> nn.Module:
        return _LogisticBottom(len(numeric), cardinalities, outputs, rng)

    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        return _SumTop(outputs)


class _LogisticBottom(Bottom):
    def __init__(self, numeric: int, cardinalities: Sequence[int], outputs: int, rng: torch.Generator):
        super().__init__()
        self.layers = self.sends = ("f1",)
        self.cut_width = outputs
        self.cardinalities = list(cardinalities)
        self.numeric = nn.Parameter(
            linear(numeric, outputs, rng).weight.detach().T.clone() if numeric else torch.zeros(0, outputs)
        )
        self.categories = ColumnEmbedding(cardinalities, outputs, rng, _STD)

    def tables(self) -> tuple[Tensor, ...]:
        return tuple(self.categories.values().split(self.cardinalities)) if self.cardinalities else ()

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        return {"f1": numeric @ self.numeric + vectors.sum(dim=1)}

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        return self.from_vectors(numeric, self.categories(categorical))


class _SumTop(TopModel):
    def __init__(self, outputs: int):
        super().__init__()
        self.layers: tuple[str, ...] = ()
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        return {}, sum([*embeddings, *wide], start=self.bias)
