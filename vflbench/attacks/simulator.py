"""Simulator attack: features decoded by a network that learned from a bottom model of the attacker's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.joint_model import Coding
from vflbench.attacks.unpaired import LocalGrid, by_matching, by_moments
from vflbench.messages.fact import Layers
from vflbench.messages.facts import Embeddings, Labels, LocalTop, PartyFeatures
from vflbench.messages.peer_facts import Architecture, Auxiliary, PeerArchitectures
from vflbench.messages.threat import Role, Threat, View
from vflbench.models.layers import convolution, linear
from vflbench.numerics.optim import AdamSteps
from vflbench.numerics.pixels import area_of
from vflbench.options import Rate, Rows, Steps, Weight, Width, options

_LEAK = 0.2  # of the ReLUs of decoders and judges
_ROUNDS_OF_MATCHING, _ROUNDS_OF_MOMENTS = 9, 3
_ROWS_OF_A_CLASS = 8  # on average, from which on rows are aligned

ByParty = Mapping[str, Tensor]
"""Party -> (n, d) embeddings, or columns as vectors."""


@options
class Simulator(Attack):
    """Train a bottom of its own until the true top can't distinguish its embeddings from real ones, and a decoder that
    inverts it.

        simulator  s:   min  CE(top(s(x')), y') + w1 BCE(J(s(x'), y'), real)
        judge      J:   min  BCE(J(h, y), real) + BCE(J(s(x'), y'), false)
        decoder    D:   min  |D(s(x'), y') - x'|^2 + w2 BCE(R(D(h, y), y), real)
        its judge  R:   min  BCE(R(x', y'), real) + BCE(R(D(h, y), y), false)

    h, y: the received embeddings of a batch and their classes; x', y': auxiliary rows, as many, drawn at random in each
    step. After every round: s and J from the same values, then D and R from the same values with the new s, `steps` times.
    Each has an Adam of its own, of rate lr for s, w1 lr for J, lr / 2 for D, w2 lr / 2 for R. The top is the one that
    answered the batch and never moves. All other parties are simulated at once, each with networks of its own; the label
    party's own columns of auxiliary rows go into the top. |.|^2 is a mean over numeric columns; categorical columns count by
    their cross-entropy. As published, w1 = 0.02, w2 = 1e-5, lr = 1e-3, 20,000 steps of 128 rows, and batch normalisation in
    D, J and R, which is not used here.

    adversarial: false leaves out J, R and the class at the decoder, which is PCAT.

    align: our addition, used with adversarial alone. The simulator's embeddings are unpaired with real ones, and a run of
    some hundred steps doesn't bring them together. The attacker also has the embeddings of the last `memory` rows with their
    classes, and auxiliary rows with theirs. A map W is fitted such that W h and x' agree class by class. If the bottom is
    known to end in a convolution over pixels, W is the same 5 x 5 filter everywhere, and all moments E[g W h | c] = E[g x' |
    c] are linear equations for it. Otherwise rows of one class are matched one to one at the least cost, W is fitted to the
    pairs, and these steps are repeated. They start from the class means and from the decoder's answers, and the result with
    the lower cost counts. Until 8 rows of each class have arrived, the answer is the mean of the class
    (`attacks.unpaired`).

    rows: rows of each audited batch that are rebuilt. auxiliary: auxiliary rows. width: of the decoders and judges; a
    decoder of embeddings with cells has width / 4 channels.

    Source: Zhu et al., "Passive Inference Attacks on Split Learning via Adversarial Regularization", NDSS 2025 (SDAR,
    arXiv 2310.10483), section IV, and the authors' code for rates; without judges Gao and Zhang, "PCAT: Functionality and
    Data Stealing from Split Learning by Pseudo-Client Attack", USENIX Security 2023. Their networks are other ones.
    """

    max_classes = math.inf
    every_round = True
    threat = Threat(Role.LABEL, {Embeddings, Labels, LocalTop, Auxiliary, PeerArchitectures})

    adversarial: bool = True
    align: bool = True
    rows: Rows = 32
    auxiliary: Rows = 1000
    lr: Rate = 1e-3
    steps: Steps = 1
    width: Width = 128
    embedding_weight: Weight = 0.02
    row_weight: Weight = 1e-5
    memory: Rows = 4000

    def __post_init__(self) -> None:
        self._memory: list[tuple[ByParty, Tensor]] = []  # the batches received last: embeddings and classes
        self._mimics: dict[str, Mimic] = {}
        self._grids: dict[str, LocalGrid] = {}
        self._saved: dict[str, Any] = {}

    @property
    def aligns(self) -> bool:
        return self.adversarial and self.align

    def observe(self, view: View) -> None:
        """Take steps with this batch."""
        received, classes = view[Embeddings].received, view[Labels].classes
        columns, labels = self._auxiliary(view)
        if not self._mimics:
            self._begin(received, columns, view)
        if self.aligns:
            self._memory.append(({party: _joined(layers) for party, layers in received.items()}, classes))
            while sum(len(of_batch) for _, of_batch in self._memory[1:]) >= self.memory:
                self._memory.pop(0)
        for _ in range(self.steps):
            drawn = torch.randint(len(labels), (len(classes),), generator=view.rng, device=labels.device)
            rows = {party: one.rows(drawn) for party, one in columns.items()}
            logits = partial(view[LocalTop].logits, columns=rows.get(view.party, _no_columns(len(drawn))))
            with torch.enable_grad():
                weights = (self.embedding_weight, self.row_weight) if self.adversarial else None
                _train(self._mimics, received, classes, rows, labels[drawn], logits, weights)

    def batch(self, view: View) -> RebuiltRows:
        received, n = view[Embeddings].received, self.rows
        classes, h = view[Labels].classes[:n], {party: _joined(layers)[:n] for party, layers in received.items()}
        if self.aligns:
            vectors = self._aligned(h, classes, view)
        else:
            vectors = {party: mimic.decode(h[party], classes) for party, mimic in self._mimics.items()}
        features = {party: self._mimics[party].coding.columns(values) for party, values in vectors.items()}
        return RebuiltRows(view.ids[:n], next(iter(next(iter(received.values())))), features)

    def _aligned(self, h: ByParty, classes: Tensor, view: View) -> ByParty:
        """Columns as vectors by a map that is fitted to embeddings and auxiliary rows that are not paired; at too few of
        them, the mean of the row's class.

        Where every party's embedding has cells, by moments of the newer half (`attacks.unpaired.by_moments`), else by
        matching all parties together (`attacks.unpaired.by_matching`).
        """
        columns, labels = self._auxiliary(view)
        rows = {party: mimic.coding.vectors(columns[party]) for party, mimic in self._mimics.items()}
        met = torch.cat([of_batch for _, of_batch in self._memory])
        if len(met) < _ROWS_OF_A_CLASS * len(labels.unique()):
            return _class_means(rows, labels, classes)
        seen = {party: torch.cat([of_batch[party] for of_batch, _ in self._memory]) for party in rows}
        if self._grids.keys() == rows.keys():
            newer = slice(-max(1, min(len(met), self.memory // 2)), None)
            arrived = [seen[party][newer] for party in rows], [self._grids[party] for party in rows], met[newer]
            maps = by_moments(*arrived, list(rows.values()), labels, view.rng, rounds=_ROUNDS_OF_MOMENTS)
            return {party: fit(h[party]) for party, fit in zip(rows, maps, strict=True)}
        start = _joined({party: mimic.decode(seen[party], met) for party, mimic in self._mimics.items()})
        fit = by_matching(_joined(seen), met, _joined(rows), labels, view.rng, rounds=_ROUNDS_OF_MATCHING, starts=[start])
        parts = fit(_joined(h, rows)).split([values.shape[1] for values in rows.values()], dim=1)
        return dict(zip(rows, parts, strict=True))

    def _auxiliary(self, view: View) -> tuple[dict[str, PartyFeatures], Tensor]:
        """Columns by party, and classes (m,)."""
        fact, m = view[Auxiliary], self.auxiliary
        columns = {p: PartyFeatures(rows.numeric[:m], rows.categorical[:m]) for p, rows in fact.columns.items()}
        return columns, fact.labels[:m]

    def _begin(self, received: Mapping[str, Layers], columns: Mapping[str, PartyFeatures], view: View) -> None:
        """Make the networks; after a resume with the weights that they had."""
        drawn = view.rng if not self._saved else torch.Generator(view.rng.device)
        first = {party: {layer: h[:1] for layer, h in layers.items()} for party, layers in received.items()}
        index = torch.zeros(1, dtype=torch.int64, device=view.ids.device)
        local = columns[view.party].rows(index) if view.party in columns else _no_columns(1)
        outputs = view[LocalTop].logits(first, local).shape[1]
        for party, layers in received.items():
            self._mimics[party] = self._mimic(party, layers, columns[party], max(outputs, 2), view, drawn)
        for party, (networks, optimizer) in self._saved.items():
            self._mimics[party].load_state_dict(networks)
            self._mimics[party].optimizer.load_state_dict(optimizer)
        self._saved = {}

    def _mimic(
        self, party: str, sent: Layers, columns: PartyFeatures, classes: int, view: View, rng: torch.Generator
    ) -> Mimic:
        coding = Coding(columns.numeric.shape[1], tuple(int(ids.max()) + 1 for ids in columns.categorical.T))
        inputs, width, known = sum(h.shape[1] for h in sent.values()), self.width, classes if self.adversarial else 0
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        draws = torch.Generator().manual_seed(seed)  # weights are drawn on the CPU
        architecture = view[PeerArchitectures].peers[party]
        bottom = architecture.build(rng)
        grid = cells(architecture, bottom, inputs)
        if grid is None:
            decoder: Dense | Convolutional = Dense(inputs, coding.width, known, width, draws)
        else:
            self._grids[party] = grid
            decoder = Convolutional(grid, known, max(1, width // 4), draws)
        judge, judge_of_rows = (Dense(size, 1, classes, width, draws) for size in (inputs, coding.width))
        networks = {"bottom": bottom, "decoder": decoder, "judge": judge, "judge_of_rows": judge_of_rows}
        rates = [self.lr * share for share in (1, 0.5, self.embedding_weight, self.row_weight / 2)]
        return Mimic(coding, networks, rates, view.ids.device)

    def state(self) -> dict[str, Any]:
        networks = {party: (mimic.state_dict(), mimic.optimizer.state_dict()) for party, mimic in self._mimics.items()}
        return {"memory": self._memory, "networks": networks or self._saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The networks are made when the next batch comes, which says how large they are."""
        state = copy.deepcopy(dict(state))
        self._memory, self._mimics, self._grids, self._saved = state["memory"], {}, {}, state["networks"]


def _no_columns(rows: int) -> PartyFeatures:
    return PartyFeatures(torch.empty(rows, 0), torch.empty(rows, 0, dtype=torch.int32))


class Dense(nn.Sequential):
    """(inputs, class) -> two leaky ReLU layers -> outputs. classes: 0 to leave the class out."""

    def __init__(self, inputs: int, outputs: int, classes: int, width: int, rng: torch.Generator):
        inner = [linear(size, width, rng, math.sqrt(2)) for size in (inputs + classes, width)]
        super().__init__(inner[0], nn.LeakyReLU(_LEAK), inner[1], nn.LeakyReLU(_LEAK), linear(width, outputs, rng))
        self.classes = classes

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:  # type: ignore[override]
        class_inputs = [F.one_hot(classes, self.classes).to(x.dtype)] if self.classes else []
        outputs: Tensor = super().forward(torch.cat([x, *class_inputs], dim=1))
        return outputs


class Convolutional(nn.Module):
    """(cells of an embedding, a plane of each class) -> 3 x 3 convolutions with ReLU, enlarged to pixels -> pixels."""

    def __init__(self, grid: LocalGrid, classes: int, width: int, rng: torch.Generator):
        super().__init__()
        self.grid, self.classes = grid, classes
        self.first = convolution(grid.channels + classes, width, 1, rng, math.sqrt(2))
        self.inner = convolution(width, width, 1, rng, math.sqrt(2))
        self.last = convolution(width, grid.pixel_channels * math.prod(grid.steps), 1, rng)

    def forward(self, h: Tensor, classes: Tensor) -> Tensor:
        grid = self.grid
        x = h.reshape(-1, grid.channels, grid.height, grid.width)
        if self.classes:
            planes = F.one_hot(classes, self.classes).to(x.dtype)[:, :, None, None]
            x = torch.cat([x, planes.expand(-1, -1, grid.height, grid.width)], dim=1)
        x = F.relu(self.inner(F.relu(self.first(x))))
        return grid.columns(self.last(x).flatten(2).transpose(1, 2))


class Mimic(nn.Module):
    """What the attacker trains about one party. Nothing in it draws while it learns: it is in evaluation mode.

    bottom: the simulator of its network. decoder: embeddings -> columns. judge: tells received embeddings from simulated
    ones. judge_of_rows: tells auxiliary rows from decoded ones. optimizer: one Adam, with a rate for each of them.
    """

    bottom: Any
    decoder: Any
    judge: Any
    judge_of_rows: Any

    def __init__(self, coding: Coding, networks: Mapping[str, nn.Module], rates: Sequence[float], device: torch.device):
        super().__init__()
        self.coding = coding
        for name, network in networks.items():
            self.add_module(name, network)
        self.to(device).requires_grad_(True).eval()
        groups = [{"params": network.parameters(), "lr": rate} for network, rate in zip(self.children(), rates, strict=True)]
        self.optimizer = AdamSteps(groups)

    @torch.no_grad()
    def decode(self, h: Tensor, classes: Tensor) -> Tensor:
        """(n, width) vectors of columns from embeddings (n, d)."""
        return self.coding.decoded(self.decoder(h, classes))


def _joined(parts: Mapping[str, Tensor], order: Mapping[str, Tensor] | None = None) -> Tensor:
    """(n, d) all parts side by side, in the order of these or of another mapping."""
    return torch.cat([parts[name] for name in order or parts], dim=1)


def _train(
    mimics: Mapping[str, Mimic],
    received: Mapping[str, Layers],
    classes: Tensor,
    rows: Mapping[str, PartyFeatures],
    classes_of_rows: Tensor,
    logits: Callable[[Mapping[str, Layers]], Tensor],
    weights: tuple[float, float] | None,
) -> None:
    """One step of every network: the simulators and their judges together, then the decoders and theirs.

    received: of the batch. rows: auxiliary ones. logits: of the true top for embeddings. weights: of both deceptions; None
    where nothing is judged.
    """
    simulated: dict[str, Layers] = {}
    for party, mimic in mimics.items():
        layers = mimic.bottom(rows[party].numeric, rows[party].categorical)
        simulated[party] = {layer: layers[layer] for layer in received[party]}
    entropy = classification(logits(simulated), classes_of_rows)
    losses: list[tuple[Any, Tensor]] = []
    for party, mimic in mimics.items():
        loss = entropy
        if weights is not None:
            verdict = mimic.judge(_joined(simulated[party]), classes_of_rows)
            real = mimic.judge(_joined(received[party]), classes)
            loss = entropy + weights[0] * _taken_for(verdict, 1.0)
            losses.append((mimic.judge, _taken_for(real, 1.0) + _taken_for(verdict, 0.0)))
        losses.append((mimic.bottom, loss))
    _step_together(mimics, losses)
    losses = []
    for party, mimic in mimics.items():
        with torch.no_grad():
            fake = _joined(mimic.bottom(rows[party].numeric, rows[party].categorical), received[party])
        loss = _error(mimic.coding, mimic.decoder(fake, classes_of_rows), rows[party])
        if weights is not None:
            decoded = mimic.coding.decoded(mimic.decoder(_joined(received[party]), classes))
            verdict = mimic.judge_of_rows(decoded, classes)
            real = mimic.judge_of_rows(mimic.coding.vectors(rows[party]), classes_of_rows)
            loss = loss + weights[1] * _taken_for(verdict, 1.0)
            losses.append((mimic.judge_of_rows, _taken_for(real, 1.0) + _taken_for(verdict, 0.0)))
        losses.append((mimic.decoder, loss))
    _step_together(mimics, losses)


def classification(logits: Tensor, classes: Tensor) -> Tensor:
    """Mean cross-entropy. logits: (n, 1) for two classes, (n, K) for more."""
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], classes.to(logits.dtype))
    return F.cross_entropy(logits, classes)


def _taken_for(verdict: Tensor, real: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(verdict, torch.full_like(verdict, real))


def _error(coding: Coding, outputs: Tensor, columns: PartyFeatures) -> Tensor:
    """Mean squared error of numeric columns plus the mean cross-entropy of each categorical one."""
    numeric, *logits = coding.split(outputs)
    entropies = [F.cross_entropy(part, ids.long()) for part, ids in zip(logits, columns.categorical.T, strict=True)]
    squares = [(torch.sigmoid(numeric) - columns.numeric).square().mean()] if coding.numeric else []
    return torch.stack([*squares, *entropies]).sum()


def _step_together(mimics: Mapping[str, Mimic], losses: Sequence[tuple[nn.Module, Tensor]]) -> None:
    """All gradients are taken before any network moves; a loss moves the weights of its own network alone."""
    for network, loss in losses:
        weights = list(network.parameters())
        for weight, g in zip(weights, torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True), strict=True):
            weight.grad = g
    for mimic in mimics.values():
        mimic.optimizer.step()
        mimic.optimizer.zero_grad(set_to_none=True)


def cells(architecture: Architecture, network: nn.Module, width: int) -> LocalGrid | None:
    """The cells of an embedding of this width, if a convolution over the pixels of a rectangle puts it out; else None."""
    area = None if architecture.cardinalities else area_of(architecture.numeric)
    if area is None:
        return None
    shapes: list[torch.Size | None] = []

    def note(module: nn.Module, _: Any, output: Tensor) -> None:
        shapes.append(output.shape[1:] if isinstance(module, nn.Conv2d) else None)

    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    device = next(network.parameters()).device
    no_ids = torch.zeros(1, 0, dtype=torch.int32, device=device)
    with torch.no_grad():
        network(torch.zeros(1, len(architecture.numeric), device=device), no_ids)
    for hook in hooks:
        hook.remove()
    if not shapes or shapes[-1] is None or len(shapes[-1]) != 3 or shapes[-1].numel() != width:
        return None
    channels, height, across = shapes[-1]
    if height > area.height or across > area.width:
        return None
    grid = LocalGrid(channels, height, across, area.channels, area.height, area.width)
    return grid if grid.fits else None


def _class_means(rows: ByParty, classes_of_rows: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """The mean auxiliary row of each row's class; of a class that no auxiliary row has, the mean of all."""
    of_class = [classes_of_rows == k for k in classes.tolist()]
    counted = [members if bool(members.any()) else ~members for members in of_class]
    return {party: torch.stack([vectors[members].mean(dim=0) for members in counted]) for party, vectors in rows.items()}
