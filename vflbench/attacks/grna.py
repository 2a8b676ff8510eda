"""GRNA: a network that makes up other parties' columns, trained until the joint model's predictions come out right."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.esa import LAYER, Decimals, probabilities
from vflbench.attacks.joint_model import Coding, JointModel
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, Fact, Labels, LocalTop, PartyFeatures, PeerModels, Predictions
from vflbench.messages.threat import Role, Threat, View
from vflbench.models.base import linear
from vflbench.numerics.directions import column_vectors
from vflbench.numerics.optim import AdamSteps
from vflbench.options import Count, NonNegativeInt, Rate, Rows, Steps, Weight, Width, options

_LONGEST = 100.0  # gradient: longer ones are cut, as predictions of large logits can be steep

_Known = tuple[PartyFeatures, Tensor, Tensor]


@options
class Grna(Attack):
    """Train a network to generate the unknown columns of a row: x_i = mean over draws of G(o_i, v_i, r), r ~ N(0, I).

        L = sum_i |f(o_i, G(o_i, v_i, r_i)) - v_i|^2 + variance sum_j Var_i(x_ij) + sum_i' |G(o_i', v_i', r_i') - x_i'|^2

    o: the label party's own columns, v: its prediction for the row, f: the joint model, sums over a minibatch of `minibatch`
    rows. The last sum is over as many auxiliary rows i', whose predictions the attacker computes itself; published without
    (auxiliary: 0). G: three layers of width, width / 3 and width / 6 with layer normalisation and ReLU, then a sigmoid of
    each numeric column and a softmax over the ids of each categorical one, which the parties' networks read as a mean of
    their vectors. It is trained on all rows of each audited batch, with the networks that answered it, and goes on in the
    next one from the weights that it has.

    The regulariser keeps G near one answer for all rows. The network fits the predictions and not the truth. If many rows
    have the same prediction, the answer is what the networks and the prior make likely. `esa` finds exact
    columns.

    message, decimals: as in `esa`. sees_predictions: G reads v_i; published without. sees_labels: it also reads
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
        knows: set[type[Fact]] = {Predictions, PeerModels, LocalTop, PartyFeatures}
        knows |= {Auxiliary} if self.auxiliary else set()
        knows |= {Labels} if self.sees_labels else set()
        return Threat(Role.LABEL, knows)

    def batch(self, view: View) -> RebuiltRows:
        local, logits = view[PartyFeatures], view[Predictions].logits
        model = JointModel(view)
        observed = self._read(logits)
        visible = self._visible(observed, view[Labels].classes if self.sees_labels else None)
        known = self._known(view, model) if self.auxiliary else None
        network = GeneratorNetwork(local, visible, model.coding, self.width, view.rng)
        if self.weights:
            network.load_state_dict(self.weights)
        with torch.enable_grad():
            self._train(network, model, (local, observed, visible), known, view.rng)
        self.weights = {name: value.detach().clone() for name, value in network.state_dict().items()}
        with torch.no_grad():
            few = torch.arange(len(logits), device=logits.device)[: self.rows]
            given = network.given(local.rows(few), visible[few])
            made = torch.stack([network(given, view.rng) for _ in range(self.samples)]).mean(dim=0)
            fitted = self._read(model.of_vectors(made, local.rows(few)))
            residual = float((fitted - observed[few]).square().mean().sqrt())
        features = model.split(model.coding.columns(made))
        return RebuiltRows(view.ids[: self.rows], LAYER, features, {"residual": residual})

    def _read(self, logits: Tensor) -> Tensor:
        """What the attacker sees of predictions, (n, outputs)."""
        return logits if self.message == "logits" else probabilities(logits, self.decimals).float()

    def _visible(self, observed: Tensor, classes: Tensor | None) -> Tensor:
        """(n, m) what the network reads of each row beside the own columns."""
        parts = [observed if self.sees_predictions else observed[:, :0]]
        if classes is not None:
            parts.append(F.one_hot(classes, max(2, observed.shape[1])).to(observed.dtype))
        return torch.cat(parts, dim=1)

    def _known(self, view: View, model: JointModel) -> _Known:
        """Auxiliary rows: the own columns, what the network reads beside them, and the columns of the others as vectors."""
        columns, others = view[Auxiliary].columns, model.joined(view[Auxiliary].columns)
        few = torch.arange(len(others.numeric), device=others.numeric.device)[: self.auxiliary]
        if not len(few):
            raise UserError("there are no auxiliary rows", key="attack.grna.auxiliary", value=self.auxiliary)
        others = others.rows(few)
        held = [block for party, block in columns.items() if party not in model.models]
        local = held[0].rows(few) if held else PartyFeatures(others.numeric[:, :0], others.categorical[:, :0])
        classes = view[Auxiliary].labels[few] if self.sees_labels else None
        return local, self._visible(self._read(model.in_parts(others, local)), classes), model.coding.vectors(others)

    def _train(
        self,
        network: GeneratorNetwork,
        model: JointModel,
        seen: tuple[PartyFeatures, Tensor, Tensor],
        known: _Known | None,
        rng: torch.Generator,
    ) -> None:
        local, observed, visible = seen
        unit = float(observed.std(dim=0).mean()) if self.message == "logits" and len(observed) > 1 else 1.0
        optimizer = AdamSteps(network.parameters(), lr=self.lr)
        for step in range(self.steps):
            at = torch.randperm(len(observed), generator=rng, device=rng.device)[: self.minibatch]
            made = network(network.given(local.rows(at), visible[at]), rng)
            read = model.of_vectors(made, local.rows(at))
            read = read if self.message == "logits" else F.softmax(read, dim=1) if read.shape[1] > 1 else read.sigmoid()
            loss = ((read - observed[at]) / max(unit, 1e-6)).square().sum()
            if self.variance and len(made) > 1:
                loss = loss + self.variance * made.var(dim=0).sum()
            if known is not None:
                theirs, given, wanted = known
                drawn = torch.randint(len(wanted), (min(self.minibatch, len(wanted)),), generator=rng, device=rng.device)
                errors = network(network.given(theirs.rows(drawn), given[drawn]), rng) - wanted[drawn]
                loss = loss + errors.square().sum()
            optimizer.param_groups[0]["lr"] = self.lr * (1 - step / self.steps)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), _LONGEST)
            optimizer.step()


class GeneratorNetwork(nn.Module):
    """(own columns, what is read beside them, noise) -> the unknown columns as vectors: numbers in [0, 1], and shares of the
    ids of each categorical one.

    local, visible: of rows as they will be read. What is read beside own columns is read less its mean here, and in units of
    its standard deviation. Noise has as many coordinates as there are unknown columns.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, local: PartyFeatures, visible: Tensor, coding: Coding, width: int, rng: torch.Generator):
        super().__init__()
        self.coding, self.noise = coding, coding.numeric + len(coding.cardinalities)
        drawn = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))
        inputs = column_vectors(local.numeric, local.categorical).shape[1] + visible.shape[1] + self.noise
        layers: list[nn.Module] = []
        for below, above in pairwise([inputs, width, -(-width // 3), -(-width // 6)]):
            layers += [linear(below, above, drawn), nn.LayerNorm(above), nn.ReLU()]
        self.layers = nn.Sequential(*layers, linear(-(-width // 6), coding.width, drawn, gain=0.5))
        several = visible.numel() > visible.shape[1]
        self.register_buffer("mean", visible.mean(dim=0) if several else torch.zeros(visible.shape[1]))
        self.register_buffer("scale", visible.std(dim=0).clamp_min(1e-3) if several else torch.ones(visible.shape[1]))
        self.to(rng.device)

    def given(self, local: PartyFeatures, visible: Tensor) -> Tensor:
        """(n, inputs) all that it reads of each row but the noise."""
        return torch.cat([column_vectors(local.numeric, local.categorical), (visible - self.mean) / self.scale], dim=1)

    def forward(self, given: Tensor, rng: torch.Generator) -> Tensor:
        """(n, width) vectors."""
        noise = torch.randn(len(given), self.noise, generator=rng, device=rng.device)
        return self.coding.decoded(self.layers(torch.cat([given, noise], dim=1)))
