"""Quantization: every coordinate of an embedding or a gradient becomes one of a few evenly spaced numbers."""

from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Compressor, Form
from vflbench.errors import NonFiniteError, UserError
from vflbench.messages.codec import Encoded, Grid
from vflbench.metrics.privacy import Sensitivity, Sent
from vflbench.options import Count, HalfShare, Length, Range, Steps, options

_FARTHEST = 1e12  # of the ends of a range: squares of such numbers are float32 still

Levels = Annotated[Count, Range(2, 2**24)]


@options
class Quantize(Compressor):
    """Uniform quantization over a range that is known beforehand, with ceil(log2 levels) bits for each number. Falls to
    `model_inversion`, which rebuilds digits at four levels. From gradients, `direct` reads the classes at two levels,
    without a label.

        c = round((min(max(h, low), high) - low) / step),   h' = low + step c,   step = (high - low) / (levels - 1)

    levels >= 2: number of levels; `low` and `high` are the first and the last. range: [low, high]; or `learned`, the range
    between the quantiles `quantile` and 1 - `quantile` of a batch, averaged over the batches so far up to `learn_batches`,
    and fixed from then on; or `batch`, the extremes of each batch, which reveals them. A range that isn't declared crosses
    as two float32 with each message in which it is new. norm: rows with a larger L2 norm are shortened to this norm first.

    message: `embeddings`, which a non-label party sends, or `gradients`, which the label party sends: then h is the gradient
    of a row. For gradients alone there are also range `row`, the extremes of each row, two float32 a row; and rounding
    `stochastic`, c = floor(place + u) with u ~ U(0, 1), whose mean is h where h is in the range. For gradients, rounding to
    the nearest level may harm the model, and `stochastic` doesn't: docs/experiments/matrix.md has figures.

    It carries no guarantee by itself. With a declared range it bounds how far two embeddings of a row can be apart. The
    guarantee of defense=[quantize,binomial] follows from this bound.

    Source: Castiglia et al., "Compressed-VFL: communication-efficient learning with vertically partitioned data", ICML 2022;
    Bennett, "Spectra of quantized signals", 1948; of gradients, Fu et al., "Label Inference Attacks Against Vertical
    Federated Learning", USENIX Security 2022, as DiscreteSGD; stochastic: Alistarh et al., "QSGD: communication-efficient
    SGD via gradient quantization and encoding", NeurIPS 2017.
    """

    takes = frozenset({Form.REAL, Form.SPARSE})
    gives = Form.INTEGERS

    levels: Levels = 16
    range: Literal["learned", "batch", "row"] | list[float] = "learned"
    learn_batches: Steps = 20
    quantile: HalfShare = 0.001
    norm: Length | None = None
    rounding: Literal["nearest", "stochastic"] = "nearest"

    def __post_init__(self) -> None:
        ends = self.range if isinstance(self.range, list) else [0, 1]
        if len(ends) != 2 or not -_FARTHEST <= ends[0] < ends[1] <= _FARTHEST:
            raise UserError("it must be [low, high] with low < high, both from -1e12 to 1e12", key="range", value=ends)
        for key, value in {"range": "row", "rounding": "stochastic"}.items():
            if self.message == "embeddings" and getattr(self, key) == value:
                raise UserError("it is for message=gradients", key=key, value=value)
        self._batches = 0
        self._low = self._high = 0.0

    def compressed(self, values: Encoded, rng: torch.Generator) -> Encoded:
        """Codes of the numbers."""
        numbers = values.numbers
        if not bool(numbers.isfinite().all()):
            raise NonFiniteError("a number that is to be quantized is not finite")
        if self.norm is not None:
            length = torch.linalg.vector_norm(numbers, dim=1, keepdim=True)
            numbers = numbers * (self.norm / length.clamp_min(self.norm))
        u = None
        if self.rounding == "stochastic":
            u = torch.rand(numbers.shape, generator=rng, device=numbers.device, dtype=torch.float64)
        if self.range == "row":
            lows, highs = numbers.amin(dim=1, keepdim=True), numbers.amax(dim=1, keepdim=True)
            rows = Grid(lows, (highs - lows) / (self.levels - 1), self.levels, self.levels - 1)
            ends = torch.cat([lows, torch.as_tensor(rows.step)]).reshape(-1)
            return replace(values, numbers=rows.codes(numbers, u), code=rows, announced=ends)
        low, high, is_new = self._range(numbers)
        grid = Grid.over(low, high, self.levels)
        announced = torch.tensor([low, high], device=numbers.device) if is_new else None
        return replace(values, numbers=grid.codes(numbers, u), code=grid, announced=announced)

    def _range(self, numbers: Tensor) -> tuple[float, float, bool]:
        """low < high, both float32, and whether the receiver doesn't know them yet."""
        if isinstance(self.range, list):
            return self.range[0], self.range[1], False
        if self.range == "batch":
            return *_separated(numbers.min().item(), numbers.max().item()), True
        is_new = self._batches < self.learn_batches
        if is_new:
            self._batches += 1
            low, high = quantiles(numbers, self.quantile)
            self._low += (low - self._low) / self._batches
            self._high += (high - self._high) / self._batches
        return *_separated(self._low, self._high), is_new

    def sent(self, name: str, before: Sent) -> Sent:
        if before.reason:
            return before
        if not isinstance(self.range, list):
            return replace(before, reason=f"the range of {name} comes from the embeddings themselves, and isn't declared")
        step = (self.range[1] - self.range[0]) / (self.levels - 1)
        return replace(before, sensitivity=Sensitivity.of_grid(before.width, self.levels, step, self.norm))


def quantiles(numbers: Tensor, share: float) -> tuple[float, float]:
    """The numbers below and above which that share lies, by rank."""
    flat = numbers.reshape(-1)
    rank = int(share * len(flat))
    return flat.kthvalue(rank + 1).values.item(), flat.kthvalue(len(flat) - rank).values.item()


def _separated(low: float, high: float) -> tuple[float, float]:
    """Both as float32, `high` above `low` also where all embeddings are alike."""
    low, high = torch.tensor([low, high], dtype=torch.float32).tolist()
    return low, high if high > low else low + max(1.0, abs(low))
