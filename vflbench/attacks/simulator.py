"""Simulator attack: features decoded by a network that learned from a bottom model of the attacker's own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.joint_model import Coding
from vflbench.messages import facts
from vflbench.messages.threat import Role, Threat, View
from vflbench.models.base import convolution, linear
from vflbench.numerics.optim import AdamSteps
from vflbench.numerics.pixels import area_of
from vflbench.options import Rate, Rows, Steps, Weight, Width, options

_LEAK = 0.2  # of the ReLUs of decoders and judges
_ROUNDS_OF_MATCHING, _ROUNDS_OF_MOMENTS = 9, 3
_ROWS_OF_A_CLASS = 8  # on average, from which on rows are aligned
_DIRECTIONS = 96  # of embeddings
_COORDINATES = 40  # principal ones of the columns, in which rows are matched
_RIDGE = 0.02  # of matched rows; in units of the mean variance along the directions
_FIRST_RIDGE = 1e-3  # of class means
_PATCH = 5  # cells, both ways
_PATCH_RIDGE = 1e-3  # in units of the mean square of an embedding
_MOMENTS = 20  # principal coordinates whose products with the columns are compared
_WEIGHT = 0.5  # of such a product, beside a mean
_MOST = 512  # points of a class that are matched at once; the time grows with the cube

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
    the lower cost counts. Until 8 rows of each class have arrived, the answer is the mean of the class.

    rows: rows of each audited batch that are rebuilt. auxiliary: auxiliary rows. width: of the decoders and judges; a
    decoder of embeddings with cells has width / 4 channels.

    Source: Zhu et al., "Passive Inference Attacks on Split Learning via Adversarial Regularization", NDSS 2025 (SDAR,
    arXiv 2310.10483), section IV, and the authors' code for rates; without judges Gao and Zhang, "PCAT: Functionality and
    Data Stealing from Split Learning by Pseudo-Client Attack", USENIX Security 2023. Their networks are other ones.
    """

    max_classes = math.inf
    every_round = True
    threat = Threat(Role.LABEL, {facts.Embeddings, facts.Labels, facts.LocalTop, facts.Auxiliary, facts.PeerArchitectures})

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
        received, classes = view[facts.Embeddings].received, view[facts.Labels].classes
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
            logits = partial(view[facts.LocalTop].logits, columns=rows.get(view.party, _no_columns(len(drawn))))
            with torch.enable_grad():
                weights = (self.embedding_weight, self.row_weight) if self.adversarial else None
                _train(self._mimics, received, classes, rows, labels[drawn], logits, weights)

    def batch(self, view: View) -> RebuiltRows:
        received, n = view[facts.Embeddings].received, self.rows
        classes, h = view[facts.Labels].classes[:n], {party: _joined(layers)[:n] for party, layers in received.items()}
        if self.aligns:
            vectors = self._aligned(h, classes, view)
        else:
            vectors = {party: mimic.decode(h[party], classes) for party, mimic in self._mimics.items()}
        features = {party: self._mimics[party].coding.columns(values) for party, values in vectors.items()}
        return RebuiltRows(view.ids[:n], next(iter(next(iter(received.values())))), features)

    def _aligned(self, h: ByParty, classes: Tensor, view: View) -> ByParty:
        """Columns as vectors by a map that is fitted to embeddings and auxiliary rows that are not paired; at too few of
        them, the mean of the row's class.

        Where every party's embedding has cells, by moments of the newer half (`by_moments`), else by
        matching all parties together (`by_matching`).
        """
        columns, labels = self._auxiliary(view)
        rows = {party: mimic.coding.vectors(columns[party]) for party, mimic in self._mimics.items()}
        met = torch.cat([of_batch for _, of_batch in self._memory])
        if len(met) < _ROWS_OF_A_CLASS * len(labels.unique()):
            return _mean_rows(rows, labels, classes)
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

    def _auxiliary(self, view: View) -> tuple[dict[str, facts.PartyFeatures], Tensor]:
        """Columns by party, and classes (m,)."""
        fact, m = view[facts.Auxiliary], self.auxiliary
        columns = {p: facts.PartyFeatures(rows.numeric[:m], rows.categorical[:m]) for p, rows in fact.columns.items()}
        return columns, fact.labels[:m]

    def _begin(self, received: Mapping[str, facts.Layers], columns: Mapping[str, facts.PartyFeatures], view: View) -> None:
        """Make the networks; after a resume with the weights that they had."""
        drawn = view.rng if not self._saved else torch.Generator(view.rng.device)
        first = {party: {layer: h[:1] for layer, h in layers.items()} for party, layers in received.items()}
        index = torch.zeros(1, dtype=torch.int64, device=view.ids.device)
        local = columns[view.party].rows(index) if view.party in columns else _no_columns(1)
        outputs = view[facts.LocalTop].logits(first, local).shape[1]
        for party, layers in received.items():
            self._mimics[party] = self._mimic(party, layers, columns[party], max(outputs, 2), view, drawn)
        for party, (networks, optimizer) in self._saved.items():
            self._mimics[party].load_state_dict(networks)
            self._mimics[party].optimizer.load_state_dict(optimizer)
        self._saved = {}

    def _mimic(
        self, party: str, sent: facts.Layers, columns: facts.PartyFeatures, classes: int, view: View, rng: torch.Generator
    ) -> Mimic:
        coding = Coding(columns.numeric.shape[1], tuple(int(ids.max()) + 1 for ids in columns.categorical.T))
        inputs, width, known = sum(h.shape[1] for h in sent.values()), self.width, classes if self.adversarial else 0
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        draws = torch.Generator().manual_seed(seed)  # weights are drawn on the CPU
        architecture = view[facts.PeerArchitectures].peers[party]
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


def _no_columns(rows: int) -> facts.PartyFeatures:
    return facts.PartyFeatures(torch.empty(rows, 0), torch.empty(rows, 0, dtype=torch.int32))


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
    received: Mapping[str, facts.Layers],
    classes: Tensor,
    rows: Mapping[str, facts.PartyFeatures],
    classes_of_rows: Tensor,
    logits: Callable[[Mapping[str, facts.Layers]], Tensor],
    weights: tuple[float, float] | None,
) -> None:
    """One step of every network: the simulators and their judges together, then the decoders and theirs.

    received: of the batch. rows: auxiliary ones. logits: of the true top for embeddings. weights: of both deceptions; None
    where nothing is judged.
    """
    simulated: dict[str, facts.Layers] = {}
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


def _error(coding: Coding, outputs: Tensor, columns: facts.PartyFeatures) -> Tensor:
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


def cells(architecture: facts.Architecture, network: nn.Module, width: int) -> LocalGrid | None:
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


def _mean_rows(rows: ByParty, classes_of_rows: Tensor, classes: Tensor) -> dict[str, Tensor]:
    """The mean auxiliary row of each row's class; of a class that no auxiliary row has, the mean of all."""
    of_class = [classes_of_rows == k for k in classes.tolist()]
    counted = [members if bool(members.any()) else ~members for members in of_class]
    return {party: torch.stack([vectors[members].mean(dim=0) for members in counted]) for party, vectors in rows.items()}


@dataclass(frozen=True)
class LocalGrid:
    """An embedding's cells: channels (h w) numbers, channel by channel, and the pixels that lie under it."""

    channels: int
    height: int
    width: int
    pixel_channels: int
    pixel_height: int
    pixel_width: int

    @property
    def steps(self) -> tuple[int, int]:
        """Pixels per cell."""
        return self.pixel_height // self.height, self.pixel_width // self.width

    @property
    def fits(self) -> bool:
        return (self.height * self.steps[0], self.width * self.steps[1]) == (self.pixel_height, self.pixel_width)

    def patches(self, h: Tensor) -> Tensor:
        """(n, cells, channels 25): each cell with its neighbours. h: (n, channels h w)."""
        shaped = h.reshape(-1, self.channels, self.height, self.width)
        return F.unfold(shaped, _PATCH, padding=_PATCH // 2).transpose(1, 2)

    def pixels(self, x: Tensor) -> Tensor:
        """(n, cells, pixels of a cell). x: (n, pixels) as columns."""
        shaped = x.reshape(-1, self.pixel_height, self.pixel_width, self.pixel_channels).permute(0, 3, 1, 2)
        return F.unfold(shaped, self.steps, stride=self.steps).transpose(1, 2)

    def columns(self, cells: Tensor) -> Tensor:
        """The inverse of `pixels`."""
        shaped = F.fold(cells.transpose(1, 2), (self.pixel_height, self.pixel_width), self.steps, stride=self.steps)
        return shaped.permute(0, 2, 3, 1).flatten(1)


@dataclass(frozen=True)
class Affine:
    """x = (h - mean) basis weights + offset. h: (n, d)."""

    mean: Tensor
    basis: Tensor
    weights: Tensor

    def features(self, h: Tensor) -> Tensor:
        return F.pad((h - self.mean) @ self.basis, (0, 1), value=1.0)

    def __call__(self, h: Tensor) -> Tensor:
        return self.features(h) @ self.weights


@dataclass(frozen=True)
class _Local:
    """The same affine map from each cell's neighbourhood to its pixels. scale: of an embedding's numbers."""

    grid: LocalGrid
    scale: Tensor
    weights: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        grid, (kernel, bias) = self.grid, (self.weights[:-1], self.weights[-1])
        cells = (h / self.scale).reshape(-1, grid.channels, grid.height, grid.width)
        out = F.conv2d(cells, kernel.T.reshape(-1, grid.channels, _PATCH, _PATCH), bias, padding=_PATCH // 2)
        return grid.columns(out.flatten(2).transpose(1, 2))


def by_matching(
    h: Tensor,
    classes: Tensor,
    x: Tensor,
    classes_of_x: Tensor,
    rng: torch.Generator,
    *,
    rounds: int,
    starts: Sequence[Tensor] = (),
) -> Affine:
    """A map from h to x such that the rows of each class are spread as those of x are.

        W <- argmin sum_i |W h_i - x_(p(i))|^2 + ridge |W|^2,   p: the cheapest matching of W h_i and x_j of one class

    It begins with the map that takes class means to class means. starts: other guesses (n, k) of the rows to begin with. All
    are followed for a third of the rounds, then the one with the least cost.

    h: (n, d). x: (m, k). classes: (n,), (m,).
    """
    mean = h.mean(dim=0)
    basis = principal(h - mean, min(_DIRECTIONS, *h.shape), rng)
    spread = ((h - mean) @ basis).square().mean().sqrt().clamp_min(1e-12)
    fit = Affine(mean, basis / spread, torch.zeros(0))
    z, centre = fit.features(h), x.mean(dim=0)
    coordinates = principal(x - centre, min(_COORDINATES, *x.shape), rng)
    targets = (x - centre) @ coordinates
    counts, means_of_h, means_of_x = _class_means(z, classes, x, classes_of_x)
    first = z @ ridge(means_of_h, means_of_x, counts, _FIRST_RIDGE)

    def follow(guess: Tensor, count: int) -> tuple[float, Tensor, Tensor]:
        cost, weights = torch.inf, torch.zeros(0)
        for _ in range(count):
            partner = _matched(spread_as((guess - centre) @ coordinates, targets), classes, targets, classes_of_x, rng)
            weights = ridge(z, x[partner], torch.ones(len(z), device=z.device), _RIDGE)
            guess = z @ weights
            cost = float((guess - x[partner]).square().mean())
        return cost, guess, weights

    tried = [follow(guess, max(1, rounds // 3)) for guess in (first, *starts)]
    best = min(range(len(tried)), key=lambda i: tried[i][0])
    _, _, weights = follow(tried[best][1], max(1, rounds - rounds // 3))
    return replace(fit, weights=weights)


def by_moments(
    h: Sequence[Tensor],
    grids: Sequence[LocalGrid],
    classes: Tensor,
    x: Sequence[Tensor],
    classes_of_x: Tensor,
    rng: torch.Generator,
    *,
    rounds: int,
) -> list[_Local]:
    """For each part of a picture a map W from neighbourhoods of cells to pixels, under which moments of every class agree.

        E[g W h | c] = E[g x | c],   g in {1, u_1, .., u_20},   u: principal coordinates of x, or of the present W h

    Each class, each g and each cell is an equation for the same few weights. The first round has g = 1 alone. Principal
    coordinates of W h are given the mean and the variance of those of x.
    """
    whole = torch.cat(list(x), dim=1)
    centre = whole.mean(dim=0)
    coordinates = principal(whole - centre, min(_MOMENTS, *whole.shape), rng)
    targets = (whole - centre) @ coordinates
    scale = targets.std(dim=0).clamp_min(1e-9)
    scales = [part.square().mean().sqrt().clamp_min(1e-12) for part in h]
    maps: list[_Local] = []
    for count in range(rounds):
        if count:
            guess = torch.cat([fit(part) for fit, part in zip(maps, h, strict=True)], dim=1)
            u = spread_as((guess - centre) @ coordinates, targets) / scale
            of_h, of_x = F.pad(u, (1, 0), value=1.0), F.pad(targets / scale, (1, 0), value=1.0)
        else:
            of_h, of_x = h[0].new_ones(len(h[0]), 1), h[0].new_ones(len(targets), 1)
        weight = torch.full((of_h.shape[1],), _WEIGHT, device=of_h.device)
        weight[0] = 1.0
        maps = []
        for part, points, grid, unit in zip(h, x, grids, scales, strict=True):
            left, right, constant, weights = [], [], [], []
            for k in _common(classes, classes_of_x):
                mine, theirs = classes == k, classes_of_x == k
                left.append(of_h[mine].T @ part[mine] / unit / mine.sum())
                right.append(of_x[theirs].T @ points[theirs] / theirs.sum())
                constant.append(of_h[mine].mean(dim=0))
                weights.append(weight * mine.sum() / len(classes))
            z = grid.patches(torch.cat(left))
            z = torch.cat([z, torch.cat(constant)[:, None, None].expand(-1, z.shape[1], 1)], dim=2)
            equation_weights = torch.cat(weights)[:, None].expand(-1, z.shape[1]).flatten()
            solution = ridge(z.flatten(0, 1), grid.pixels(torch.cat(right)).flatten(0, 1), equation_weights, _PATCH_RIDGE)
            maps.append(_Local(grid, unit, solution))
    return maps


def _class_means(h: Tensor, classes: Tensor, x: Tensor, classes_of_x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of h, and the mean of h and of x, of each class that both have. (K,), (K, d), (K, k)."""
    common = _common(classes, classes_of_x)
    counts = torch.tensor([int((classes == k).sum()) for k in common], dtype=h.dtype, device=h.device)
    of_h = [h[classes == k].mean(dim=0) for k in common] or [h.mean(dim=0)]
    of_x = [x[classes_of_x == k].mean(dim=0) for k in common] or [x.mean(dim=0)]
    return (counts if common else h.new_ones(1)), torch.stack(of_h), torch.stack(of_x)


def _common(classes: Tensor, others: Tensor) -> list[int]:
    return sorted(set(classes.tolist()) & set(others.tolist()))


def spread_as(points: Tensor, like: Tensor) -> Tensor:
    """The same points (n, k) with the mean and the standard deviation of `like` (m, k) along every coordinate."""
    spread = points.std(dim=0, correction=0).clamp_min(1e-9)
    return (points - points.mean(dim=0)) / spread * like.std(dim=0, correction=0) + like.mean(dim=0)


def ridge(z: Tensor, targets: Tensor, weights: Tensor, strength: float) -> Tensor:
    """argmin sum_i w_i |z_i B - t_i|^2 + strength sum(w) |B|^2, in float64. z's last coordinate, a constant, is free."""
    z64, weighted = z.double(), (z * weights[:, None]).double()
    penalty = torch.full((z.shape[1],), strength * float(weights.sum()), dtype=torch.float64, device=z.device)
    penalty[-1] = 1e-6 * float(weights.sum())
    return torch.linalg.solve(weighted.T @ z64 + penalty.diag(), weighted.T @ targets.double()).to(z)


def principal(centred: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """(d, count) orthonormal: the leading directions of centred rows (n, d), by subspace iteration in float64."""
    x = centred.double()
    start = torch.randn(x.shape[1], count, generator=rng, device=x.device, dtype=x.dtype)

    def step(basis: Tensor, _: int) -> Tensor:
        return torch.linalg.qr(x.T @ (x @ basis))[0]

    basis = reduce(step, range(4), torch.linalg.qr(start)[0])
    _, _, rotation = torch.linalg.svd(x @ basis, full_matrices=False)
    return (basis @ rotation.T).to(centred)


def _matched(points: Tensor, classes: Tensor, others: Tensor, classes_of_others: Tensor, rng: torch.Generator) -> Tensor:
    """(n,) for each point the place of its partner among the others, of the same class, at the least sum of |p - o|^2.

    Where there are more points than others of a class, each of these is a partner as often as the next, give or take one.
    Where there are fewer, as many others are drawn at random. A class of more than 512 points is matched in chunks of random
    points. Points of a class that no other has are matched with others of any class.

    points: (n, k). others: (m, k). classes: (n,), (m,).
    """
    from scipy.optimize import linear_sum_assignment  # late: it takes half a second to import

    partner = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    for k in classes.unique().tolist():
        members = (classes == k).nonzero()[:, 0]
        candidates = (classes_of_others == k).nonzero()[:, 0]
        if not len(candidates):
            candidates = torch.arange(len(others), device=points.device)
        members = members[torch.randperm(len(members), generator=rng, device=points.device)]
        for chunk in members.split(_MOST):
            order = candidates[torch.randperm(len(candidates), generator=rng, device=points.device)]
            drawn = order.repeat(-(-len(chunk) // len(order)))[: len(chunk)]
            cost = torch.cdist(points[chunk].double(), others[drawn].double()).square()
            rows, columns = linear_sum_assignment(cost.cpu().numpy())
            partner[chunk[torch.from_numpy(rows).to(chunk)]] = drawn[torch.from_numpy(columns).to(chunk)]
    return partner
