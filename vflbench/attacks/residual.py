"""Residual attack: the label is what the model predicts, less the residual that the gradient carries."""

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, Scores, last_met
from vflbench.attacks.directions import add_moments
from vflbench.attacks.spectral import rising_projection
from vflbench.messages.facts import ClassShares, Gradients, LocalModel
from vflbench.messages.threat import Threat, View
from vflbench.numerics.directions import logit_direction, top_eigenvector
from vflbench.options import options


@options
class Residual(Attack):
    """Join, at the end of an epoch, what the embedding and the gradient of a row say along one direction, at every layer.

        s_i = <h_i - mean, u> / spread - c_i / spread,   c_i: the gradient of row i along u,   y_i = p_i - (p_i - y_i)

    u is the direction along which the logit rises. The gradients of all audited batches show it, as in `directions`. The
    attack scores the rows of these batches. Both terms have a spread of 1, and so the same weight. This is nearly optimal
    for randomized labels with an eps of 1 or more. With a smaller eps, the gradient gets too much weight.

    It is the adaptive attack on label DP: a gradient reveals only the noisy label, but the embedding of a model that has
    learned from all rows shows what the features predict, about which the promise says nothing. The leak AUC can be above
    that of any attack on the noisy labels alone. If gradients aren't defended, c alone is the label.

    Memory: one number for each row of the audited batches and each layer, beside (d, d) for each layer of width d.

    Source: the label as prediction less residual is the identity above; its use here is ours.
    """

    threat = Threat(knows={LocalModel, Gradients, ClassShares})

    def __post_init__(self) -> None:
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        self._ids: list[Tensor] = []
        self._along: dict[str, list[tuple[Tensor, Tensor]]] = {}  # layer -> (v, c) of each batch

    def observe(self, view: View) -> None:
        layers = view[Gradients].layers
        add_moments(self._moments, layers)
        self._ids.append(view.ids.cpu())
        for layer, g in layers.items():
            v, c = _along_top(g)
            self._along.setdefault(layer, []).append((v.cpu(), c.cpu()))

    def epoch(self, view: View) -> Scores | None:
        is_met, rows = last_met(self._ids, view.ids)
        if not len(rows):
            return None
        ids, prior, scores = view.ids[is_met.to(view.ids.device)], view[ClassShares].positive, {}
        for layer, h in view[LocalModel].embed(ids).items():
            if layer not in self._moments:
                continue
            u = logit_direction(*self._moments[layer], prior)
            logit = rising_projection(h.double().cpu(), u)
            residual = torch.cat([c if float(v @ u) >= 0 else -c for v, c in self._along[layer]])[rows]
            scores[layer] = _standard(logit) - _standard(residual)
        self.__post_init__()
        return Scores(ids, scores)


def _along_top(g: Tensor) -> tuple[Tensor, Tensor]:
    """The top eigenvector v (d,) of G^T G, and G v (n,) in units of its root mean square."""
    g = g.double()
    v = top_eigenvector(g.T @ g)
    c = g @ v
    return v, c / c.square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)


def _standard(values: Tensor) -> Tensor:
    """Of mean 0 and mean square 1; zeros if all are equal, up to rounding."""
    centred = values - values.mean()
    spread = centred.square().mean().sqrt()
    return centred / spread if float(spread) > 1e-12 * float(values.abs().max()) else torch.zeros_like(values)
