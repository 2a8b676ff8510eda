"""Model inversion: features whose embeddings are those that were received."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.feature_seat import FeatureSeat
from vflbench.attacks.inversion_fit import Fit, open_relus
from vflbench.attacks.inversion_pca import jointly
from vflbench.attacks.inversion_penalty import LEARNED, LEAST, is_scaled, penalty
from vflbench.attacks.inversion_prior import AuxiliaryPrior, auxiliary_prior
from vflbench.errors import UserError
from vflbench.messages.fact import Fact, Layers
from vflbench.messages.facts import Embeddings, OwnColumns
from vflbench.messages.peer_facts import Auxiliary, Compression, NoiseMean, PeerModels, Queries
from vflbench.messages.threat import Threat, View
from vflbench.numerics.decoder import fit_decoder
from vflbench.numerics.descent import descend
from vflbench.numerics.id_search import improve_ids, nearest_ids
from vflbench.options import Count, Rate, Rows, Steps, Weight, Width, options

_WIDEST = 3.0  # largest distance of a relaxed category from the mean of its column's table, in standard deviations
_AT_ONCE = 128  # rows at a time, so that a step stays in the cache
_DARK = 0.1
_SLOPE = 0.1


@options
class ModelInversion(FeatureSeat, Attack):
    """Search for the features whose embeddings are those received, party by party, given the party's model.

        white box:  x_i = argmin_(x in [0,1]^k) sum_l |f_l(x) - h_il|^2 / mean_j |h_jl|^2 + strength R(x)
        black box:  x_i = D(h_i),   D a network fitted to the pairs (f(x'), x') of auxiliary rows x'

    l: what a party sends, its cut layer and the linear part if there is one. R: total variation of pictures, or mean square
    distance from 1/2 of other columns. Its strength is what makes x_i the most likely features under noise of the variance
    that the received numbers have about a first fit, at least 0.1 and 0.001. Categories are first relaxed to any vector near
    those of their column's table. Then the ids of each column are scored one by one with the other columns fixed, and
    numeric columns are fitted again, `sweeps` times.

    Two priors are learned from auxiliary rows x', which are never the rows that are rebuilt. The attacker queries the
    parties for the messages h' about these rows, as in the black box:

        pca         all parties together: x = clip(m + W z, 0, 1), W W^T the shrunk covariance of x', and
                    z_i = argmin |L^T (h_i - a f(x) - b)|^2 + |z|^2, a, b and L L^T fitted to h' given f(x')
        auxiliary   party by party: R(x_i) = |V^T (x_i - D(h_i))|^2, V V^T the inverse covariance of x' - D(h')

    pca needs numeric columns, and answers with m if messages say nothing (`attacks.inversion_pca`). auxiliary takes the
    variance of the received numbers about the computed ones as strength (`attacks.inversion_prior`). If received messages
    fit clearly worse than those about auxiliary rows that were set aside, the rows come from another distribution. Then pca
    doubles its standard deviations; if that isn't enough, or with auxiliary, the answer is that of prior=auto. Behind noise
    this can't be noticed. With auxiliary rows, pca is best if messages are plain numbers or have many levels. If messages
    are coarse, sparse or noisy, auxiliary with knows_compression is best.

    seat, party: who attacks (`attacks.feature_seat`). mode: `white_box` knows the models; `black_box` queries them on
    auxiliary rows and fits a decoder to the answers. rows: rows of each audited batch that are rebuilt, from the first.
    strength: weight of total variation or l2. knows_compression: the same compression is applied to f(x) before the
    comparison, with a straight-through gradient; a quantized number then only has to fall into its bin. pca doesn't need it.
    knows_noise_mean: the mean of the noise is subtracted. optimizer, lr, steps: settings of the descent; a row whose
    objective stalls stops earlier. restarts: number of starts; each row keeps the best. candidates: ids of a column that are
    scored exactly, the most promising ones. auxiliary, decoder_width, decoder_steps: rows and size of the decoder.

    Closed ReLUs pass a tenth of a gradient (`vflbench.numerics.open_relu`). Without that, the search stalls where units that
    must open are closed at every point it tries.

    Source: He, Zhang and Lee, "Model inversion attacks against collaborative inference", ACSAC 2019, sections 4 (white box)
    and 5 (black box, inverse network); the search over categories and the joined form are ours.
    """

    max_classes = math.inf

    mode: Literal["white_box", "black_box"] = "white_box"
    rows: Rows = 32
    prior: Literal["auto", "total_variation", "l2", "pca", "auxiliary", "none"] = "auto"
    strength: Weight | Literal["auto"] = "auto"
    knows_compression: bool = False
    knows_noise_mean: bool = False
    optimizer: Literal["adam", "momentum"] = "momentum"
    lr: Rate = 0.05
    steps: Steps = 500
    restarts: Count = 1
    candidates: Count = 64
    sweeps: Steps = 2
    auxiliary: Rows = 1000
    decoder_width: Width = 256
    decoder_steps: Steps = 300

    def __post_init__(self) -> None:
        self.refuse_party()
        if self.prior in ("none", *LEARNED) and self.strength not in ("auto", 0.0):
            raise UserError("it goes with a prior that has a strength", key="strength", value=self.strength)
        if self.mode == "black_box" and self.prior in LEARNED:
            raise UserError("it goes with mode=white_box", key="prior", value=self.prior)
        if self.mode == "black_box" and (self.knows_compression or self.knows_noise_mean):
            key = "knows_compression" if self.knows_compression else "knows_noise_mean"
            problem = "it goes with mode=white_box: the answers of a black box are compressed and noisy, as the messages are"
            raise UserError(problem, key=key, value=True)

    @property
    def threat(self) -> Threat:
        white_box, black_box = {PeerModels}, {Queries, Auxiliary}
        knows: set[type[Fact]] = {Embeddings, *(white_box if self.mode == "white_box" else black_box)}
        knows |= black_box if self.prior in LEARNED else set()
        knows |= {Compression} if self.knows_compression else set()
        knows |= {NoiseMean} if self.knows_noise_mean else set()
        return Threat(self.place, knows)

    def batch(self, view: View) -> RebuiltRows | None:
        return self._rebuild_all(view) if self.attacks_from(view) else None

    def _rebuild_all(self, view: View) -> RebuiltRows:
        means = view[NoiseMean].means if self.knows_noise_mean else {}
        received = {
            party: {
                layer: (h - means[party][layer] if layer in means.get(party, {}) else h)[: self.rows]
                for layer, h in layers.items()
            }
            for party, layers in view[Embeddings].received.items()
        }
        features = self._jointly(received, view) if self.prior == "pca" else None
        if features is None:
            features = {party: self._rebuild(party, layers, view) for party, layers in received.items()}
        return RebuiltRows(view.ids[: self.rows], next(iter(next(iter(received.values())))), features)

    def _rebuild(self, party: str, received: Layers, view: View) -> OwnColumns:
        if self.mode == "black_box":
            return self._decode(party, received, view)
        compress = view[Compression].rules(party) if self.knows_compression else {}
        model, prior = view[PeerModels].models[party], None
        if self.prior == "auxiliary":
            prior = self._learned_prior(party, received, Fit(model, received, compress), view)
        places = [slice(i, i + _AT_ONCE) for i in range(0, len(next(iter(received.values()))), _AT_ONCE)]
        pieces = [
            Fit(model, {layer: h[at] for layer, h in received.items()}, compress, prior and prior.rows(at)) for at in places
        ]
        with torch.enable_grad(), open_relus(_SLOPE):
            parts = [self._invert(piece, view.rng) for piece in pieces]
        return OwnColumns(torch.cat([part.numeric for part in parts]), torch.cat([part.categorical for part in parts]))

    def _jointly(self, received: Mapping[str, Layers], view: View) -> dict[str, OwnColumns] | None:
        """The most likely columns of all parties at once under a normal prior of auxiliary rows, if messages bear it out."""
        models, known = view[PeerModels].models, self._known(view)
        for party in received:
            if models[party].cardinalities:
                problem = f"it goes with numeric columns alone, and party {party} has categorical ones; use auxiliary"
                raise UserError(problem, key="attack.model_inversion.prior", value="pca")
        rows = {party: known[party].numeric for party in received}
        answers = partial(self._answers, known, view)
        with torch.enable_grad():
            return jointly(received, models, rows, lambda: {party: answers(party) for party in received})

    def _known(self, view: View) -> dict[str, OwnColumns]:
        """Party -> its columns of the auxiliary rows."""
        m = self.auxiliary
        return {p: OwnColumns(rows.numeric[:m], rows.categorical[:m]) for p, rows in view[Auxiliary].columns.items()}

    def _answers(self, known: Mapping[str, OwnColumns], view: View, party: str) -> Layers:
        """What the party would send for its auxiliary rows, less the mean of the noise if that is known."""
        rows = known[party]
        layers = view[Queries].answer[party](rows.numeric, rows.categorical, view.rng)
        means = view[NoiseMean].means.get(party, {}) if self.knows_noise_mean else {}
        return {layer: h - means[layer][:1] if layer in means else h for layer, h in layers.items()}

    def _decode(self, party: str, received: Layers, view: View) -> OwnColumns:
        known = self._known(view)[party]
        answers = view[Queries].answer[party](known.numeric, known.categorical, view.rng)
        h, asked = (torch.cat([layers[layer] for layer in received], dim=1) for layers in (received, answers))
        with torch.enable_grad():
            decoder = fit_decoder(
                asked, known.numeric, known.categorical, view.rng, width=self.decoder_width, steps=self.decoder_steps
            )
        return OwnColumns(*decoder(h))

    def _learned_prior(self, party: str, received: Layers, fit: Fit, view: View) -> AuxiliaryPrior | None:
        known = self._known(view)
        answer, network = partial(self._answers, known, view, party), fit.model.network
        with torch.enable_grad():
            sizes = {"width": self.decoder_width, "steps": self.decoder_steps}
            return auxiliary_prior(received, known[party], answer, network, fit.sent, view.rng, **sizes)

    def _invert(self, fit: Fit, rng: torch.Generator) -> OwnColumns:
        numeric, vectors = self._relax(fit, rng)
        if fit.prior is None and self.strength == "auto" and self.prior != "none" and numeric.shape[1]:
            fit.noise = fit.noise_at(numeric, vectors)
            if is_scaled(fit, self.prior):
                numeric, vectors = self._relax(fit, rng)
        if not fit.tables:
            return OwnColumns(numeric, fit.no_ids(len(numeric)))
        ids = nearest_ids(vectors, fit.tables)
        for _ in range(self.sweeps):
            ids = self._improved_ids(fit, ids, vectors, numeric)
            if numeric.shape[1]:
                numeric = self._refitted(fit, ids, numeric)
        return OwnColumns(numeric, ids.int())

    def _improved_ids(self, fit: Fit, ids: Tensor, vectors: Tensor, numeric: Tensor) -> Tensor:
        """The ids of each column in turn, the numeric columns fixed."""
        slope = partial(fit.slope, numeric)

        def distance(rows: Tensor, candidates: Tensor) -> Tensor:
            return fit.distance(numeric[rows], rows, ids=candidates)

        return improve_ids(ids, fit.tables, vectors, slope, distance, self.candidates)[0]

    def _refitted(self, fit: Fit, ids: Tensor, numeric: Tensor) -> Tensor:
        """The numeric columns, the ids fixed."""
        return self._descend(lambda x, rows: fit.distance(x, rows, ids=ids[rows]), fit, numeric)[0]

    def _relax(self, fit: Fit, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Numeric columns (n, k), and vectors (n, c, dim) read in place of the categorical ones, of no id in particular."""
        n, k = len(fit), len(fit.model.numeric)
        width = fit.centre.numel()
        start = torch.rand(n * self.restarts, k + width, generator=rng, device=rng.device)
        start[:n, :k] = _DARK * start[:n, :k] if fit.area else 0.5  # pictures have a dark ground
        if fit.prior is not None:
            start[:, :k] = fit.prior.mean.repeat(self.restarts, 1)
        start[:, k:] = 0.0
        strength = LEAST["l2"] if self.strength == "auto" else self.strength

        def objective(x: Tensor, rows: Tensor) -> Tensor:
            distance = fit.distance(x[:, :k], rows % n, vectors=fit.vectors(x[:, k:]))
            return distance + (strength * x[:, k:].square().mean(dim=1) if width else 0.0)

        points, values = self._descend(objective, fit, start)
        best = values.view(self.restarts, n).argmin(dim=0) * n + torch.arange(n, device=points.device)
        return points[best, :k], fit.vectors(points[best, k:])

    def _descend(self, objective: Callable[[Tensor, Tensor], Tensor], fit: Fit, start: Tensor) -> tuple[Tensor, Tensor]:
        """Points (n, k) within the box with the least objective plus prior, and its values (n,)."""
        k, beyond = len(fit.model.numeric), start.shape[1] - len(fit.model.numeric)
        low = torch.cat([start.new_zeros(k), start.new_full((beyond,), -_WIDEST)])
        high = torch.cat([start.new_ones(k), start.new_full((beyond,), _WIDEST)])
        return descend(
            lambda x, rows: objective(x, rows) + penalty(x[:, :k], rows % len(fit), fit, self.prior, self.strength),
            start,
            low,
            high,
            steps=self.steps,
            size=self.lr,
            method=self.optimizer,
        )
