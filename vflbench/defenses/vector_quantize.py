"""Vector quantization: runs of coordinates become words of a codebook."""

from typing import Annotated

import torch
from torch import Tensor

from vflbench.defenses.base import Context, Form, NonLabelDefense
from vflbench.errors import NonFiniteError
from vflbench.messages.codec import Codebook, Encoded, nearest_codeword
from vflbench.options import Count, Range, Steps, Width, options

_MOST_PARTS = 65_536  # that a codebook is made of


@options
class VectorQuantize(NonLabelDefense):
    """Product quantization: each group of `size` coordinates crosses as the number of the nearest of `words` words. Falls to
    `model_inversion`, which rebuilds digits.

        h'_(run) = w_c,   c = argmin_c |h_(run) - w_c|,   ceil(d / size) ceil(log2 words) bits a row

    words >= 2: words of the codebook. size: coordinates in a group (a run); the last run is filled up with zeros. One
    codebook serves all runs of a layer: the k-means centres of the runs of all batches so far, up to `learn_batches`, and
    fixed from then on. It crosses, as float32, with each message in which it is new. iterations: iterations of Lloyd's
    algorithm at each of these batches.

    It carries no guarantee.

    Source: Castiglia et al., "Compressed-VFL: communication-efficient learning with vertically partitioned data", ICML 2022;
    Jegou et al., "Product quantization for nearest neighbor search", 2011.
    """

    gives = Form.WORDS

    words: Annotated[Count, Range(2, 4096)] = 16
    size: Annotated[Width, Range(1, 4096)] = 4
    learn_batches: Steps = 20
    iterations: Steps = 10

    def __post_init__(self) -> None:
        self._batches = 0
        self._parts = self._words = torch.empty(0, self.size)

    def embedding(self, h: Tensor, context: Context) -> Encoded:
        """h: (n, d)."""
        if not bool(h.isfinite().all()):
            raise NonFiniteError("an embedding that is to be quantized is not a finite number")
        is_new = self._batches < self.learn_batches
        if is_new:
            self._learn(h, context.rng)
        book = Codebook(self._words.to(h.device))
        return Encoded(h.shape[1], book.codes(h), book, announced=self._words.reshape(-1).to(h.device) if is_new else None)

    def _learn(self, h: Tensor, rng: torch.Generator) -> None:
        """One more batch; the runs are forgotten with the last one. On the CPU, where sums come out the same each time."""
        parts = Codebook(self._words).parts(h).reshape(-1, self.size)
        self._parts = torch.cat([self._parts, parts.cpu()])[-_MOST_PARTS:]
        start = self._words if len(self._words) else spread(self._parts, self.words, rng)
        self._words = k_means(self._parts, start, self.iterations)
        self._batches += 1
        if self._batches == self.learn_batches:
            self._parts = self._parts[:0]


def spread(points: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """(count, s) points to begin with, each drawn in proportion to its squared distance from those drawn before.

    points: (m, s). Where there are fewer different ones, some come more than once.

    Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", 2007.
    """
    chosen = [points[torch.randint(len(points), (1,), generator=rng, device=rng.device).to(points.device)]]
    distance = (points - chosen[0]).square().sum(dim=1)
    for _ in range(count - 1):
        reached = distance.double().cumsum(0)
        u = torch.rand(1, generator=rng, device=rng.device, dtype=torch.float64).to(points.device) * reached[-1]
        place = torch.searchsorted(reached, u, right=True).clamp_max(len(points) - 1)
        chosen.append(points[place])
        distance = torch.minimum(distance, (points - chosen[-1]).square().sum(dim=1))
    return torch.cat(chosen)


def k_means(points: Tensor, centres: Tensor, iterations: int) -> Tensor:
    """(K, s) centres after so many of Lloyd's iterations, float32; one without points stays where it is."""
    for _ in range(iterations):
        word = nearest_codeword(points, centres)
        sums = torch.zeros_like(centres).index_add_(0, word, points)
        counts = torch.bincount(word, minlength=len(centres))[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return centres
