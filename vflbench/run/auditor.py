"""The auditor: shows attacks what their threats declare of each round, and has their answers graded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.rows import EncodedRows, evenly_spaced
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, OwnColumns
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts, PrivateBatch, Round
from vflbench.messages.threat import Seat
from vflbench.metrics.leakage import Leak
from vflbench.metrics.reconstruction import Reconstruction
from vflbench.options import restore_state, state_of
from vflbench.run.answers import Marker, Tables
from vflbench.run.asking import Asking
from vflbench.run.auxiliary import auxiliary_rows
from vflbench.run.canaries import Canaries
from vflbench.run.desk import Desk, LocalDesk
from vflbench.run.end_of_epoch import RowsAtTheEnd
from vflbench.run.findings import Findings
from vflbench.run.grading import Grader
from vflbench.run.helpers import Helpers
from vflbench.run.hidden_columns import HiddenColumns
from vflbench.run.known_rows import USUALLY_KNOWN, KnownRows, Lookup, Population, RowNames
from vflbench.run.posts import HintSource, Post, column_references, posted
from vflbench.run.supply import Supply
from vflbench.run.unmet import unanswered


class Auditor:
    """Runs every attack at its post, and lets the metrics compare its answer with the truth.

    Rounds come from a session or from a recording; the auditor can't tell. For each: `wants(step)` names the facts to
    collect, and `see(round)` attacks it. `end_epoch` returns what the epoch came to.

    attacks: those that can run. seats: parties at each seat. train: training rows. rows: all rows by id, with the labels
    that are trained on. group: rows of a batch. steps_audited: steps of an epoch -> how many are attacked. held_out: rows
    that are not trained on. auxiliary: rows for attackers; held_out if left out. cut_layers: party -> layers that cross.
    cheating: parties with an adversary. offered: facts that rounds have for a non-label party. last_only: audit no epoch
    but the last. dcor: measure the distance correlation of embeddings and labels. probe: also run the reference that is
    trained on half of the true labels. known: rows whose labels attackers know, where they were drawn before. keeps_rows:
    choose rows to ask about at the end of an epoch and known ones whether any attack needs them or not, because they are
    recorded. samples: also ask about rows of no audited batch. references: also ask attacks with labels about own columns
    in place of messages. tables: makes what the answers of an epoch are put into. helpers: threads that ask attacks; the
    numbers are the same.
    """

    def __init__(
        self,
        attacks: Mapping[str, Attack],
        seats: Mapping[Seat, tuple[str, ...]],
        train: Population,
        rows: Lookup,
        generators: Generators,
        *,
        group: int,
        steps_audited: Callable[[int], int],
        canaries: Canaries,
        held_out: EncodedRows | None = None,
        auxiliary: EncodedRows | None = None,
        cut_layers: Mapping[str, Sequence[str]] | None = None,
        cheating: Collection[str] = (),
        offered: Collection[type[Fact]] = (),
        last_only: bool = False,
        dcor: bool = False,
        probe: bool = False,
        known: KnownRows | None = None,
        keeps_rows: bool = False,
        samples: bool = True,
        references: bool = True,
        tables: Callable[[], Tables] = Tables,
        helpers: Helpers | None = None,
    ):
        self.canaries, self._rows = canaries, rows
        self._steps_audited, self._last_only, self._dcor = steps_audited, last_only, dcor
        self._parties, self._hidden = seats.get(Seat.NON_LABEL, ()), seats.get(Seat.LABEL, ())
        names = RowNames(generators["row names"])
        on_device = partial(generators.on, train.device)
        self.posts = list(posted(attacks, seats, cheating, on_device))
        has_columns = references and OwnColumns in offered
        twins = list(column_references(self.posts, on_device)) if has_columns else []
        self.posts += [reference for _, reference in twins]
        wanted = {kind for attack in attacks.values() for kind in attack.threat.knows}
        self._end = RowsAtTheEnd(self.posts, train, rows, generators, canaries, asks=keeps_rows, samples=samples)
        most_known = max((post.threat.known_rows for post in self.posts), default=0)
        if known is None:
            most = max(most_known, USUALLY_KNOWN) if most_known or keeps_rows else 0
            known = KnownRows(train, most, generators["known rows"], canaries)
        self.known = known
        seed = int(torch.randint(2**62, (), generator=generators["grading"]))
        source, known_rows = auxiliary or held_out, Auxiliary({})
        if source is not None and Auxiliary in wanted:
            known_rows = auxiliary_rows(source, max(attack.auxiliary for attack in attacks.values()), seed)
        hidden = HiddenColumns(attacks, train, rows)
        supply = Supply(names, ClassShares(train.class_ratios), known, known_rows, rows.features, hidden)
        grader = None
        if held_out is not None and isinstance(train, EncodedRows):
            grader = Grader(train, held_out, seed)
        self._private: dict[int, PrivateBatch] = {}
        cuts = {party: layers[0] for party, layers in (cut_layers or {}).items()}
        marker = Marker(rows, lambda party: cuts.get(party, "cut"), train.class_ratios, grader, self._private, hidden)
        hints = HintSource(generators, len(train.class_ratios))
        desks: dict[str, Desk] = {}
        local = LocalDesk(supply, helpers)
        self._asking = Asking(local, desks, names, known, canaries, hints, marker, twins, group, waits=helpers is not None)
        self._posts_here = [post for post in self.posts if post.party not in desks]
        self._crossing = {party: tuple((cut_layers or {}).get(party, ())) for party in self._parties}
        self._probe_rng = generators["probe"] if probe and any(self._crossing.values()) and self.posts else None
        followers = [post for post in self.posts if post.attack.follows or post.attack.attends]
        self._facts_followed = frozenset(kind for post in followers for kind in post.attack.threat.knows | post.threat.knows)
        self._facts_wanted = frozenset(wanted | ({OwnColumns} if twins else set()))
        self.audited: set[int] = set()
        self._new_tables, self.tables, self._epoch, self._is_last = tables, tables(), 0, True

    @property
    def probes(self) -> bool:
        """Whether the probe runs."""
        return self._probe_rng is not None

    def begin_epoch(self, number: int, steps: int, *, last: bool = True, chosen: Sequence[int] | None = None) -> None:
        """Choose the rounds that are attacked: spread evenly, the first and the last among them.

        last: whether it is the last epoch of the run, the only one in which the probe is fitted. chosen: the steps to choose
        among, where there are no others.
        """
        there = range(steps) if chosen is None else chosen
        audited = self._steps_audited(len(there)) if last or not self._last_only else 0
        self.audited = {there[place] for place in evenly_spaced(len(there), audited).tolist()} if audited else set()
        self._epoch, self._is_last = number, last
        self._end.begin_epoch(len(self.audited))

    def wants(self, step: int) -> frozenset[type[Fact]]:
        """The facts to collect of a round: of one that is not audited, those of attacks that follow rows or attend all."""
        if step not in self.audited:
            return self._facts_followed
        measured: set[type[Fact]] = {Embeddings} if self._dcor else set()
        measured |= {Embeddings, Gradients} if self.probes and self._is_last else set()
        return self._facts_wanted | measured

    def _is_watched(self, step: int) -> bool:
        return step in self.audited or any(post.attack.follows or post.attack.attends for post in self.posts)

    def see(self, round_: Round) -> None:
        """A round is over: show it to the attacks that look at it, and grade what they answer."""
        if round_.training is not None:
            self.canaries.read(round_.training.ids, round_.training.labels)
        if not self._is_watched(round_.step):
            return
        labels, canary = self._rows.labels(round_.ids), self.canaries.among(round_.ids)
        is_audited = round_.step in self.audited
        hints = self._asking.draw(round_, labels, canary, self.posts)
        if is_audited:
            self._end.meet(round_.ids)
            if self.probes and self._is_last:
                self.tables.probed.meet(round_, labels, canary, self._crossing, len(self.audited))
            if round_.private is not None:
                self._private[round_.step] = round_.private
        followed = {
            first: self._end.followed.among(round_.ids, first)
            for first in sorted({post.attack.follows for post in self.posts} - {0})
        }
        for post in self.posts:
            if post.attack.follows:
                self._asking.show(post, round_, self._with_known(post, round_.ids, followed[post.attack.follows]))
            elif is_audited and post.attack.collects:
                self._asking.show(post, round_, torch.arange(len(round_.ids), device=round_.ids.device))
            elif is_audited and post.attack.answers_batches():
                self._asking.about_batch(post, round_, labels, canary, hints, self.tables)
            elif post.attack.attends:
                self._asking.show(post, round_, torch.arange(len(round_.ids), device=round_.ids.device))
        self._asking.settle(but_last=not self.probes)  # what the probe is told of must be said before the next batch
        if self._dcor and is_audited:
            self.tables.measure(round_, labels, canary, self._parties, self._hidden)

    def _with_known(self, post: Post, ids: Tensor, followed: Tensor) -> Tensor:
        """Places of the rows of a batch that an attack follows, and of those whose label it knows."""
        if not post.threat.known_rows:
            return followed
        is_shown = self._asking.known.among(ids, post.threat.known_rows)
        return is_shown.index_fill_(0, followed, True).nonzero()[:, 0]

    @property
    def rows_at_the_end(self) -> Tensor:
        """(n,) ids of the rows about which attacks are asked at the end of an epoch."""
        return self._end.ids

    @property
    def parts_at_the_end(self) -> list[Tensor]:
        """The same rows, ids (n,) of each: those that are followed, the others, and those whose label is known."""
        return [self._end.followed.ids, self._end.asked, self.known.ids]

    @property
    def wants_at_the_end(self) -> frozenset[type[Fact]]:
        """The facts that attacks read at the end of an epoch."""
        asked = [post for post in self.posts if post.attack.answers_epochs()]
        return frozenset(kind for post in asked for kind in post.attack.threat.knows)

    def end_epoch(self, facts: Mapping[str, Facts]) -> Findings:
        """Ask the attacks that answer at the end of an epoch, and return what the epoch came to.

        facts: what each party knows between rounds about `rows_at_the_end`.
        """
        self._asking.begin_end(self._epoch, self.parts_at_the_end)
        answered = frozenset(post.name for post in self.posts if self.tables.leaks.has(post.name))  # about batches
        for post in self.posts if self.audited else ():
            if post.attack.answers_epochs() and not post.on_columns:
                of_party = facts.get(post.party, {})
                self._asking.about_epoch(post, self._epoch, self._end.of(post), of_party, answered, self.tables)
        self._asking.settle()
        if self._probe_rng is not None and self._is_last:
            self.tables.probed.grade(self._rows.classes, self._probe_rng, self.tables.leaks)
        findings, self.tables = self.tables.findings(), self._new_tables()
        self._end.end_epoch()
        return findings

    def unscored(self, leaks: Sequence[Leak], reconstructions: Sequence[Reconstruction] = ()) -> dict[str, str]:
        """Attack -> why none of its answers could be scored. leaks, reconstructions: of the epoch."""
        scored = {leak.attack for leak in leaks if leak.batches} | {one.attack for one in reconstructions}
        return unanswered([post.name for post in self.posts], scored) | self._asking.reasons(scored)

    def state(self) -> dict[str, Any]:
        """What attacks of this process keep, [attack, party, state] each, rows that were met, figures of the epoch."""
        return {
            "posts": [[post.name, post.party, state_of(post.attack)] for post in self._posts_here],
            "end": self._end.state(),
            "canaries": self.canaries.state(),
            "private": [[step, rows.owner, rows.x, rows.y, rows.steps] for step, rows in self._private.items()],
            "asking": self._asking.state(),
            "tables": self.tables.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for post, (_, _, saved) in zip(self._posts_here, state["posts"], strict=True):
            restore_state(post.attack, saved)
        self._end.restore(state["end"])
        self.canaries.restore(state["canaries"])
        self._private.clear()
        self._private |= {n: PrivateBatch(owner, *(v.clone() for v in rows)) for n, owner, *rows in state["private"]}
        self._asking.restore(state["asking"])
        self.tables = Tables.from_state(state["tables"])
