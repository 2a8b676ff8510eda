"""Model inversion: features whose embeddings are those that were received."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.errors import UserError
from vflbench.messages.facts import (
    Auxiliary,
    Compression,
    Embeddings,
    Fact,
    Layers,
    NoiseMean,
    PartyFeatures,
    PeerModel,
    PeerModels,
    Queries,
)
from vflbench.messages.threat import Role, Threat, View
from vflbench.numerics.decoder import fit_decoder
from vflbench.numerics.pixels import area_of
from vflbench.options import Count, Rate, Rows, Steps, Width, options

LEAST = {"total_variation": 0.1, "l2": 1e-3}
"""Strength without noise, where the prior only chooses among exact fits."""

_NATS = {"total_variation": 1.0, "l2": 6.0}
"""-log density for each column and unit of R. Of l2: that of the variance 1/12.

Of total variation it is an empirical constant, chosen on one batch of MNIST behind a trained network. It was checked on
others behind untrained ones (cnn, 64 numbers a party, noise of 0.1 and 1 times their mean square), against 1/4, 1/2, 2 and
4. It is near the best of these on digits (one party or four) and, at noise 1, on MNIST in quarters. On MNIST at noise 0.1, 4
is better. Nothing else was checked.
"""

_WIDEST = 3.0  # largest distance of a relaxed category from the mean of its column's table, in standard deviations
_DARK = 0.1
_SLOPE = 0.1
_ROUGH = 1e-6  # under the root of the total variation, so that it has a gradient everywhere

_ASKED = 4  # times that each auxiliary row is asked about, each with noise of its own
_FEWEST = 8  # auxiliary rows to which received messages can be compared
_ASIDE = 64  # auxiliary rows, at most a fifth of them, to which received messages are compared
_ERRORS = 3.0  # standard errors by which received messages may fit worse than those of auxiliary rows
_LEAST_NOISE = 1e-4  # of a received number's variance: the noise that it is taken to have at least
_SILENT = 1e-6  # of the mean variance: a number that varies less than that on known rows says nothing
_STEPS, _PAIRS = 300, 20  # of the quasi-Newton search
_WIDTHS = (1.0, 2.0)  # of the prior, in its own standard deviations


_EVERY = 10  # steps between two checks of the progress of each row
_GAIN = 0.02  # a row whose objective fell by a smaller share since the last check gets a smaller step
_SMALLEST = 2.0**-6  # a row is finished when its step is this share of the first step, or smaller
_KEPT, _EPS = 0.9, 1e-12  # share of the running mean of gradients that a step keeps

Objective = Callable[["Tensor", "Tensor"], "Tensor"]
"""(x (m, d), rows (m,)) -> (m,): the values at x of the problems with these indices, differentiable in x."""


_ROWS_PER_CALL = 1 << 16  # of `score`


_RELUS = (F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_)


@options
class ModelInversion(Attack):
    """Search for the features whose embeddings are those received, party by party, given the party's model.

        white box:  x_i = argmin_(x in [0,1]^k) sum_l |f_l(x) - h_il|^2 / mean_j |h_jl|^2 + strength R(x)
        black box:  x_i = D(h_i),   D a network fitted to the pairs (f(x'), x') of auxiliary rows x'

    l: what a party sends, its cut layer and the linear part if there is one. R: total variation of pictures, or mean square
    distance from 1/2 of other columns. Its strength is what makes x_i the most likely features under noise of the variance
    that the received numbers have about a first fit, at least 0.1 and 0.001. Categories are first relaxed to any vector near
    those of their column's table. Then the ids of each column are scored one by one with the other columns fixed, and
    numeric columns are fitted again, `sweeps` times.

    The prior `pca` is learned from auxiliary rows x', which are never the rows that are rebuilt. The attacker queries the
    parties for the messages h' about these rows, as in the black box, and rebuilds the columns of all parties together:

        x = clip(m + W z, 0, 1), W W^T the shrunk covariance of x', and
        z_i = argmin |L^T (h_i - a f(x) - b)|^2 + |z|^2, a, b and L L^T fitted to h' given f(x')

    It needs numeric columns, and answers with m if messages say nothing. If received messages fit clearly worse than those
    about auxiliary rows that were set aside, the rows come from another distribution. Then it doubles its standard
    deviations; if that isn't enough, the answer is that of prior=auto. Behind noise this can't be noticed.

    role: of the attacker: the label party or, in a protocol that gives each party the embeddings of the others
    (`shared_embeddings`), a party that is not the label party. It attacks all others, and not itself. party: in the role
    `non_label`, the one that attacks, or `all`, each for itself.

    mode: `white_box` knows the models; `black_box` queries them on auxiliary rows and fits a decoder to the answers. rows:
    rows of each audited batch that are rebuilt, from the first. prior: with `auto` R counts, with `none` it doesn't.
    knows_compression: the same compression is applied to f(x) before the comparison, with a straight-through gradient; a
    quantized number then only has to fall into its bin. pca doesn't need it. knows_noise_mean: the mean of the noise is
    subtracted. lr, steps: settings of the descent; a row whose objective stalls stops earlier. candidates: ids of a column
    that are scored exactly, the most promising ones.
    auxiliary, decoder_width, decoder_steps: rows and size of the decoder.

    Closed ReLUs pass a tenth of a gradient (`OpenRelu`). Without that, the search stalls where units that
    must open are closed at every point it tries.

    Source: He, Zhang and Lee, "Model inversion attacks against collaborative inference", ACSAC 2019, sections 4 (white box)
    and 5 (black box, inverse network); the search over categories and the joined form are ours.
    """

    max_classes = math.inf
    on_labels = False

    role: Literal["label", "non_label"] = "label"
    party: str = "all"
    mode: Literal["white_box", "black_box"] = "white_box"
    rows: Rows = 32
    prior: Literal["auto", "pca", "none"] = "auto"
    knows_compression: bool = False
    knows_noise_mean: bool = False
    lr: Rate = 0.05
    steps: Steps = 500
    candidates: Count = 64
    sweeps: Steps = 2
    auxiliary: Rows = 1000
    decoder_width: Width = 256
    decoder_steps: Steps = 300

    def __post_init__(self) -> None:
        if self.role == "label" and self.party != "all":
            raise UserError("it goes with role=non_label; the label party is one alone", key="party", value=self.party)
        if self.mode == "black_box" and self.prior == "pca":
            raise UserError("it goes with mode=white_box", key="prior", value=self.prior)
        if self.mode == "black_box" and (self.knows_compression or self.knows_noise_mean):
            key = "knows_compression" if self.knows_compression else "knows_noise_mean"
            problem = "it goes with mode=white_box: the answers of a black box are compressed and noisy, as the messages are"
            raise UserError(problem, key=key, value=True)

    @property
    def threat(self) -> Threat:
        white_box, black_box = {PeerModels}, {Queries, Auxiliary}
        knows: set[type[Fact]] = {Embeddings, *(white_box if self.mode == "white_box" else black_box)}
        knows |= black_box if self.prior == "pca" else set()
        knows |= {Compression} if self.knows_compression else set()
        knows |= {NoiseMean} if self.knows_noise_mean else set()
        return Threat(Role.LABEL if self.role == "label" else Role.NON_LABEL, knows)

    def batch(self, view: View) -> RebuiltRows | None:
        embeddings = view[Embeddings].received
        if self.party not in ("all", view.party):
            if self.party not in embeddings:
                there = ", ".join(sorted([view.party, *embeddings]))
                problem = f"no such party attacks here; there are {there}, and all"
                raise UserError(problem, key="attack party", value=self.party)
            return None
        means = view[NoiseMean].means if self.knows_noise_mean else {}
        received = {
            party: {
                layer: (h - means[party][layer] if layer in means.get(party, {}) else h)[: self.rows]
                for layer, h in layers.items()
            }
            for party, layers in embeddings.items()
        }
        features = self._jointly(received, view) if self.prior == "pca" else None
        if features is None:
            features = {party: self._rebuild(party, layers, view) for party, layers in received.items()}
        return RebuiltRows(view.ids[: self.rows], next(iter(next(iter(received.values())))), features)

    def _rebuild(self, party: str, received: Layers, view: View) -> PartyFeatures:
        """Of one party."""
        if self.mode == "black_box":
            known, sizes = self._known(view, party), {"width": self.decoder_width, "steps": self.decoder_steps}
            answers = _joined(received, self._answers(view, party))
            with torch.enable_grad():
                decoder = fit_decoder(answers, known.numeric, known.categorical, view.rng, **sizes)
            return PartyFeatures(*decoder(_joined(received, received)))
        compress = view[Compression].rules(party) if self.knows_compression else {}
        with torch.enable_grad(), OpenRelu(_SLOPE):
            return self._invert(Fit(view[PeerModels].models[party], received, compress), view.rng)

    def _jointly(self, received: Mapping[str, Layers], view: View) -> dict[str, PartyFeatures] | None:
        """The most likely numeric columns of every party, with a prior and a channel fitted to auxiliary rows; None if the
        messages are none of rows like these (`believable`).
        """
        models = view[PeerModels].models
        for party in received:
            if models[party].cardinalities:
                problem = f"it goes with numeric columns alone, and party {party} has categorical ones"
                raise UserError(problem, key="attack.model_inversion.prior", value="pca")
        known = [self._known(view, party) for party in received]
        widths, rows = [columns.numeric.shape[1] for columns in known], torch.cat([c.numeric for c in known], dim=1)

        def split(x: Tensor) -> dict[str, PartyFeatures]:
            no_ids = torch.empty(len(x), 0, dtype=torch.int32, device=x.device)
            return {p: PartyFeatures(part, no_ids) for p, part in zip(received, x.split(widths, dim=1), strict=True)}

        def embed(x: Tensor) -> Tensor:
            parts = split(x).items()
            return _all_joined(received, {p: models[p].network(x.numeric, x.categorical) for p, x in parts})

        fitted = len(rows) - min(_ASIDE, len(rows) // 5)
        with torch.no_grad():
            answers = [{party: self._answers(view, party) for party in received} for _ in range(_ASKED)]
            sent = [_all_joined(received, answer) for answer in answers]
            channel = LinearGaussianChannel.of(embed(rows[:fitted]).repeat(_ASKED, 1), torch.cat([h[:fitted] for h in sent]))
        with torch.enable_grad():
            prior = NormalPrior.of(rows[:fitted])
            x = believable(_all_joined(received, received), sent[0][fitted:], embed, prior, channel)
        return None if x is None else split(x)

    def _known(self, view: View, party: str) -> PartyFeatures:
        """Its columns of the auxiliary rows."""
        rows = view[Auxiliary].columns[party]
        return PartyFeatures(rows.numeric[: self.auxiliary], rows.categorical[: self.auxiliary])

    def _answers(self, view: View, party: str) -> Layers:
        """What the party would send for its auxiliary rows, less the mean of the noise if that is known."""
        rows = self._known(view, party)
        layers = view[Queries].answer[party](rows.numeric, rows.categorical, view.rng)
        means = view[NoiseMean].means.get(party, {}) if self.knows_noise_mean else {}
        return {layer: h - means[layer][:1] if layer in means else h for layer, h in layers.items()}

    def _invert(self, fit: Fit, rng: torch.Generator) -> PartyFeatures:
        numeric, vectors = self._relax(fit, rng)
        if self.prior != "none" and numeric.shape[1]:
            fit.noise = fit.noise_at(numeric, vectors)
            if self._strength(fit) > LEAST[fit.kind]:
                numeric, vectors = self._relax(fit, rng)
        if not fit.tables:
            return PartyFeatures(numeric, fit.no_ids(len(numeric)))
        ids = nearest_ids(vectors, fit.tables)
        for _ in range(self.sweeps):
            held = numeric  # while the ids of each column move in turn

            def distance(rows: Tensor, candidates: Tensor, held: Tensor = held) -> Tensor:
                return fit.distance(held[rows], rows, ids=candidates)

            ids = improve_ids(ids, fit.tables, vectors, partial(fit.slope, held), distance, self.candidates)[0]

            def refitted(x: Tensor, rows: Tensor, ids: Tensor = ids) -> Tensor:
                return fit.distance(x, rows, ids=ids[rows])

            if numeric.shape[1]:
                numeric = self._descend(refitted, fit, numeric)
        return PartyFeatures(numeric, ids.int())

    def _relax(self, fit: Fit, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Numeric columns (n, k), and vectors (n, c, dim) read in place of the categorical ones, of no id in particular."""
        n, k = len(fit), len(fit.model.numeric)
        width = fit.centre.numel()
        start = torch.rand(n, k + width, generator=rng, device=rng.device)
        start[:, :k] = _DARK * start[:, :k] if fit.area else 0.5  # pictures have a dark ground
        start[:, k:] = 0.0

        def objective(x: Tensor, rows: Tensor) -> Tensor:
            distance = fit.distance(x[:, :k], rows, vectors=fit.vectors(x[:, k:]))
            return distance + (LEAST["l2"] * x[:, k:].square().mean(dim=1) if width else 0.0)

        points = self._descend(objective, fit, start)
        return points[:, :k], fit.vectors(points[:, k:])

    def _descend(self, objective: Callable[[Tensor, Tensor], Tensor], fit: Fit, start: Tensor) -> Tensor:
        """Points (n, k) within the box with the least objective plus prior."""
        k, beyond = len(fit.model.numeric), start.shape[1] - len(fit.model.numeric)
        low = torch.cat([start.new_zeros(k), start.new_full((beyond,), -_WIDEST)])
        high = torch.cat([start.new_ones(k), start.new_full((beyond,), _WIDEST)])
        return descend(
            lambda x, rows: objective(x, rows) + self._penalty(x[:, :k], fit),
            start,
            low,
            high,
            steps=self.steps,
            size=self.lr,
        )[0]

    def _penalty(self, x: Tensor, fit: Fit) -> Tensor | float:
        """strength R(x), (m,): what is added to the distance for features that are unlikely before any message."""
        if self.prior == "none" or not x.shape[1]:
            return 0.0
        unlikely = (x - 0.5).square().mean(dim=1) if fit.area is None else total_variation(fit.area.picture(x))
        return self._strength(fit) * unlikely

    def _strength(self, fit: Fit) -> float:
        """2 noise times what the log density of the prior loses for each unit of R, which makes the minimum the most likely
        x.
        """
        return max(LEAST[fit.kind], 2 * fit.noise * _NATS[fit.kind] * len(fit.model.numeric))


def total_variation(pictures: Tensor) -> Tensor:
    """Mean over pixels of the length of the step to the next pixel below and to the right.

    pictures: (n, channels, height, width). Returns (n,).
    """
    down = torch.zeros_like(pictures)
    right = torch.zeros_like(pictures)
    down[:, :, :-1] = pictures[:, :, 1:] - pictures[:, :, :-1]
    right[..., :-1] = pictures[..., 1:] - pictures[..., :-1]
    return (down.square() + right.square() + _ROUGH).sqrt().flatten(1).mean(dim=1)


@dataclass
class Fit:
    """One party's messages, and the distance of the embeddings of candidate features from them.

    noise: variance of a received number, relative to the mean square length of a row. kind: of the prior.
    """

    model: PeerModel
    received: Layers
    compress: Mapping[str, Callable[[Tensor], Tensor]]
    noise: float = 0.0

    def __post_init__(self) -> None:
        self.area = area_of(self.model.numeric)
        self.kind = "l2" if self.area is None else "total_variation"
        self.tables = list(self.model.network.tables())
        self.centre = torch.stack([t.mean(dim=0) for t in self.tables]) if self.tables else torch.empty(0, 0)
        spread = [t.std(dim=0, correction=0).clamp_min(1e-9) for t in self.tables]
        self.spread = torch.stack(spread) if spread else torch.empty(0, 0)
        self.energy = {layer: h.square().sum(dim=1).mean().clamp_min(1e-12) for layer, h in self.received.items()}

    def __len__(self) -> int:
        return len(next(iter(self.received.values())))

    def no_ids(self, rows: int) -> Tensor:
        return torch.empty(rows, 0, dtype=torch.int32, device=next(iter(self.received.values())).device)

    def vectors(self, z: Tensor) -> Tensor:
        """(n, c, dim) from coordinates (n, c dim) in each column's standard deviations."""
        return self.centre + self.spread * z.view(len(z), *self.centre.shape)

    @torch.no_grad()
    def noise_at(self, x: Tensor, vectors: Tensor) -> float:
        """Relative variance of a received number about that of fitted features x (n, k), vectors; the largest over layers.

        Taken over closed ReLUs where there are any: an open one follows the noise, as far as features can be bent to it.
        """
        layers = self.model.network.from_vectors(x, vectors) if self.tables else self.model.network(x, self.no_ids(len(x)))
        noises = []
        for layer, h in self.received.items():
            if layer in layers:
                squared = (self.sent(layer, layers[layer]) - h).square()
                is_closed = layers[layer] == 0
                mean = squared[is_closed].mean() if is_closed.any() else squared.mean()
                noises.append(float(mean / self.energy[layer]))
        return max(noises)

    def distance(self, x: Tensor, rows: Tensor, *, ids: Tensor | None = None, vectors: Tensor | None = None) -> Tensor:
        """(m,) relative squared distance of f(x) from the received embeddings. x: (m, k) with ids (m, c), or vectors."""
        network = self.model.network
        if self.tables and ids is None:
            layers = network.from_vectors(x, vectors)
        else:
            layers = network(x, self.no_ids(len(x)) if ids is None else ids)
        parts = [
            (self.sent(layer, layers[layer]) - h[rows]).square().sum(dim=1) / self.energy[layer]
            for layer, h in self.received.items()
            if layer in layers
        ]
        return reduce(torch.add, parts)

    def slope(self, x: Tensor, ids: Tensor) -> Tensor:
        """The gradient of the distance by the vector read for each category, (n, c, dim)."""
        read = [table[ids[:, j].long()] for j, table in enumerate(self.tables)]
        vectors = torch.stack(read, dim=1).requires_grad_()
        distance = self.distance(x, torch.arange(len(x), device=x.device), vectors=vectors)
        return torch.autograd.grad(distance.sum(), vectors)[0]

    def sent(self, layer: str, values: Tensor) -> Tensor:
        """These values as they would be sent; gradients pass straight through."""
        if layer not in self.compress:
            return values
        plain = values.detach()
        return values + (self.compress[layer](plain) - plain)


@dataclass(frozen=True)
class NormalPrior:
    """x = clip(mean + root z, 0, 1), z ~ N(0, I). mean: (k,). root: (k, k), of the covariance: its principal directions."""

    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, known: Tensor) -> NormalPrior:
        """Of known rows (m, k), m > 1; their covariance is shrunk to a multiple of I (Ledoit and Wolf, 2004)."""
        mean = known.double().mean(dim=0)
        variances, directions = torch.linalg.eigh(_shrunk_covariance(known.double() - mean))
        return cls(mean.to(known.dtype), (directions * variances.clamp_min(0).sqrt()).to(known.dtype))

    def __call__(self, z: Tensor) -> Tensor:
        """(n, k) features at these coordinates."""
        return (self.mean + z @ self.root.T).clamp(0, 1)


@dataclass(frozen=True)
class LinearGaussianChannel:
    """What becomes of an embedding on its way: h = slope f + shift + e, e ~ N(0, C).

    slope, shift: (d,), one for each number. whitening: (d, d), L with L L^T the inverse of C. Clipping, rounding and leaving
    out are taken as the linear map nearest to them and an error (Bussgang).
    """

    slope: Tensor
    shift: Tensor
    whitening: Tensor

    @classmethod
    def of(cls, f: Tensor, h: Tensor) -> LinearGaussianChannel:
        """Fitted to what a network makes of m known rows, f (m, d), and what was sent for them, h (m, d).

        Slopes are shrunk towards 0 together, by 1 - (d + 2 sqrt(2 d)) / sum_j t_j^2, t_j the slope over its standard error:
        where chance alone would give such slopes, all are 0, and nothing is read into the messages. A number that is equal
        in all known rows takes the mean slope of the others.
        """
        f, h = f.double(), h.double()
        f_mean, h_mean = f.mean(dim=0), h.mean(dim=0)
        variance = (f - f_mean).square().mean(dim=0)
        speaks = variance > (_SILENT * variance.mean()).clamp_min(1e-12)
        variance = torch.where(speaks, variance, 1.0)
        slope = torch.where(speaks, ((f - f_mean) * (h - h_mean)).mean(dim=0) / variance, 0.0)
        errors = h - h_mean - slope * (f - f_mean)
        squared_t = slope.square() * variance * len(f) / errors.square().mean(dim=0).clamp_min(1e-30)
        d = float(speaks.sum())
        slope = slope * max(0.0, 1 - (d + 2 * (2 * d) ** 0.5) / max(float(squared_t.sum()), 1e-30))
        slope = torch.where(speaks, slope, slope[speaks].mean() if speaks.any() else 0.0)
        errors = h - h_mean - slope * (f - f_mean)
        covariance = _shrunk_covariance(errors)
        floor = _LEAST_NOISE * (h - h_mean).square().mean().clamp_min(1e-12)
        covariance += floor * torch.eye(len(slope), dtype=f.dtype, device=f.device)
        whitening = torch.linalg.cholesky(torch.linalg.inv(covariance))
        return cls(*(part.float() for part in (slope, h_mean - slope * f_mean, whitening)))


def _shrunk_covariance(centred: Tensor) -> Tensor:
    """(d, d) of rows (m, d) float64."""
    from sklearn.covariance import ledoit_wolf  # late: it takes a second to import

    return torch.from_numpy(ledoit_wolf(centred.cpu().numpy(), assume_centered=True)[0]).to(centred.device)


def most_likely_columns(
    h: Tensor, embed: Callable[[Tensor], Tensor], prior: NormalPrior, channel: LinearGaussianChannel
) -> tuple[Tensor, Tensor]:
    """The x (n, k) that are most likely behind the messages h (n, d), in the coordinates of the prior:

        z_i = argmin_z |L^T (h_i - slope f(x(z)) - shift)|^2 + |z|^2

    embed: f, differentiable. Messages that say nothing leave z = 0, the mean of the prior. By L-BFGS. Returns x, and the
    least values of the objective (n,); for linear f these are chi-squared with as many degrees of freedom as messages have
    numbers, however noisy they are.
    """
    from scipy.optimize import minimize

    shape = len(h), prior.root.shape[1]

    def energies(z: Tensor) -> Tensor:
        errors = (h - channel.slope * embed(prior(z)) - channel.shift) @ channel.whitening
        return errors.square().sum(dim=1) + z.square().sum(dim=1)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.from_numpy(flat).to(h).view(shape).requires_grad_()
        value = energies(z).sum()
        (gradient,) = torch.autograd.grad(value, z)
        return value.item(), gradient.double().flatten().cpu().numpy()

    options = {"maxiter": _STEPS, "maxcor": _PAIRS, "ftol": 1e-9}
    optimum = minimize(objective, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=options)
    z = torch.from_numpy(optimum.x).to(h).view(shape)
    with torch.no_grad():
        return prior(z), energies(z)


def believable(
    h: Tensor, aside: Tensor, embed: Callable[[Tensor], Tensor], prior: NormalPrior, channel: LinearGaussianChannel
) -> Tensor | None:
    """The most likely x (n, k) behind h (n, d), under the prior as far as h bears it out; None if it doesn't.

    aside: (m, d) messages of rows that prior and channel aren't fitted to. Where known rows are of another distribution than
    that of the attacked ones, messages have a larger mean log energy than those of rows set aside, by more than three
    standard errors. Then the standard deviations of the prior are doubled; None if messages still contradict it.
    """
    if len(aside) < _FEWEST:
        return most_likely_columns(h, embed, prior, channel)[0]
    usual = most_likely_columns(aside, embed, prior, channel)[1]
    for width in _WIDTHS:
        x, energy = most_likely_columns(h, embed, replace(prior, root=width * prior.root), channel)
        if not is_larger(energy, usual):
            return x
    return None


def _joined(received: Layers, layers: Layers) -> Tensor:
    """(n, d) of all layers that are received, side by side."""
    return torch.cat([layers[layer] for layer in received], dim=1)


def _all_joined(received: Mapping[str, Layers], layers: Mapping[str, Layers]) -> Tensor:
    """(n, d) of all parties and layers that are received, side by side."""
    return torch.cat([_joined(sent, layers[party]).float() for party, sent in received.items()], dim=1)


def is_larger(misfits: Tensor, usual: Tensor) -> bool:
    """Whether the mean log of misfits (n,) lies more than three standard errors above that of known rows' misfits (m,)."""
    log, others = misfits.clamp_min(1e-12).log(), usual.clamp_min(1e-12).log()
    return bool(log.mean() > others.mean() + _ERRORS * others.std() * (1 / len(log) + 1 / len(others)) ** 0.5)


def descend(
    objective: Objective,
    start: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    steps: int,
    size: float,
) -> tuple[Tensor, Tensor]:
    """Projected gradient descent with momentum: x <- clip(x - 10 s_i m, low, high), m the running mean of g / rms(g).

    s_i is halved if the objective of row i fell by less than 2 % in ten steps. A row is finished when its step is at most
    size / 64, or its value 0. Finished rows are no longer evaluated.

    start: (n, d). low, high: (d,). size: the first step s. Returns the best x visited, (n, d), and its values (n,).
    """
    best, best_value = start.clamp(low, high), torch.full((len(start),), torch.inf, device=start.device)
    rows = torch.arange(len(start), device=start.device)
    x, m = best.clone(), torch.zeros_like(best)
    sizes, before = torch.full_like(best[:, :1], size), best_value.clone()
    for step in range(1, steps + 1):
        z = x.requires_grad_()
        values = objective(z, rows)
        (g,) = torch.autograd.grad(values.sum(), z)
        x, values = x.detach(), values.detach()
        is_better = values < best_value[rows]
        best[rows[is_better]], best_value[rows[is_better]] = x[is_better], values[is_better]
        if step % _EVERY == 0:
            improved = best_value[rows] < (1 - _GAIN) * before[rows]
            sizes = torch.where(improved[:, None], sizes, sizes / 2)
            before[rows] = best_value[rows]
            active = (best_value[rows] > 0) & (sizes[:, 0] > size * _SMALLEST)
            if not active.all():
                rows, x, g, m, sizes = (values[active] for values in (rows, x, g, m, sizes))
            if not len(rows):
                break
        m = _KEPT * m + (1 - _KEPT) * (g / g.square().mean(dim=1, keepdim=True).sqrt().clamp_min(_EPS))
        x = torch.minimum(torch.maximum(x - sizes * (m / (1 - _KEPT)), low), high)
    return best, best_value


def nearest_ids(vectors: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """(n, c) ids whose vectors are nearest, row by row. vectors: (n, c, dim). tables: (ids, dim) per column."""
    columns = [torch.cdist(vectors[:, j], table).argmin(dim=1) for j, table in enumerate(tables)]
    return torch.stack(columns, dim=1)


def improve_ids(
    ids: Tensor,
    tables: Sequence[Tensor],
    targets: Tensor,
    slope: Callable[[Tensor], Tensor],
    score: Callable[[Tensor, Tensor], Tensor],
    candidates: int,
) -> tuple[Tensor, Tensor]:
    """One pass over the columns. In each column, every row takes the id with the smallest score, its other ids fixed.

    If a column has more ids than `candidates`, only some are scored: half of them have the smallest value of a linear model
    of the score, <slope_ij, T_j[id]>, half are nearest to `targets`, and one is the row's present id.

    ids: (n, c). tables: (ids, dim) per column. targets: (n, c, dim). slope: ids (n, c) -> (n, c, dim), the gradient of the
    score in the embedding vectors. score: (rows (m,), ids (m, c)) -> (m,). Returns new ids (n, c) and their scores (n,).
    """
    ids = ids.clone()
    rows = torch.arange(len(ids), device=ids.device)
    value = score(rows, ids)
    for j, table in enumerate(tables):
        tried = _candidates(ids, j, table, targets[:, j], slope, candidates)  # (n, m)
        size = max(1, _ROWS_PER_CALL // tried.shape[1])
        parts = zip(rows.split(size), tried.split(size), strict=True)
        least, place = torch.cat([_scores(r, ids, j, t, score) for r, t in parts]).min(dim=1)
        better = least < value
        ids[better, j] = tried.gather(1, place[:, None])[better, 0]
        value = torch.minimum(value, least)
    return ids, value


def _candidates(ids: Tensor, j: int, table: Tensor, target: Tensor, slope: Callable[[Tensor], Tensor], count: int) -> Tensor:
    """(n, m) ids to try in column j."""
    if len(table) <= count:
        return torch.arange(len(table), device=ids.device).expand(len(ids), -1)
    half = max(1, count // 2)
    promising = (slope(ids)[:, j] @ table.T).topk(half, largest=False).indices
    near = torch.cdist(target, table).topk(half, largest=False).indices
    return torch.cat([promising, near, ids[:, j : j + 1]], dim=1)


def _scores(rows: Tensor, ids: Tensor, j: int, tried: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(n, m) scores of these rows with each of their candidate ids in column j."""
    n, m = tried.shape
    changed = ids[rows][:, None].repeat(1, m, 1)
    changed[:, :, j] = tried
    return score(rows.repeat_interleave(m), changed.view(n * m, -1)).view(n, m)


class OpenRelu(TorchFunctionMode):
    """Within this context every ReLU keeps its values but has another gradient.

        forward: max(0, x);   backward: g where x > 0, slope g elsewhere

    A gradient search for the input of a network gets stuck where the relevant units are inactive. With slope > 0 it still
    learns in which direction they become active. At an input with the target outputs both gradients are 0.
    """

    def __init__(self, slope: float):
        super().__init__()
        self.slope = slope

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RELUS:
            leaky = F.leaky_relu(args[0], self.slope)
            return leaky + (args[0].clamp_min(0) - leaky).detach()
        return func(*args, **(kwargs or {}))
