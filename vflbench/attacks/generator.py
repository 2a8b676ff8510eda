"""Generator: a network that makes up other parties' columns, trained until the joint model's predictions come out right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.equation_solving import LAYER, Decimals, probabilities
from vflbench.attacks.joint_model import FlatModel, JointModel, from_shares, one_hot
from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Labels, OwnColumns, OwnTop, Predictions
from vflbench.messages.peer_facts import Auxiliary, PeerModels
from vflbench.messages.threat import Seat, Threat, View
from vflbench.models.layers import linear
from vflbench.numerics.optim import AdamSteps
from vflbench.options import Count, NonNegativeInt, Rate, Rows, Steps, Weight, Width, options

_BUCKETS = 8  # coordinates of an own categorical column; ids that are equal modulo this share one
_LONGEST = 100.0  # gradient: longer ones are cut, as predictions of large logits can be steep

_Known = tuple[OwnColumns, Tensor, Tensor, Tensor]


@options
class Generator(Attack):
    """Train a network to generate the unknown columns of a row: x_i = mean over draws of G(o_i, v_i, r), r ~ N(0, I).

        L = sum_i |f(o_i, G(o_i, v_i, r_i)) - v_i|^2 + variance sum_j Var_i(x_ij) + sum_i' |G(o_i', v_i', r_i') - x_i'|^2

    o: the label party's own columns, v: its prediction for the row, f: the joint model, sums over a minibatch of `minibatch`
    rows. The last sum is over as many auxiliary rows i', whose predictions the attacker computes itself; published without
    (auxiliary: 0). G: three layers of width, width / 3 and width / 6 with layer normalisation and ReLU, then a sigmoid of
    each numeric column and a softmax over the ids of each categorical one, which the parties' networks read as a mean of
    their vectors. It is trained on all rows of each audited batch, with the networks that answered it, and goes on in the
    next one from the weights that it has.

    The regulariser keeps G near one answer for all rows. The network fits the predictions and not the truth. If many rows
    have the same prediction, the answer is what the networks and the prior make likely. `equation_solving` finds exact
    columns.

    message, decimals: as in `equation_solving`. sees_predictions: G reads v_i; published without. sees_labels: it also reads
    the class, which the label party knows of training rows. samples: number of draws that are averaged. rows: rows of each
    audited batch that are rebuilt. lr, steps: learning rate and steps of Adam in each audited batch.

    Source: Luo, Wu, Xiao and Ooi, "Feature inference attack on model predictions in vertical federated learning", ICDE 2021,
    section V; widths, 64 rows and the weight 0.25 from the authors' repository xinjianluo/featureinference-vfl, which
    also has lr 1e-4 and sees neither predictions nor auxiliary rows. Auxiliary rows, categories and averages are ours.
    """

    max_classes = math.inf

    rows: Rows = 32
    message: Literal["logits", "probabilities"] = "probabilities"
    decimals: Decimals | None = None
    sees_predictions: bool = True
    sees_labels: bool = False
    variance: Weight = 0.25
    samples: Count = 16
    width: Width = 600
    lr: Rate = 0.001
    steps: Steps = 200
    minibatch: Rows = 64
    auxiliary: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if self.decimals is not None and self.message != "probabilities":
            raise UserError("it goes with message=probabilities", key="decimals", value=self.decimals)
        self.weights: dict[str, Any] = {}

    @property
    def threat(self) -> Threat:
        knows: set[type[Fact]] = {Predictions, PeerModels, OwnTop, OwnColumns}
        knows |= {Auxiliary} if self.auxiliary else set()
        knows |= {Labels} if self.sees_labels else set()
        return Threat(Seat.LABEL, knows)

    def batch(self, view: View) -> RebuiltRows:
        own, logits = view[OwnColumns], view[Predictions].logits
        model = FlatModel(JointModel(view))
        observed = self._read(logits)
        beside = self._beside(observed, view[Labels].classes if self.sees_labels else None)
        known = self._known(view, model) if self.auxiliary else None
        network = self._network(model, own, beside, view.rng)
        with torch.enable_grad():
            self._train(network, model, (own, observed, beside), known, view.rng)
        self.weights = {name: value.detach().clone() for name, value in network.state_dict().items()}
        with torch.no_grad():
            few = torch.arange(len(logits), device=logits.device)[: self.rows]
            given = network.given(own.rows(few), beside[few])
            draws = [network(given, view.rng) for _ in range(self.samples)]
            x = torch.stack([numeric for numeric, _ in draws]).mean(dim=0)
            shares = [torch.stack(parts).mean(dim=0) for parts in zip(*(s for _, s in draws), strict=True)]
            ids = torch.stack([share.argmax(dim=1) for share in shares], dim=1) if shares else few.new_empty(len(few), 0)
            fitted = self._read(from_shares(model, x, shares, own.rows(few)))
            residual = float((fitted - observed[few]).square().mean().sqrt())
        features = {p: OwnColumns(numeric, i.int()) for p, (numeric, i) in model.split(x, ids).items()}
        return RebuiltRows(view.ids[: self.rows], LAYER, features, {"residual": residual})

    def _read(self, logits: Tensor) -> Tensor:
        """What the attacker sees of predictions, (n, outputs)."""
        return logits if self.message == "logits" else probabilities(logits, self.decimals).float()

    def _beside(self, observed: Tensor, classes: Tensor | None) -> Tensor:
        """(n, m) what the network reads of each row beside the own columns."""
        parts = [observed] if self.sees_predictions else []
        if classes is not None:
            parts.append(one_hot(classes[:, None], [max(2, observed.shape[1])]).to(observed.dtype))
        return torch.cat([observed[:, :0], *parts], dim=1)

    def _known(self, view: View, model: FlatModel) -> _Known:
        """Auxiliary rows: the own columns, what the network reads beside them, and the columns of the others."""
        columns = view[Auxiliary].columns
        x, ids = model.joined(columns)
        x, ids = x[: self.auxiliary], ids[: self.auxiliary]
        if not len(x):
            raise UserError("there are no auxiliary rows", key="attack.generator.auxiliary", value=self.auxiliary)
        others = [block for party, block in columns.items() if party not in model.parties]
        nothing = OwnColumns(x.new_empty(len(x), 0), ids.new_empty(len(x), 0))
        own = OwnColumns(others[0].numeric[: len(x)], others[0].categorical[: len(x)]) if others else nothing
        classes = view[Auxiliary].labels[: len(x)] if self.sees_labels else None
        return own, self._beside(self._read(model.in_parts(x, ids, own)), classes), x, ids

    def _network(self, model: FlatModel, own: OwnColumns, beside: Tensor, rng: torch.Generator) -> GeneratorNetwork:
        """A new one, or the one that was trained on earlier batches."""
        own_columns = own.numeric.shape[1], own.categorical.shape[1]
        network = GeneratorNetwork(*own_columns, beside.shape[1], model.columns, model.cardinalities, self.width, rng)
        if self.weights:
            network.load_state_dict(self.weights)
        else:
            network.scale_to(beside)
        return network

    def _train(
        self,
        network: GeneratorNetwork,
        model: FlatModel,
        seen: tuple[OwnColumns, Tensor, Tensor],
        known: _Known | None,
        rng: torch.Generator,
    ) -> None:
        own, observed, beside = seen
        unit = float(observed.std(dim=0).mean()) if self.message == "logits" and len(observed) > 1 else 1.0
        optimizer = AdamSteps(network.parameters(), lr=self.lr)
        for step in range(self.steps):
            at = torch.randperm(len(observed), generator=rng, device=rng.device)[: self.minibatch]
            mine = own.rows(at)
            x, shares = network(network.given(mine, beside[at]), rng)
            made = from_shares(model, x, shares, mine)
            made = made if self.message == "logits" else F.softmax(made, dim=1) if made.shape[1] > 1 else made.sigmoid()
            loss = ((made - observed[at]) / max(unit, 1e-6)).square().sum()
            every = torch.cat([x, *shares], dim=1)
            if self.variance and len(every) > 1:
                loss = loss + self.variance * every.var(dim=0).sum()
            if known is not None:
                loss = loss + self._of_known(network, known, rng)
            optimizer.param_groups[0]["lr"] = self.lr * (1 - step / self.steps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), _LONGEST)
            optimizer.step()

    def _of_known(self, network: GeneratorNetwork, known: _Known, rng: torch.Generator) -> Tensor:
        own, beside, true, ids = known
        at = torch.randint(len(true), (min(self.minibatch, len(true)),), generator=rng, device=rng.device)
        x, shares = network(network.given(own.rows(at), beside[at]), rng)
        wanted = torch.cat([true[at], one_hot(ids[at], network.cardinalities).to(true.dtype)], dim=1)
        return (torch.cat([x, *shares], dim=1) - wanted).square().sum()


class GeneratorNetwork(nn.Module):
    """(own columns, what is read beside them, noise) -> numeric columns (n, k) in [0, 1], and shares of the ids of each
    categorical one.

    own_numeric, own_categories: numbers of own columns. beside: numbers that are read beside them, a prediction for one.
    Noise has as many coordinates as there are unknown columns.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        own_numeric: int,
        own_categories: int,
        beside: int,
        numeric: int,
        cardinalities: Sequence[int],
        width: int,
        rng: torch.Generator,
    ):
        super().__init__()
        self.numeric, self.cardinalities = numeric, list(cardinalities)
        self.noise = numeric + len(cardinalities)
        drawn = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))
        sizes = [own_numeric + _BUCKETS * own_categories + beside + self.noise, width, -(-width // 3), -(-width // 6)]
        layers: list[nn.Module] = []
        for below, above in pairwise(sizes):
            layers += [linear(below, above, drawn), nn.LayerNorm(above), nn.ReLU()]
        self.layers = nn.Sequential(*layers, linear(sizes[-1], numeric + sum(cardinalities), drawn, gain=0.5))
        self.register_buffer("mean", torch.zeros(beside))
        self.register_buffer("scale", torch.ones(beside))
        self.to(rng.device)

    def scale_to(self, beside: Tensor) -> None:
        """What is read beside own columns (n, m) is read less its mean here, and in units of its standard deviation."""
        if beside.shape[1] and len(beside) > 1:
            self.mean, self.scale = beside.mean(dim=0), beside.std(dim=0, correction=int(len(beside) > 1)).clamp_min(1e-3)

    def given(self, own: OwnColumns, beside: Tensor) -> Tensor:
        """(n, inputs) all that it reads of each row but the noise."""
        ids = F.one_hot(own.categorical.long() % _BUCKETS, _BUCKETS).flatten(1).to(beside.dtype)
        return torch.cat([own.numeric, ids, (beside - self.mean) / self.scale], dim=1)

    def forward(self, given: Tensor, rng: torch.Generator) -> tuple[Tensor, list[Tensor]]:
        """Numeric columns (n, k), and (n, ids) for each categorical one, which add up to 1."""
        noise = torch.randn(len(given), self.noise, generator=rng, device=rng.device)
        numeric, *scores = self.layers(torch.cat([given, noise], dim=1)).split([self.numeric, *self.cardinalities], dim=1)
        return torch.sigmoid(numeric), [score.softmax(dim=1) for score in scores]
