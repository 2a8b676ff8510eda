"""Attacks at their posts: what they may see, their answers, and the truth those are held against."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack, RebuiltBatch
from vflbench.data.rows import EncodedRows
from vflbench.data.table import LABEL_PARTY, VerticalTable
from vflbench.generators import Generators
from vflbench.messages.transcript import Knowledge, OwnFeatures, Seat, Transcript
from vflbench.messages.wire import Kind
from vflbench.metrics.batch import batch_example, batch_figures
from vflbench.metrics.dependence import DependenceTable
from vflbench.metrics.leakage import LeakTable
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.numerics.mixing import mix
from vflbench.options import restore_state, state_of
from vflbench.protocols.base import Private, Protocol, Session
from vflbench.run.canaries import Canaries
from vflbench.run.grading import Grader, auxiliary_rows

_GROUPS = 5  # of followed rows, at least, so that there is an interval


@dataclass(frozen=True)
class Post:
    """An attack at its seat. visible: False where it scores, for the record, what nobody sees."""

    name: str
    attack: Attack
    party: str
    rng: torch.Generator
    visible: bool

    def key(self, layer: str) -> tuple[str, str, str, str, bool]:
        return self.name, str(self.attack.scores or "none"), self.party, layer, self.visible

    def told(self, transcript: Transcript) -> Tensor | None:
        """Places of the rows whose class it is told; None if the batch has too few of them."""
        positives = transcript.hints[: self.attack.hints]
        one_a_class = transcript.class_hints if self.attack.class_hints else positives[:0]
        if len(positives) < self.attack.hints or (self.attack.class_hints and not len(one_a_class)):
            return None
        return torch.cat([positives, one_a_class.to(positives.device)])


class Auditor:
    """Runs every attack on an audited batch, and lets the metrics compare its answer with the truth.

    Attacks that follow rows are shown these in every batch, and asked at the end of an epoch, group by group.
    """

    def __init__(
        self,
        attacks: Mapping[str, Attack],
        session: Session,
        generators: Generators,
        train: EncodedRows,
        batch_size: int = 512,
        canaries: int = 0,
        held_out: EncodedRows | None = None,
    ):
        """canaries: how many training rows get a coin for a label. held_out: rows that are not trained on, for attacks that
        rebuild data: some know such rows, and what they rebuild is compared with what these say of any row.
        """
        self.canaries = Canaries(train, canaries, generators["canaries"])
        self._parties = session.seats(Seat.NON_LABEL)
        self._class_ratios = train.class_ratios
        self._hints, self._class_hints = generators["hints"], generators["class hints"]
        # Positions in a file that is sorted by label would be the labels: attackers see other names for the rows.
        self._row_key = int(torch.randint(2**62, (), generator=generators["row names"]))
        self._posts: list[Post] = []
        for name, attack in attacks.items():
            posts = [(party, True) for party in session.seats(attack.seat)]
            if attack.seat is Seat.NON_LABEL and attack.scores is Kind.EMBEDDING:
                posts.append((LABEL_PARTY, False))
            for party, visible in posts:
                rng = generators.on(train.device, f"attack/{name}/{party}")
                self._posts.append(Post(name, copy.deepcopy(attack), party, rng, visible))
        self._lookers = [post for post in self._posts if not (post.attack.follows or post.attack.collects)]
        self._followers = [post for post in self._posts if post.attack.follows]
        self._collectors = [post for post in self._posts if post.attack.collects]
        self._session, self._private = session, {}
        self._wanted = frozenset(known for attack in attacks.values() for known in attack.knows)
        self._auxiliary: dict[str, OwnFeatures] = {}
        if any(attack.rebuilds for attack in attacks.values()):
            seed = int(torch.randint(2**62, (), generator=generators["grading"]))
            self._grader = Grader(train, held_out, seed)
            if Knowledge.AUXILIARY in self._wanted:
                known = auxiliary_rows(held_out, max(attack.auxiliary for attack in attacks.values()), seed)
                self._auxiliary = {party: OwnFeatures(block.numeric, block.categorical) for party, block in known.items()}
        self._group = batch_size
        most = max((post.attack.follows for post in self._followers), default=0)
        self._followed = _Followed(train, most, generators["followed rows"], self.canaries)

    @property
    def follows(self) -> bool:
        """Whether every batch must have a transcript."""
        return bool(self._followers)

    def transcript(self, batch: VerticalTable, epoch: int, step: int) -> Transcript:
        """An empty transcript for a batch that is about to be trained on."""
        features = None
        if any(Knowledge.FEATURES in post.attack.knows for post in self._posts):
            features = {party: OwnFeatures(block.numeric, block.categorical) for party, block in batch.features.items()}
        ids = self._session.known_ids(batch)
        transcript = self._transcript(ids, batch.labels, epoch, step, self._lookers, features, self._wanted)
        for party, known in self._auxiliary.items():
            transcript.tell(party, Knowledge.AUXILIARY, known)
        return transcript

    def attack(self, transcript: Transcript, batch: VerticalTable, leaks: LeakTable, rebuilt: ReconstructionTable) -> None:
        """Every attack that looks at batches one by one."""
        for post in self._collectors:
            post.attack.observe(transcript.view(post.party, post.attack.knows, post.rng))
            self._private[transcript.step] = self._session.private(batch)
        truth, canary = batch.labels, self.canaries.among(batch.ids)
        for post in self._lookers:
            told = post.told(transcript)
            if told is None:
                for layer in transcript.layers(post.party, post.attack.scores):
                    leaks.leave_out(post.key(layer))
                continue
            view = transcript.view(post.party, post.attack.knows, post.rng, visible=post.visible, hints=post.attack.hints)
            if post.attack.rebuilds:
                self._grader.grade(post.name, post.attack.rebuild(view), batch, rebuilt)
                continue
            for layer, scores in post.attack.infer(view).items():
                leaks.add(post.key(layer), scores, truth, told, canary)

    def measure(self, transcript: Transcript, batch: VerticalTable, table: DependenceTable) -> None:
        """How far the embeddings of every layer of every party depend on the labels, canaries aside."""
        rows = ~self.canaries.among(batch.ids)
        for party, visible in [*((party, True) for party in self._parties), (LABEL_PARTY, False)]:
            view = transcript.view(party, frozenset({Knowledge.EMBEDDINGS}), self._hints, visible=visible)
            for layer, h in view.embeddings.items():
                table.add((party, layer, visible), h[rows], batch.labels[rows])

    def observe(self, transcript: Transcript, batch: VerticalTable) -> None:
        """Show the rows of this batch that are followed to those who follow them."""
        for post in self._followers:
            rows = self._followed.among(batch.ids, post.attack.follows)
            if len(rows):
                post.attack.observe(transcript.view(post.party, post.attack.knows, post.rng, rows=rows))

    def conclude(self, epoch: int, step: int, leaks: LeakTable, rebuilt: ReconstructionTable) -> None:
        """Ask those who follow rows, group by group, about the rows that were met so far."""
        for post in self._followers:
            ids, labels = self._followed.met(post.attack.follows)
            layers, unasked, canary = set(), 0, self.canaries.among(ids)
            for group in torch.arange(len(ids)).chunk(max(_GROUPS, len(ids) // self._group)):
                transcript = self._transcript(ids[group], labels[group], epoch, step, [post])
                told = post.told(transcript)
                if told is None:
                    unasked += 1
                    continue
                view = transcript.view(post.party, post.attack.knows, post.rng, hints=post.attack.hints)
                for layer, scores in post.attack.infer(view).items():
                    leaks.add(post.key(layer), scores, labels[group], told, canary[group])
                    layers.add(layer)
            for layer in unasked * sorted(layers):
                leaks.leave_out(post.key(layer))

        for post in self._collectors:
            self._collect(post, epoch, rebuilt)

    def _collect(self, post: Post, epoch: int, table: ReconstructionTable) -> None:
        """Ask for every private batch that was audited, and hold it against the truth of the last round."""
        for step, private in sorted(self._private.items()):
            transcript = Transcript(torch.empty(0, dtype=torch.int64), epoch, step, self._class_ratios)
            for layer, answer in post.attack.rebuild_batch(transcript.view(post.party, post.attack.knows, post.rng)).items():
                table.add(
                    (post.name, str(post.attack.scores), private.owner, layer, post.visible),
                    {**batch_figures(private.x, private.y, private.steps, **_parts(answer)), **answer.figures},
                    batch_example(private.x, private.y, **_parts(answer), shares=answer.shares),
                    answer.note,
                )

    def _transcript(
        self,
        ids: Tensor,
        labels: Tensor,
        epoch: int,
        step: int,
        posts: Sequence[Post],
        features: Mapping[str, OwnFeatures] | None = None,
        wanted: frozenset[Knowledge] = frozenset(),
    ) -> Transcript:
        """With as many known positives, drawn at random, as any of these attacks needs and as there are, and a known row of
        each class if any needs that and each class has one.
        """
        needed, hints, class_hints = max((post.attack.hints for post in posts), default=0), None, None
        if needed:
            positives = ((labels != 0) & ~self.canaries.among(ids)).nonzero()[:, 0].cpu()
            hints = positives[torch.randperm(len(positives), generator=self._hints)[:needed]].to(ids.device)
        if any(post.attack.class_hints for post in posts):
            class_hints = _one_of_each(labels.cpu(), len(self._class_ratios), self._class_hints).to(ids.device)
        names = row_names(ids, self._row_key)
        return Transcript(names, epoch, step, self._class_ratios, hints, class_hints, features, wanted)

    def state(self) -> dict[str, Any]:
        """What every attack keeps, [attack, party, state] each, and which of the followed rows were met."""
        posts = [[post.name, post.party, state_of(post.attack)] for post in self._posts]
        private = [[step, rows.owner, rows.x, rows.y, rows.steps] for step, rows in self._private.items()]
        return {"posts": posts, "met": self._followed.is_met, "canaries": self.canaries.state(), "private": private}

    def restore(self, state: Mapping[str, Any]) -> None:
        for post, (_, _, own) in zip(self._posts, state["posts"], strict=True):
            restore_state(post.attack, own)
        self._followed.is_met.copy_(state["met"])
        self.canaries.restore(state["canaries"])
        self._private = {step: Private(own, *(v.clone() for v in rows)) for step, own, *rows in state["private"]}


def _one_of_each(labels: Tensor, classes: int, rng: torch.Generator) -> Tensor:
    """(K,) the place of one row of each class, drawn at random; empty if a class has no row here."""
    order = torch.randperm(len(labels), generator=rng)
    is_class = labels[order] == torch.arange(classes)[:, None]
    return order[is_class.int().argmax(dim=1)] if bool(is_class.any(dim=1).all()) else order[:0]


class _Followed:
    """The training rows that some attacks follow, in a random order, of which each attack takes the first so many."""

    def __init__(self, train: EncodedRows, count: int, rng: torch.Generator, canaries: Canaries):
        self.ids, self.labels = torch.empty((2, 0), dtype=torch.int64, device=train.device)
        if count:
            rows = canaries.plant(train.sample(count))
            order = torch.randperm(len(rows), generator=rng)[:count].to(train.device)
            self.ids, self.labels = rows.ids[order], rows.labels[order]
        self._sorted, self._rank = self.ids.sort()
        self.is_met = torch.zeros(len(self.ids), dtype=torch.bool, device=train.device)

    def among(self, ids: Tensor, first: int) -> Tensor:
        """Places of those of the `first` followed rows that are in a batch; they are met from now on."""
        if not len(self.ids):
            return torch.empty(0, dtype=torch.int64, device=ids.device)
        place = torch.searchsorted(self._sorted, ids).clamp_(max=len(self._sorted) - 1)
        rank = self._rank[place]
        found = (self._sorted[place] == ids) & (rank < first)
        self.is_met[rank[found]] = True
        return found.nonzero()[:, 0]

    def met(self, first: int) -> tuple[Tensor, Tensor]:
        """Ids and labels of those of the `first` that were met."""
        is_met = self.is_met[:first]
        return self.ids[:first][is_met], self.labels[:first][is_met]


def _parts(answer: RebuiltBatch) -> dict[str, Any]:
    """What the metrics compare."""
    names = ("rows", "labels", "candidates", "guess", "guess_label", "steps", "binary")
    return {name: getattr(answer, name) for name in names}


def row_names(ids: Tensor, key: int) -> Tensor:
    """Names that tell rows apart and nothing else."""
    return mix(ids, key)


def unmet_attacks(attacks: Mapping[str, Attack], protocol: Protocol, classes: int) -> dict[str, str]:
    """Attack -> why it can't run here."""
    reasons = {name: attack.unmet(protocol.offers(attack.seat), classes) for name, attack in attacks.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}
