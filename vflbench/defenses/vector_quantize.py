"""Vector quantization: runs of coordinates become words of a codebook."""

import warnings
from typing import Annotated

import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vflbench.defenses.base import Context, Form, NonLabelDefense
from vflbench.errors import NonFiniteError
from vflbench.messages.codec import Codebook, Encoded
from vflbench.options import Count, Range, Steps, Width, options

_MOST_PARTS = 65_536  # that a codebook is made of


@options
class VectorQuantize(NonLabelDefense):
    """Product quantization: each group of `size` coordinates crosses as the number of the nearest of `words` words. Falls to
    `model_inversion`, which rebuilds digits of which 0.96 are recognised.

        h'_(run) = w_c,   c = argmin_c |h_(run) - w_c|,   ceil(d / size) ceil(log2 words) bits a row

    words >= 2: words of the codebook. size: coordinates in a group (a run); the last run is filled up with zeros. One
    codebook serves all runs of a layer: the k-means centres of the runs of all batches so far, up to `learn_batches`, and
    fixed from then on. It crosses, as float32, with each message in which it is new. iterations: iterations of Lloyd's
    algorithm at each of these batches.

    It carries no guarantee.

    Source: Castiglia et al., "Compressed-VFL: communication-efficient learning with vertically partitioned data", ICML 2022;
    Jegou et al., "Product quantization for nearest neighbor search", 2011.
    """

    takes = frozenset({Form.REAL})
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
        seed = int(torch.randint(2**31 - 1, (), generator=rng, device=rng.device))
        self._words = k_means(self._parts, self.words, self._words, self.iterations, seed)
        self._batches += 1
        if self._batches == self.learn_batches:
            self._parts = self._parts[:0]


def k_means(points: Tensor, words: int, start: Tensor, iterations: int, seed: int) -> Tensor:
    """(K, s) centres of points (m, s) after so many of Lloyd's iterations, float32, from centres (K, s), or from those of
    k-means++ where there are none. Fewer points than words count more than once each.
    """
    points = points.repeat(-(-words // len(points)), 1) if len(points) < words else points
    init = start.numpy() if len(start) else "k-means++"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than words
        fitted = KMeans(words, init=init, n_init=1, max_iter=iterations, random_state=seed).fit(points.numpy())
    return torch.from_numpy(fitted.cluster_centers_)
