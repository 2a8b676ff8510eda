"""Optimisers and a backward pass of torch that do not load its slow compiler; layers whose weights the caller draws;
Adam's steps without a gradient in closed form.
"""

import inspect
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Adam, Optimizer


class _Uncompiled(Optimizer):
    """What keeps its methods from being compiled is taken off them: it would load torch's compiler to say so. So is what
    names each step for torch's profiler, and calls hooks.
    """

    profile_hook_step = staticmethod(lambda step: step)  # type: ignore[assignment]
    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamSteps(_Uncompiled, Adam):
    """torch.optim.Adam."""

    step = torch.no_grad()(inspect.unwrap(Adam.step))


class SgdSteps(_Uncompiled, SGD):
    """torch.optim.SGD."""

    step = torch.no_grad()(inspect.unwrap(SGD.step))


class Lbfgs(_Uncompiled, LBFGS):
    """torch.optim.LBFGS."""


def backward(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """`torch.autograd.backward(tensors, gradients)`: the same bits in the same order. Raises RuntimeError where a gradient
    has another shape or type than its tensor.
    """
    for values, g in zip(tensors, gradients, strict=True):
        if g.shape != values.shape or g.dtype != values.dtype:
            raise RuntimeError(f"a gradient {tuple(g.shape)}, {g.dtype}, for a tensor {tuple(values.shape)}, {values.dtype}")
    engine = torch.autograd.Variable._execution_engine  # torch.autograd.backward loads the compiler to compare shapes
    engine.run_backward(tuple(tensors), tuple(gradients), False, False, (), allow_unreachable=True, accumulate_grad=True)


def embedding(places: Tensor, table: Tensor) -> Tensor:
    """`F.embedding`: the same bits in float32 and float64. On the CPU, where torch's way back sets up a loop for each
    row, this one takes a quarter of its time. On a card, `gather` would add rows in any order.

    places: (n, c) int; table: (V, dim). Returns (n, c, dim).
    """
    if table.device.type != "cpu":
        return F.embedding(places, table)
    rows = places.long().reshape(-1, 1).expand(-1, table.shape[1])
    return table.gather(0, rows).view(*places.shape, table.shape[1])


class BareLinear(nn.Linear):
    """Its weights aren't initialised."""

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


class BareConv2d(nn.Conv2d):
    """Its weights aren't initialised."""

    bias: nn.Parameter

    def reset_parameters(self) -> None:
        """Nothing: the caller does."""


_HORIZON = 4096  # steps beyond the last one needed; r^4096 underflows


class IdleAdam:
    """The sum of k Adam steps with zero gradient, for a weight whose moments m and v were last updated in step s.

        p <- p - lr sum_(j=1..k)  (m b1^j / (1 - b1^(s+j))) / (sqrt(v b2^j / (1 - b2^(s+j))) + eps)
           = p - lr m sum_j w_j / (sqrt(v) + eps c_j),
        w_j = r^j a(s+j),  r = b1 / sqrt(b2),  a(i) = sqrt(1 - b2^i) / (1 - b1^i),  c_j = sqrt((1 - b2^(s+j)) / b2^j)

    With all c_j replaced by their mean, which is exact for eps = 0 and to first order in eps,

        p <- p - lr m W / (sqrt(v) + eps C / W)
        W = sum_j w_j = T(s) - r^k T(s+k),   T(s) = sum_(j>=1) r^j a(s+j)
        C = sum_j w_j c_j, the same with r' = b1 / b2 and a'(i) = (1 - b2^i) / (1 - b1^i)

    T satisfies T(s) = r (a(s+1) + T(s+1)). It is tabulated backwards in float64, starting far beyond the last step needed.
    Both sums converge if beta1 < beta2.
    """

    def __init__(self, beta1: float, beta2: float):
        self.beta1, self.beta2 = beta1, beta2
        self.tables = torch.zeros(0, 6, dtype=torch.float64)
        self._on_device = self.tables  # a copy on another device, made once for each length

    def tables_up_to(self, step: int) -> Tensor:
        """Columns T(i), T'(i), r^i, r'^i, b1^i, b2^i for i = 0 .. n - 1: (n, 6) float64, n > step.

        T(0) is 0, since a weight that was never updated has s = 0 and m = 0 and does not move.
        """
        if len(self.tables) <= step:
            self.tables = self._tabulate(max(1024, 2 * step))
        return self.tables

    def _on(self, device: torch.device, step: int) -> Tensor:
        tables = self.tables_up_to(step)
        if device.type == "cpu":
            return tables
        if len(self._on_device) != len(tables):
            self._on_device = tables.to(device)
        return self._on_device

    def _tabulate(self, last: int) -> Tensor:
        i = torch.arange(last + _HORIZON + 1, dtype=torch.float64)
        powers = {base: torch.full_like(i, base).pow(i) for base in (self.beta1, self.beta2)}
        first, second = 1 - powers[self.beta1], -torch.expm1(i * math.log(self.beta2))
        ratios = (self.beta1 / math.sqrt(self.beta2), self.beta1 / self.beta2)
        sums = [
            _discounted(terms, ratio) for terms, ratio in zip((second.sqrt() / first, second / first), ratios, strict=True)
        ]
        columns = [*sums, *(torch.full_like(i, ratio).pow(i) for ratio in ratios), *powers.values()]
        return torch.stack([column[: last + 1] for column in columns], dim=1)

    def sums(self, last: Tensor, now: int) -> tuple[Tensor, Tensor]:
        """W and C / W for the steps from `last`, when the row was last updated, to `now`; 0 and 1 if W = 0.

        last: (u,) int. Returns (u,) float64 each.
        """
        tables = self._on(last.device, now)
        total = tables.index_select(0, last)[:, :2] - tables.index_select(0, now - last)[:, 2:4] * tables[now, :2]
        moves = (last > 0) & (last < now) & (total[:, 0] > 0)  # with beta1 = 0, a weight without gradient stays
        return torch.where(moves, total[:, 0], 0.0), torch.where(moves, total[:, 1] / total[:, 0], 1.0)

    def decay(self, last: Tensor, now: int) -> tuple[Tensor, Tensor]:
        """b1^k and b2^k for the k = now - last steps; (u,) float64 each."""
        powers = self._on(last.device, now).index_select(0, now - last)
        return powers[:, 4], powers[:, 5]


def _discounted(terms: Tensor, ratio: float) -> Tensor:
    """T(s) = ratio (terms(s+1) + T(s+1)), starting from 0 at the end; T(0) = 0. (n,) float64."""
    values, total = terms.tolist(), 0.0
    sums = [0.0] * len(values)
    for step in range(len(values) - 2, 0, -1):
        total = ratio * (values[step + 1] + total)
        sums[step] = total
    return torch.tensor(sums, dtype=torch.float64)
