"""The auditor: shows attacks what their threats declare of each round, and has their answers graded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.aligned import AlignedRows
from vflbench.data.rows import EncodedRows, evenly_spaced
from vflbench.data.table import LABEL_PARTY
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassHints, ClassShares, Embeddings, Known, OwnColumns
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts, PrivateBatch, Round
from vflbench.messages.threat import Seat
from vflbench.metrics.leakage import Leak
from vflbench.metrics.reconstruction import Reconstruction
from vflbench.options import restore_state, state_of
from vflbench.run.answers import Findings, Marker, Question, Tables
from vflbench.run.canaries import Canaries
from vflbench.run.end_of_epoch import RowsAtTheEnd, Shortage, unanswered
from vflbench.run.grading import Grader, auxiliary_rows
from vflbench.run.known_rows import KnownRows, Population, RowNames
from vflbench.run.posts import Hints, HintSource, Post, posted

_AT_THE_END = " (epoch)"  # follows the name of an attack that answers about batches as well
_GROUPS = 5  # of rows that are asked about at the end of an epoch, at least, so that there is an interval


class Auditor:
    """Runs every attack at its post, and lets the metrics compare its answer with the truth.

    Rounds come from a session or from a recording; the auditor can't tell. For each: `wants(step)` names the facts to
    collect, and `see(round)` attacks it. `end_epoch` returns what the epoch came to.

    attacks: those that can run. seats: parties at each seat. train: training rows. rows: all rows by id, with the labels
    that are trained on. group: rows of a batch. steps_audited: steps of an epoch -> how many are attacked. held_out: rows
    that are not trained on. cut_layers: party -> layers that cross. cheating: parties with an adversary. dcor: measure the
    distance correlation of embeddings and labels.
    """

    def __init__(
        self,
        attacks: Mapping[str, Attack],
        seats: Mapping[Seat, tuple[str, ...]],
        train: Population,
        rows: AlignedRows,
        generators: Generators,
        *,
        group: int,
        steps_audited: Callable[[int], int],
        canaries: Canaries,
        held_out: EncodedRows | None = None,
        cut_layers: Mapping[str, Sequence[str]] | None = None,
        cheating: Collection[str] = (),
        dcor: bool = False,
    ):
        self.canaries, self._rows, self._train, self._group = canaries, rows, train, group
        self._steps_audited, self._dcor = steps_audited, dcor
        self._parties = seats.get(Seat.NON_LABEL, ())
        self._hints = HintSource(generators, len(train.class_ratios))
        self._names = RowNames(generators["row names"])
        self.posts = list(posted(attacks, seats, cheating, lambda name: generators.on(train.device, name)))
        self._facts_wanted = frozenset(kind for attack in attacks.values() for kind in attack.threat.knows)
        self._shares = ClassShares(train.class_ratios)
        self._end = RowsAtTheEnd(self.posts, train, generators, canaries)
        most_known = max((post.threat.known_rows for post in self.posts), default=0)
        self._known = KnownRows(train, most_known, generators["known rows"], canaries)
        seed = int(torch.randint(2**62, (), generator=generators["grading"]))
        self._auxiliary: dict[str, OwnColumns] = {}
        if held_out is not None and Auxiliary in self._facts_wanted:
            columns = auxiliary_rows(held_out, max(attack.auxiliary for attack in attacks.values()), seed)
            self._auxiliary = {party: OwnColumns(block.numeric, block.categorical) for party, block in columns.items()}
        grader = Grader(train, held_out, seed) if held_out is not None and isinstance(train, EncodedRows) else None
        self._private: dict[int, PrivateBatch] = {}
        cuts = {party: layers[0] for party, layers in (cut_layers or {}).items()}
        self._marker = Marker(rows, lambda party: cuts.get(party, "cut"), train.class_ratios, grader, self._private)
        self.audited: set[int] = set()
        self._layers: dict[tuple[str, Kind | None], tuple[str, ...]] = {}
        self._shortage = Shortage()
        self.tables, self._epoch = Tables(), 0

    def begin_epoch(self, number: int, steps: int) -> None:
        """Choose the rounds that are attacked: spread evenly, the first and the last among them."""
        self.audited = set(evenly_spaced(steps, self._steps_audited(steps)).tolist())
        self._epoch = number

    def wants(self, step: int) -> frozenset[type[Fact]]:
        """The facts to collect of a round; none of one that is not attacked."""
        measured = {Embeddings} if self._dcor else set()
        return self._facts_wanted | measured if self._is_watched(step) else frozenset()

    def _is_watched(self, step: int) -> bool:
        return step in self.audited or any(post.attack.follows for post in self.posts)

    def see(self, round_: Round) -> None:
        """A round is over: show it to the attacks that look at it, and grade what they answer."""
        if round_.training is not None:
            self.canaries.read(round_.training.ids, round_.training.labels)
        if not self._is_watched(round_.step):
            return
        labels, names = self._rows.labels(round_.ids), self._names.of(round_.ids)
        canary = self.canaries.among(round_.ids)
        hints = self._hints.draw(labels, canary, [post for post in self.posts if not post.attack.follows])
        if round_.private is not None and round_.step in self.audited:
            self._private[round_.step] = round_.private
        for post in self.posts:
            self._layers[post.party, post.message] = round_.layers(post.party, post.message)
            if post.attack.follows:
                self._show_followed(post, round_, names)
            elif round_.step in self.audited and post.attack.answers_batches():
                self._attack(post, round_, names, labels, canary, hints)
        if self._dcor and round_.step in self.audited:
            self._measure(round_, labels, canary)

    def _show_followed(self, post: Post, round_: Round, names: Tensor) -> None:
        rows = self._end.followed.among(round_.ids, post.attack.follows)
        if len(rows):
            known = self._with_run_facts(post, round_.facts.get(post.party, {}))
            facts = post.facts(known, Hints(rows[:0], rows[:0]), rows)
            post.attack.batch(post.view(round_.epoch, round_.step, names[rows], facts))

    def _attack(self, post: Post, round_: Round, names: Tensor, labels: Tensor, canary: Tensor, hints: Hints) -> None:
        places = post.known_places(hints)
        if places is None:
            self._leave_out(post, hints, self._layers[post.party, post.message])
            return
        known = self._with_run_facts(post, round_.facts.get(post.party, {}))
        view = post.view(round_.epoch, round_.step, names.clone(), post.facts(known, hints))
        question = Question(round_.ids, names, labels, self._mask(post, round_.ids, places), canary)
        self._marker.mark(post, post.attack.batch(view), question, self.tables)

    def _with_run_facts(self, post: Post, known: Facts) -> dict[type[Fact], Fact]:
        """What the run supplies beside the facts of the round: class shares, known rows, auxiliary rows."""
        supplied: dict[type[Fact], Fact] = {ClassShares: self._shares, Auxiliary: Auxiliary(self._auxiliary)}
        if post.threat.known_rows:
            supplied[Known] = self._known.fact(post.threat.known_rows, self._names)
        return {**{kind: fact.named(self._names.ids) for kind, fact in known.items()}, **supplied}

    def _mask(self, post: Post, ids: Tensor, places: Tensor) -> Tensor:
        """(n,) bool: rows whose label the attacker was given, in this batch or for the whole run."""
        mask = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        mask[places.to(ids.device)] = True
        return mask | self._known.among(ids, post.threat.known_rows) if post.threat.known_rows else mask

    def _leave_out(self, post: Post, hints: Hints, layers: Sequence[str]) -> None:
        """A batch, or a group of rows, has too few rows that the attack could be given the class of."""
        self._shortage.note(post, hints)
        for layer in layers:
            self.tables.leaks.leave_out(post.key(layer))

    def _measure(self, round_: Round, labels: Tensor, canary: Tensor) -> None:
        """How far the embeddings of every layer of every party depend on the labels, canaries aside."""
        for party in (*self._parties, LABEL_PARTY):
            embeddings = round_.facts.get(party, {}).get(Embeddings)
            layers = embeddings.layers if isinstance(embeddings, Embeddings) else {}
            for layer, h in layers.items():
                self.tables.dependence.add((party, layer, party != LABEL_PARTY), h[~canary], labels[~canary])

    @property
    def rows_at_the_end(self) -> Tensor:
        """(n,) ids of the rows about which attacks are asked at the end of an epoch."""
        return self._end.ids

    @property
    def wants_at_the_end(self) -> frozenset[type[Fact]]:
        """The facts that attacks read at the end of an epoch."""
        return frozenset(kind for post in self.posts if post.attack.answers_epochs() for kind in post.threat.knows)

    def end_epoch(self, facts: Mapping[str, Facts]) -> Findings:
        """Ask the attacks that answer at the end of an epoch, and return what the epoch came to.

        facts: what each party knows between rounds about `rows_at_the_end`.
        """
        answered = {post.name for post in self.posts if self.tables.leaks.has(post.name)}  # about batches
        for post in self.posts:
            if post.attack.answers_epochs():
                asked = replace(post, name=f"{post.name}{_AT_THE_END}") if post.name in answered else post
                self._ask(asked, facts.get(post.party, {}))
        findings, self.tables = self.tables.findings(), Tables()
        return findings

    def _ask(self, post: Post, facts: Facts) -> None:
        """About the rows that it follows and that were met, or about the sample; in groups as large as a batch."""
        ids, labels, place = self._end.of(post)
        groups = torch.arange(len(ids), device=ids.device).chunk(max(_GROUPS, len(ids) // self._group))
        asked_in_groups = post.threat.hints or ClassHints in post.threat.knows
        known = self._with_run_facts(post, facts)
        everyone = self._question(post, ids, labels)
        if not asked_in_groups:
            here = {kind: fact.rows(place) for kind, fact in known.items()}
            view = post.view(self._epoch, None, everyone.names.clone(), post.facts(here, Hints(ids[:0], ids[:0])))
            answers = post.attack.epoch(view)
            self._marker.mark_in_groups(post, answers, everyone, groups, self.tables)
            return
        unasked, layers = 0, set[str]()
        for group in groups:
            question = everyone.group(group)
            hints = self._hints.draw(question.labels, question.canary, [post])
            places = post.known_places(hints)
            if places is None:
                unasked += 1
                self._leave_out(post, hints, ())
                continue
            question = self._question(post, question.ids, question.labels, places)
            here = {kind: fact.rows(place[group]) for kind, fact in known.items()}
            view = post.view(self._epoch, None, question.names.clone(), post.facts(here, hints))
            layers |= self._marker.mark(post, post.attack.epoch(view), question, self.tables)
        for layer in unasked * sorted(layers or self._layers.get((post.party, post.message), ())):
            self.tables.leaks.leave_out(post.key(layer))

    def _question(self, post: Post, ids: Tensor, labels: Tensor, places: Tensor | None = None) -> Question:
        known = self._mask(post, ids, ids[:0] if places is None else places)
        return Question(ids, self._names.of(ids), labels, known, self.canaries.among(ids), is_batch=False)

    def unscored(self, leaks: Sequence[Leak], reconstructions: Sequence[Reconstruction] = ()) -> dict[str, str]:
        """Attack -> why none of its answers could be scored. leaks, reconstructions: of the epoch."""
        scored = {leak.attack for leak in leaks if leak.batches} | {one.attack for one in reconstructions}
        return unanswered([post.name for post in self.posts], scored) | self._shortage.reasons(scored)

    def state(self) -> dict[str, Any]:
        """What every attack keeps, [attack, party, state] each, which rows were met, and the figures of the epoch so far."""
        return {
            "posts": [[post.name, post.party, state_of(post.attack)] for post in self.posts],
            "met": self._end.followed.is_met,
            "canaries": self.canaries.state(),
            "private": [[step, rows.owner, rows.x, rows.y, rows.steps] for step, rows in self._private.items()],
            "shortage": self._shortage.state(),
            "layers": [[party, str(kind or ""), list(layers)] for (party, kind), layers in self._layers.items()],
            "tables": self.tables.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for post, (_, _, saved) in zip(self.posts, state["posts"], strict=True):
            restore_state(post.attack, saved)
        self._end.followed.is_met.copy_(state["met"])
        self.canaries.restore(state["canaries"])
        self._private.clear()
        for step, owner, *rows in state["private"]:
            self._private[step] = PrivateBatch(owner, *(values.clone() for values in rows))
        self._shortage.restore(state["shortage"])
        self._layers = {(party, Kind(kind) if kind else None): tuple(layers) for party, kind, layers in state["layers"]}
        self.tables = Tables.from_state(state["tables"])
