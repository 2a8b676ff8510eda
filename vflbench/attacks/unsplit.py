"""UnSplit: features and a bottom model that together give the embeddings that were received."""

import math

import torch
from torch import Tensor, nn

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.model_inversion import nearest_ids, total_variation
from vflbench.messages.facts import Architecture, Embeddings, Layers, PartyFeatures, PeerArchitectures
from vflbench.messages.threat import Role, Threat, View
from vflbench.numerics.optim import AdamSteps
from vflbench.numerics.pixels import area_of
from vflbench.options import Count, Rate, Rows, Steps, Weight, options


@options
class Unsplit(Attack):
    """Optimize the features and the weights of a new network of the party's architecture, in turns.

        x <- x - step d/dx [|f(x; w) - h|^2 + smoothness TV(x) + strength |x|^2],   w <- w - step d/dw |f(x; w) - h|^2

    x begins at 1/2 and stays in [0, 1], w as a network does before training; |.|^2 are means. h: the embeddings of one
    batch, in units of their root mean square. The attacker knows the architecture and nothing else of the party: no weights,
    no row, no label. TV: total variation of pictures; other columns have none. Each batch gets a new network, because the
    party's network changes. Categorical columns are relaxed to vectors; the ids are those of the nearest vectors in the
    attacker's own tables, which is a guess, as nothing says which id has which vector.

    x is determined only up to a symmetry of the architecture. A dense first layer gives the same output for (x A, A^-1 w) as
    for (x, w), for any invertible A. So pixels may come out permuted, mixed or with another sign, and figures that compare
    pixel by pixel show it. A convolution has few symmetries, because it must read all places with the same few weights.

    rows: rows of each audited batch that are rebuilt; the whole batch is fitted. rounds: number of rounds. steps: steps of
    each round, on x and on w. lr: learning rate of x; weight_lr: that of w, both with AMSGrad.

    Source: Erdogan, Küpçü and Çiçek, "UnSplit: Data-Oblivious Model Inversion, Model Stealing, and Label Inference Attacks
    Against Split Learning", WPES 2022 (arXiv 2108.09033), algorithm 1, with 1000 rounds of 100 steps, both rates 0.001,
    smoothness 0.1 and strength 1. Its label inference is left out: here the label party attacks, who has the labels.
    """

    max_classes = math.inf

    rows: Rows = 32
    rounds: Count = 20
    steps: Steps = 10
    lr: Rate = 0.02
    weight_lr: Rate = 1e-3
    smoothness: Weight = 0.1
    strength: Weight = 0.0

    threat = Threat(Role.LABEL, {Embeddings, PeerArchitectures})

    def batch(self, view: View) -> RebuiltRows:
        received, peers = view[Embeddings].received, view[PeerArchitectures].peers
        features = {party: self._rebuild(peers[party], layers, view.rng) for party, layers in received.items()}
        return RebuiltRows(view.ids[: self.rows], next(iter(next(iter(received.values())))), features)

    def _rebuild(self, architecture: Architecture, received: Layers, rng: torch.Generator) -> PartyFeatures:
        clone: nn.Module = architecture.build(rng).eval().requires_grad_(True)
        targets = {layer: h / _unit(h) for layer, h in received.items()}
        area, h = area_of(architecture.numeric), next(iter(received.values()))
        x = torch.full((len(h), len(architecture.numeric)), 0.5, device=h.device, requires_grad=True)
        tables = [table.detach().clone() for table in clone.tables()]  # type: ignore[operator]
        middle = torch.stack([table.mean(dim=0) for table in tables]) if tables else h.new_zeros(0, 0)
        vectors = middle.expand(len(h), *middle.shape).clone().requires_grad_()

        def misfit() -> Tensor:
            layers = clone.from_vectors(x, vectors) if tables else clone(x, _no_ids(len(h), h))  # type: ignore[operator]
            return torch.stack(
                [(layers[name] / _unit(h) - targets[name]).square().mean() for name, h in received.items()]
            ).sum()

        def penalised() -> Tensor:
            smooth = total_variation(area.picture(x)).mean() if area is not None else x.new_zeros(())
            return misfit() + self.smoothness * smooth + self.strength * (x.square().mean() if x.numel() else 0.0)

        inputs = [part for part in (x, vectors) if part.numel()]
        weights = [part for part in clone.parameters() if part.requires_grad]
        turns = (
            (inputs, AdamSteps(inputs, lr=self.lr, amsgrad=True), penalised),
            (weights, AdamSteps(weights, lr=self.weight_lr, amsgrad=True), misfit),
        )
        with torch.enable_grad():
            for _ in range(self.rounds):
                for moved, optimizer, loss in turns:
                    for _ in range(self.steps):
                        for part, g in zip(moved, torch.autograd.grad(loss(), moved, allow_unused=True), strict=True):
                            part.grad = g
                        optimizer.step()
                        with torch.no_grad():
                            x.clamp_(0, 1)
        n = self.rows
        ids = nearest_ids(vectors[:n].detach(), tables).int() if tables else _no_ids(len(x[:n]), h)
        return PartyFeatures(x[:n].detach(), ids)


def _unit(h: Tensor) -> Tensor:
    return h.square().mean().sqrt().clamp_min(1e-12)


def _no_ids(rows: int, like: Tensor) -> Tensor:
    return torch.empty(rows, 0, dtype=torch.int32, device=like.device)
