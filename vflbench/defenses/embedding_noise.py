"""Gaussian or Laplace noise on embeddings of bounded length."""

import math
from typing import Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, NonLabelDefense
from vflbench.defenses.label_noise import with_room
from vflbench.metrics.privacy import Sent, gaussian_release, gaussian_sigma, laplace_release
from vflbench.numerics.hashing import derived, drawn_key, laplace, mix, normals, uniform
from vflbench.options import Delta, Eps, Length, options


@options
class EmbeddingNoise(NonLabelDefense):
    """Embeddings are shortened to a declared norm, and noise is added to each coordinate.

        gaussian   h' = h min(1, C / |h|_2) + N(0, s^2 I),   the least s with (eps, delta)-DP for embeddings 2 C apart
        laplace    h' = h min(1, C / |h|_1) + Laplace(0, b),   b = 2 C / eps,   which is eps-DP

    norm: C, the L2 norm for gaussian and the L1 norm for laplace. eps, delta: of one message about a row; laplace has delta
    = 0. The guarantee is about one row's embedding, given the network: it does not bound what the weights, and through them
    messages about other rows, reveal about a row. It also holds for h' after any other defense. Noise is drawn in floating
    point: its least significant bits distinguish embeddings, and the claim says so. The generator is no cryptographic one.

    memoise: what all messages about a row share. `none`: each message has fresh noise, which averages out over the epochs;
    eps adds up. `noise`: the same noise, computed from the row's id and a 64-bit key, which no average removes; But the
    network changes, and the difference of two messages is exactly that of two embeddings. So no eps is claimed for more than
    one message.
    `message`: the first message about a row in training is sent again in all epochs, and the network learns nothing from the
    gradient that answers it (which is replaced by 0), because the message no longer depends on the network. All these
    messages count once. The message is kept for each row, with 4 bytes for each coordinate. Rows that are only predicted, or
    not yet trained on, get fresh messages, which add up.

    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018; Dwork et al.,
    "Calibrating noise to sensitivity in private data analysis", TCC 2006; Mironov, "On significance of the least significant
    bits for differential privacy", CCS 2012. `message` after the permanent response of Erlingsson et al., "RAPPOR", CCS
    2014.
    """

    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    norm: Length = 1.0
    eps: Eps = 1.0
    delta: Delta = 1e-6
    memoise: Literal["none", "noise", "message"] = "none"

    def __post_init__(self) -> None:
        gaussian = self.mechanism == "gaussian"
        self.scale = gaussian_sigma(2 * self.norm, self.eps, self.delta) if gaussian else 2 * self.norm / self.eps  # s or b
        self._key: int | None = None
        self._sent = torch.empty(0, 0)  # by row id; nan of a row about which nothing was sent
        self._again = torch.empty(0, dtype=torch.bool)  # rows of the last batch

    def embedding(self, h: Tensor, context: Context) -> Tensor:
        """h: (n, d)."""
        order = 2 if self.mechanism == "gaussian" else 1
        length = torch.linalg.vector_norm(h, order, dim=1, keepdim=True)
        clipped = h * (self.norm / length.clamp_min(self.norm))
        fresh = torch.add(clipped, self._unit_noise(h, context), alpha=self.scale)
        return self._replayed(fresh, context.ids) if self.memoise == "message" else fresh

    def received(self, g: Tensor, h: Tensor, context: Context) -> Tensor:
        """0 for rows whose message was sent before: it does not depend on h."""
        return g.masked_fill(self._again.to(g.device)[:, None], 0.0) if self.memoise == "message" else g

    def _unit_noise(self, h: Tensor, context: Context) -> Tensor:
        rng, key = context.rng, self._row_key(context)
        if key is not None and self.mechanism == "gaussian":
            return normals(context.ids, key, 0, h.shape[1]).to(h)
        if key is not None:
            rows = mix(context.ids, derived(key, "rows"))[:, None]
            return laplace(uniform(rows + torch.arange(h.shape[1], device=rows.device), key), 1.0).to(h)
        if self.mechanism == "gaussian":
            return torch.randn(h.shape, generator=rng, device=h.device, dtype=h.dtype)
        u = torch.rand(2, *h.shape, generator=rng, device=h.device, dtype=torch.float64)
        waits = -torch.log1p(-u)  # exponential; the difference of two is Laplace
        return (waits[0] - waits[1]).to(h.dtype)

    def _row_key(self, context: Context) -> int | None:
        """The key of noise that belongs to a row; None where it is drawn afresh, as for ids below 0, which are no rows."""
        if self.memoise != "noise" or bool((context.ids < 0).any()):
            return None
        self._key = drawn_key(context.rng) if self._key is None else self._key
        return derived(self._key, self.mechanism, self.eps, self.norm)

    def _replayed(self, fresh: Tensor, ids: Tensor) -> Tensor:
        """What was sent about each row at first."""
        places = ids.cpu()
        is_row = places >= 0
        if not len(self._sent):
            self._sent = fresh.new_empty(0, fresh.shape[1], device="cpu")
        self._sent = with_room(self._sent, places, math.nan)
        self._again = is_row & ~self._sent[places.clamp_min(0)].isnan().all(dim=1)
        new = is_row & ~self._again
        self._sent[places[new]] = fresh.detach()[new.to(fresh.device)].cpu()
        stored = self._sent[places.clamp_min(0)].to(fresh)
        return torch.where(is_row.to(fresh.device)[:, None], stored, fresh)

    def sent(self, name: str, before: Sent) -> Sent:
        gaussian = self.mechanism == "gaussian"
        release = gaussian_release(2 * self.norm, self.scale, self.delta) if gaussian else laplace_release(self.eps)
        return before.released(name, release.sharing(self.memoise))
