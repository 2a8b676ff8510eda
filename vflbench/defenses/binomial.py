"""Binomial mechanism: binomial noise on the whole numbers of a quantized embedding."""

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from vflbench.defenses.base import Context, Form, NonLabelDefense
from vflbench.messages.codec import Encoded, Grid
from vflbench.metrics.privacy import Sent, binomial_release
from vflbench.options import Count, Delta, Fraction, Range, options


@options
class Binomial(NonLabelDefense):
    """The number of heads in n coin throws, added to each whole number c that `quantize` sends.

        c' = c + Z,   Z ~ Bin(n, p);   ceil(log2(levels + n)) bits a number

    n, p in (0, 1): parameters of the noise, known to everybody. The network of the receiver always gets low + step (c' - n
    p), which is unbiased. biased: what crosses is decoded as low + step c', which an attacker who doesn't know n p takes for
    the embedding; otherwise the mean is subtracted when it is decoded. The bytes are the same. delta: delta of the guarantee
    for one message. Whole numbers have no least significant bits that reveal the input. But torch's sampler draws them in
    floating point, and its distribution is near the binomial distribution without a proof that it is equal. The claim says
    so.

    The guarantee is that of the theorem, with the sensitivities that follow from the declared range, levels and `norm` of
    `quantize`. Without a declared range, or if n is too small for the condition of the theorem, there is no guarantee, and
    the run says why. An exact figure from the distribution of the noise is reported as well. Both are about one row's
    embedding, given the network: they do not bound what the weights, and through them messages about other rows, reveal
    about a row.

    Source: Agarwal et al., "cpSGD: communication-efficient and differentially-private distributed SGD", NeurIPS 2018,
    Theorem 1; Dwork et al., "Our data, ourselves", 2006; Arif, "Building better defense mechanisms in VFL", 2022.
    """

    takes = frozenset({Form.INTEGERS})
    gives = Form.NOISY

    n: Annotated[Count, Range(1, 2**24)] = 512
    p: Fraction = 0.5
    biased: bool = False
    delta: Delta = 1e-6

    def embedding(self, h: Encoded, context: Context) -> Encoded:
        """h: of `quantize`."""
        noise = binomial(h.numbers.shape, self.n, self.p, context.rng).to(h.numbers.device)
        assert isinstance(h.code, Grid)
        grid = replace(h.code, top=h.code.top + self.n, noise_mean=self.n * self.p, corrected=not self.biased)
        return replace(h, numbers=h.numbers + noise, code=grid)

    def sent(self, name: str, before: Sent) -> Sent:
        release = binomial_release(before.sensitivity, before.reason, self.n, self.p, self.delta)
        return before.released(name, release)


def binomial(shape: torch.Size, n: int, p: float, rng: torch.Generator) -> Tensor:
    """int64 draws of Bin(n, p), each by itself."""
    chance = torch.full(shape, p, dtype=torch.float64, device=rng.device)
    return torch.binomial(torch.full_like(chance, n), chance, generator=rng).long()
