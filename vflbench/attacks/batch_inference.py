"""Batch label inference: labels from gradients that are summed over a batch before the party sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from vflbench.attacks.base import Scores
from vflbench.attacks.direct import Direct
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, PartyFeatures, SummedGradients
from vflbench.messages.threat import Threat, View
from vflbench.models.base import WIDE
from vflbench.options import LayerCount, Steps, options

_LEAST_SINGULAR = 1e-4  # of the inputs, as a share of the largest: below, rounding in float32 outweighs them
_RIDGE = 0.01  # on r, as a share of the mean diagonal of its equations


@options
class BatchInference(Direct):
    """Split the gradient of each layer's weights into its rows, and read the label from the rows as `direct` does.

        dL/dW_l = sum_i delta_li a_i^T,   dL/db_l = sum_i delta_li,   a_i = h_(l-1)i the input of the layer, which is known

    Suppose that the batch has no more rows than the inputs (with a 1 for the bias) have independent directions. Then this is
    a linear equation with one solution, Delta^T = dL/dW A^+: the per-example gradients that a party without this protection
    receives, as far as the ReLU is open. For larger batches, the least-squares solution for Delta loses most of it. Then the
    attack uses that the rows share their direction up to the open units m_li = [h_li > 0], which are known as well, and that
    all layers share the factor r_i, which is p_i - y_i:

        delta_li = r_i (m_li o v_l) + rest
        min_(r, v)  sum_l |(dL/dW_l - sum_i r_i (m_li o v_l) a_i^T) C_l|^2 / s_l^2

    There are n + d unknown numbers and about d^2 equations for each layer. C_l = (sum_i a_i a_i^T)^(-1/2) makes the share of
    the rest independent and equally large in all equations, s_l is its size. v and r are fitted in turn, r by conjugate
    gradients, from the least squares of the deepest layer on. r is signed as `direct` does.

    layers: largest number of layers that are fitted together, from the cut layer down. The first layer counts if its inputs
    are the party's numeric columns alone. rounds: rounds in which v and r are fitted in turn. steps: steps of conjugate
    gradients in each round. Memory: (n, d) numbers for each layer. The deepest layer that has a weight matrix is scored.

    Source: Zou et al., "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", IEEE
    Transactions on Big Data 2022 (a first version: Liu et al., arXiv 2112.05409), where labels without a top are found by
    descent on the distance of summed gradients. The linear form and the shared factor, which needs neither a linear top nor
    a small batch, are ours.
    """

    layers: LayerCount = 3
    rounds: Steps = 2
    steps: Steps = 10

    threat = Threat(knows={SummedGradients, Embeddings, PartyFeatures, ClassShares})

    def batch(self, view: View) -> Scores:
        embeddings = {layer: h for layer, h in view[Embeddings].layers.items() if layer != WIDE}
        inputs = {"": view[PartyFeatures].numeric, **embeddings}
        known = sums_of_layers(inputs, view[SummedGradients].parameters)
        if not known:
            return Scores(view.ids, {})
        layer = next(reversed(known))
        sums = [*known.values()][-self.layers :]
        deepest = sums[-1]
        if deepest.is_exact:
            rows = deepest.least_squares()
        else:
            r, v = shared_factor(sums, self.rounds, self.steps)
            rows = r[:, None] * v
        return super().batch(view.passed_on(Direct.threat, Gradients({layer: rows})))


@dataclass(frozen=True)
class SummedRows:
    """S = sum_i delta_i a_i^T, with known a_i, in coordinates in which the a_i have the covariance 1: S C, and A C.

    total: (d, k), S C. inputs: (n, k), A C. opened: (n, d), 1 where the ReLU after the layer is open.
    """

    total: Tensor
    inputs: Tensor
    opened: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, inputs: Tensor, outputs: Tensor) -> SummedRows:
        """weight: (d, e), its gradient. bias: (d,), likewise. inputs: (n, e). outputs: (n, d), after the activation."""
        a, total = inputs.double(), weight.double()
        unit = float(a.square().mean().sqrt()) or 1.0
        a, total = a / unit, total / unit
        if bias is not None:
            a = torch.cat([a, a.new_ones(len(a), 1)], dim=1)
            total = torch.cat([total, bias.double()[:, None]], dim=1)
        values, vectors = torch.linalg.eigh(a.T @ a)
        kept = values > _LEAST_SINGULAR**2 * values[-1].clamp_min(0)
        whitening = vectors[:, kept] / values[kept].sqrt()
        is_relu = bool((outputs >= 0).all())
        opened = (outputs > 0).double() if is_relu else torch.ones_like(outputs, dtype=torch.float64)
        return cls(total @ whitening, a @ whitening, opened)

    @property
    def is_exact(self) -> bool:
        """Whether one solution is left: as many directions of the inputs as rows."""
        return self.inputs.shape[1] >= len(self.inputs)

    def least_squares(self) -> Tensor:
        """The smallest Delta (n, d) with that sum."""
        return self.inputs @ self.total.T

    def sum(self, r: Tensor) -> Tensor:
        """sum_i r_i m_i a_i^T (d, k), for r (n,)."""
        return (self.opened * r[:, None]).T @ self.inputs

    def along(self, v: Tensor, values: Tensor) -> Tensor:
        """(n,): sum_jk m_ij v_j values_jk a_ik, the transpose of r -> v o sum(r). v: (d,). values: (d, k)."""
        return ((self.inputs @ values.T) * (self.opened * v)).sum(dim=1)


def sums_of_layers(inputs: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> dict[str, SummedRows]:
    """Layer -> the sum of its rows, of those whose weight matrix and inputs are both known, in the order of the network.

    inputs: the columns and then each layer, in that order, (n, width) each. parameters: name -> gradient, where a layer's
    own are named `LAYER.weight`, (d, e), and `LAYER.bias`, after any prefix.
    """
    sums = {}
    for below, layer in pairwise(inputs):
        a, h = inputs[below], inputs[layer]
        for name, gradient in parameters.items():
            is_its_weight = f".{name}".endswith(f".{layer}.weight") and gradient.shape == (h.shape[1], a.shape[1])
            if is_its_weight and gradient.numel():
                bias = parameters.get(f"{name.removesuffix('weight')}bias")
                sums[layer] = SummedRows.of(gradient.to(h), None if bias is None else bias.to(h), a, h)
    return {layer: rows for layer, rows in sums.items() if rows.inputs.shape[1]}


def shared_factor(sums: Sequence[SummedRows], rounds: int, steps: int) -> tuple[Tensor, Tensor]:
    """r (n,), of length 1, and the v (d,) of the last layer, with sum_i r_i (m_i o v) a_i^T near the sums of all layers.

    From the top singular vector of the last layer's least squares on. Zeros where nothing was sent.
    """
    start = sums[-1].least_squares() * sums[-1].opened
    directions = torch.linalg.eigh(start.T @ start)[1]
    r = _normal(start @ directions[:, -1])
    for _ in range(rounds):
        weighted = [_weighted(rows, r) for rows in sums]
        r = _normal(_conjugate_gradients(weighted, r, steps))
    return r, _shared_direction(sums[-1], r)


def _normal(r: Tensor) -> Tensor:
    return r / r.norm().clamp_min(1e-300)


def _shared_direction(rows: SummedRows, r: Tensor) -> Tensor:
    """v (d,) with the least |total - v o sum(r)|^2. Units that are nearly always closed get nearly nothing."""
    design = rows.sum(r)
    power = design.square().sum(dim=1)
    return (rows.total * design).sum(dim=1) / (power + 1e-3 * power.mean()).clamp_min(1e-300)


def _weighted(rows: SummedRows, r: Tensor) -> tuple[SummedRows, Tensor]:
    """The sums and their v, both over the size of what v leaves unexplained."""
    v = _shared_direction(rows, r)
    rest = (rows.total - v[:, None] * rows.sum(r)).square().mean().sqrt()
    size = max(float(rest), 1e-6 * float(rows.total.abs().max()), 1e-300)
    return SummedRows(rows.total / size, rows.inputs, rows.opened), v / size


def _conjugate_gradients(weighted: Sequence[tuple[SummedRows, Tensor]], r: Tensor, steps: int) -> Tensor:
    """r (n,) with the least squares of all layers' sums, and a ridge; from the given r on. No (n, n) matrix is formed."""
    power = [(rows.opened @ v.square()) * rows.inputs.square().sum(dim=1) for rows, v in weighted]
    diagonal = torch.stack(power).sum(dim=0)
    ridge = _RIDGE * diagonal.mean()
    scale = (diagonal + ridge).clamp_min(1e-300).cpu().numpy()

    def normal_equations(x: np.ndarray) -> np.ndarray:
        at = torch.from_numpy(x).to(r)
        product = torch.stack([rows.along(v, v[:, None] * rows.sum(at)) for rows, v in weighted]).sum(dim=0) + ridge * at
        return product.cpu().numpy()

    wanted = torch.stack([rows.along(v, rows.total) for rows, v in weighted]).sum(dim=0)
    square = (len(r), len(r))
    system, inverse = LinearOperator(square, normal_equations), LinearOperator(square, lambda x: x.ravel() / scale)
    solution = cg(system, wanted.cpu().numpy(), r.cpu().numpy(), rtol=0.0, atol=1e-140, maxiter=steps, M=inverse)[0]
    return torch.from_numpy(solution).to(r)
