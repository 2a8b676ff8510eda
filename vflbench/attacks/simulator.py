"""Simulator attack: features decoded by a network that learned from a bottom model of the attacker's own."""

import copy
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.attacks.simulator_alignment import Memory, aligned, cells, class_means
from vflbench.attacks.simulator_networks import Coding, Convolutional, Dense, Learner, Mimic, PlainBottom, joined, train
from vflbench.messages.fact import Fact, Layers
from vflbench.messages.facts import Embeddings, Labels, OwnColumns, OwnTop
from vflbench.messages.peer_facts import Auxiliary, PeerArchitectures
from vflbench.messages.threat import Seat, Threat, View
from vflbench.numerics.unpaired import Grid
from vflbench.options import Rate, Rows, Steps, Weight, Width, options

_Saved = dict[str, Any]


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

    align: our addition; auto: with adversarial alone. The simulator's embeddings are unpaired with real ones, and a run of
    some hundred steps doesn't bring them together. The attacker also has the embeddings of the last `memory` rows with their
    classes, and auxiliary rows with theirs. A map W is fitted such that W h and x' agree class by class. If the bottom is
    known to end in a convolution over pixels, W is the same 5 x 5 filter everywhere, and all moments E[g W h | c] = E[g x' |
    c] are linear equations for it. Otherwise rows of one class are matched one to one at the least cost, W is fitted to the
    pairs, and these steps are repeated. They start from the class means and from the decoder's answers, and the result with
    the lower cost counts. Until 8 rows of each class have arrived, the answer is the mean of the class
    (`numerics.unpaired`).

    knows_architecture: false replaces the copy of the party's architecture, of new weights, by two ReLU layers of `width`.
    rows: rows of each audited batch that are rebuilt. auxiliary: auxiliary rows. width: of the decoders and judges; a
    decoder of embeddings with cells has width / 4 channels.

    Source: Zhu et al., "Passive Inference Attacks on Split Learning via Adversarial Regularization", NDSS 2025 (SDAR,
    arXiv 2310.10483), section IV, and the authors' code for rates; without judges Gao and Zhang, "PCAT: Functionality and
    Data Stealing from Split Learning by Pseudo-Client Attack", USENIX Security 2023. Their networks are other ones.
    """

    max_classes = math.inf
    every_round = True

    adversarial: bool = True
    align: bool | Literal["auto"] = "auto"
    knows_architecture: bool = True
    rows: Rows = 32
    auxiliary: Rows = 1000
    lr: Rate = 1e-3
    steps: Steps = 1
    width: Width = 128
    embedding_weight: Weight = 0.02
    row_weight: Weight = 1e-5
    memory: Rows = 4000

    def __post_init__(self) -> None:
        self._memory = Memory(self.memory)
        self._mimics: dict[str, Mimic] = {}
        self._grids: dict[str, Grid] = {}
        self._saved: _Saved = {}

    @property
    def threat(self) -> Threat:
        knows: set[type[Fact]] = {Embeddings, Labels, OwnTop, Auxiliary}
        return Threat(Seat.LABEL, knows | ({PeerArchitectures} if self.knows_architecture else set()))

    @property
    def aligns(self) -> bool:
        return self.adversarial if self.align == "auto" else self.align

    def batch(self, view: View) -> RebuiltRows:
        received, classes, n = view[Embeddings].received, view[Labels].classes, self.rows
        h = {party: joined(layers, layers) for party, layers in received.items()}
        vectors = {party: mimic.decode(h[party][:n], classes[:n]) for party, mimic in self._mimics.items()}
        if self.aligns:
            vectors = self._aligned({party: values[:n] for party, values in h.items()}, classes[:n], view)
        features = {party: self._mimics[party].coding.columns(values) for party, values in vectors.items()}
        return RebuiltRows(view.ids[:n], next(iter(next(iter(received.values())))), features)

    def _aligned(self, h: Mapping[str, Tensor], classes: Tensor, view: View) -> dict[str, Tensor]:
        columns, labels = self._auxiliary(view)
        rows = {party: mimic.coding.vectors(columns[party]) for party, mimic in self._mimics.items()}
        start = {party: mimic.decode(self._memory.of(party), self._memory.classes) for party, mimic in self._mimics.items()}
        decode = aligned(self._memory, rows, labels, self._grids, [start], view.rng)
        return class_means(rows, labels, classes) if decode is None else decode(h)

    def _auxiliary(self, view: View) -> tuple[dict[str, OwnColumns], Tensor]:
        """Columns by party, and classes (m,)."""
        fact, m = view[Auxiliary], self.auxiliary
        columns = {p: OwnColumns(rows.numeric[:m], rows.categorical[:m]) for p, rows in fact.columns.items()}
        return columns, fact.labels[:m]

    def observe(self, view: View) -> None:
        """Take steps with this batch."""
        received, classes = dict(view[Embeddings].received), view[Labels].classes
        columns, labels = self._auxiliary(view)
        if not self._mimics:
            self._begin(received, columns, view)
        if self.aligns:
            self._memory.add({party: joined(layers, layers) for party, layers in received.items()}, classes)
        top = view[OwnTop]
        for _ in range(self.steps):
            drawn = torch.randint(len(labels), (len(classes),), generator=view.rng, device=labels.device)
            rows = {party: one.rows(drawn) for party, one in columns.items()}
            own = rows.get(view.party, _no_columns(len(drawn)))

            def logits(embeddings: Mapping[str, Layers], own: OwnColumns = own) -> Tensor:
                return top.logits(embeddings, own)

            with torch.enable_grad():
                weights = (self.embedding_weight, self.row_weight)
                train(self._mimics, received, classes, rows, labels[drawn], logits, weights)

    def _begin(self, received: Mapping[str, Layers], columns: Mapping[str, OwnColumns], view: View) -> None:
        """Make the networks; after a resume with the weights that they had."""
        drawn = view.rng if not self._saved else torch.Generator(view.rng.device)
        first = {party: {layer: h[:1] for layer, h in layers.items()} for party, layers in received.items()}
        own = (
            columns[view.party].rows(torch.zeros(1, dtype=torch.int64, device=view.ids.device))
            if view.party in columns
            else _no_columns(1)
        )
        outputs = view[OwnTop].logits(first, own).shape[1]
        for party, layers in received.items():
            self._mimics[party] = self._mimic(party, layers, columns[party], max(outputs, 2), view, drawn)
        for party, states in self._saved.items():
            for name, learner in self._mimics[party].learners.items():
                learner.restore(states[name])
        self._saved = {}

    def _mimic(self, party: str, sent: Layers, columns: OwnColumns, classes: int, view: View, rng: torch.Generator) -> Mimic:
        coding = Coding(columns.numeric.shape[1], tuple(int(ids.max()) + 1 for ids in columns.categorical.T))
        inputs, width = sum(h.shape[1] for h in sent.values()), self.width
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        draws = torch.Generator().manual_seed(seed)  # weights are drawn on the CPU
        if self.knows_architecture:
            architecture = view[PeerArchitectures].peers[party]
            bottom = architecture.build(rng)
            grid = cells(architecture, bottom, inputs)
            if grid is not None:
                self._grids[party] = grid
        else:
            bottom, grid = PlainBottom(coding, sent, width, draws), None
        known = classes if self.adversarial else 0
        if grid is None:
            decoder: Dense | Convolutional = Dense(inputs, coding.width, known, width, draws)
        else:
            decoder = Convolutional(grid, known, max(1, width // 4), draws)
        judges = [Dense(size, 1, classes, width, draws) if self.adversarial else None for size in (inputs, coding.width)]
        w1, w2, lr, device = self.embedding_weight, self.row_weight, self.lr, view.ids.device
        rates = (lr, lr / 2, w1 * lr, w2 * lr / 2)
        of_bottom, of_decoder = (
            Learner(one.to(device), rate) for one, rate in zip((bottom, decoder), rates[:2], strict=True)
        )
        of_judges = [
            None if one is None else Learner(one.to(device), rate) for one, rate in zip(judges, rates[2:], strict=True)
        ]
        return Mimic(coding, of_bottom, of_decoder, *of_judges)

    def state(self) -> dict[str, Any]:
        networks = {
            party: {name: learner.state() for name, learner in mimic.learners.items()}
            for party, mimic in self._mimics.items()
        }
        return {"memory": self._memory.state(), "networks": networks or self._saved}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The networks are made when the next batch comes, which says how large they are."""
        self._memory.restore(state["memory"])
        self._mimics, self._grids, self._saved = {}, {}, copy.deepcopy(dict(state["networks"]))


def _no_columns(rows: int) -> OwnColumns:
    return OwnColumns(torch.empty(rows, 0), torch.empty(rows, 0, dtype=torch.int32))
