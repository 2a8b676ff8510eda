"""Attacks are asked about the rows of a batch, or of an epoch; what they answer is graded, without the rows they know."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers
from vflbench.messages.channel import at_once
from vflbench.messages.facts import ClassHints
from vflbench.messages.round import Facts, Round
from vflbench.run.answers import Marker, Tables
from vflbench.run.canaries import Canaries
from vflbench.run.desk import AT_THE_END, Desk, LocalDesk, Query
from vflbench.run.end_of_epoch import Shortage
from vflbench.run.known_rows import KnownRows, RowNames
from vflbench.run.posts import Hints, HintSource, Post
from vflbench.run.question import Question

_GROUPS = 5  # of rows that are asked about at the end of an epoch, at least, so that there is an interval

Asked = tuple[Post, Hints, Question | None, Callable[[], Answers]]
"""A post, its hints, and what it was asked about and how to wait for the answer, if it could be asked."""


class Asking:
    """Has each attack asked at its desk, and hands its answer to the marker.

    local: the desk of this process. remote: party -> the desk in its own process. references: attacks that know labels, each
    with the same attack on the party's own columns, which is given the same hints. group: rows of a batch. waits: whether
    answers may come later; they are marked in the order of the questions.
    """

    def __init__(
        self,
        local: LocalDesk,
        remote: Mapping[str, Desk],
        names: RowNames,
        known: KnownRows,
        canaries: Canaries,
        hints: HintSource,
        marker: Marker,
        references: Sequence[tuple[Post, Post]],
        group: int,
        *,
        waits: bool = False,
    ):
        self._local, self._remote, self._waits = local, dict(remote), waits or bool(remote)
        self._desks: list[Desk] = [local, *self._remote.values()]
        self._unmarked: list[Callable[[], object]] = []  # of the last batch
        self._asked: list[Callable[[], object]] = []  # of this one
        self.names, self.known, self.canaries, self.hints = names, known, canaries, hints
        self._marker, self._group = marker, group
        self._references = {(post.name, post.party): twin for post, twin in references}
        self.shortage = Shortage()

    def _desk(self, post: Post) -> Desk:
        return self._remote.get(post.party, self._local)

    def draw(self, round_: Round, labels: Tensor, canary: Tensor, posts: Sequence[Post]) -> Hints:
        """Hints about a batch, the same for all attacks that don't follow rows."""
        for desk in self._desks:
            desk.note(round_, [post for post in posts if self._desk(post) is desk])
        return self.hints.draw(labels, canary, [post for post in posts if not post.attack.follows])

    def show(self, post: Post, round_: Round, rows: Tensor) -> None:
        """Rows of a batch for an attack that only keeps what it sees. rows: (m,) places."""
        if not len(rows):
            return
        query = Query(post, round_.epoch, round_.step, self.names.of(round_.ids[rows]), rows, answered=False)
        self._desk(post).ask(query, round_.facts.get(post.party, {}))

    def about_batch(self, post: Post, round_: Round, labels: Tensor, canary: Tensor, hints: Hints, tables: Tables) -> None:
        places, desk = post.known_places(hints), self._desk(post)
        if places is None:
            self._mark(partial(self._leave_out, post, hints, desk.layers(post), tables))
            return
        names = self.names.of(round_.ids)
        query = Query(post, round_.epoch, round_.step, names.clone(), hints=hints)
        question = Question(round_.ids, names, labels, self._mask(post, round_.ids, places), canary)
        answer = desk.ask(query, round_.facts.get(post.party, {}))
        self._mark(lambda: self._marker.mark(post, answer(), question, tables))

    def _mark(self, mark: Callable[[], object]) -> None:
        """At once, or where answers come later, in `settle`."""
        if self._waits:
            self._asked.append(mark)
        else:
            mark()

    def settle(self, *, but_last: bool = False) -> None:
        """Mark all answers that are not marked. but_last: those about the last batch later, so that it goes on meanwhile.
        Parties in processes of their own don't go on: they answer before the next batch.
        """
        at_once(lambda desk: desk.send(), list(self._remote.values()))
        due, self._unmarked = self._unmarked, self._asked
        self._asked = []
        if not but_last or self._remote:
            due, self._unmarked = due + self._unmarked, []
        for mark in due:
            mark()

    def begin_end(self, epoch: int, parts: Sequence[Tensor]) -> None:
        """Questions about an epoch come next. parts: as `Desk.note_end` takes them."""
        self.settle()
        for desk in self._remote.values():
            desk.note_end(epoch, parts)

    def about_epoch(
        self,
        post: Post,
        epoch: int,
        rows: tuple[Tensor, Tensor, Tensor],
        facts: Facts,
        answered: Collection[str],
        tables: Tables,
    ) -> None:
        """Rows that it follows and that were met, or else rows of audited batches and a sample; graded in groups.

        rows: their ids and labels, and their places in the facts. answered: names of attacks that answered about batches.
        """
        ids, labels, place = rows
        groups = torch.arange(len(ids), device=ids.device).chunk(max(_GROUPS, len(ids) // self._group))
        twin = self._references.get((post.name, post.party))
        both = [one for one in (post, twin) if one is not None]
        posts = [replace(one, name=f"{one.name}{AT_THE_END}") if one.name in answered else one for one in both]
        if post.threat.hints or ClassHints in post.threat.knows:
            self._ask_in_groups(posts, epoch, rows, groups, facts, tables)
            return
        for one in posts:
            everyone = self._question(one, ids, labels)
            query = Query(one, epoch, None, everyone.names.clone(), place, Hints(ids[:0], ids[:0]))
            answer = self._desk(one).ask(query, facts)
            self._mark(partial(self._mark_in_groups, one, answer, everyone, groups, tables))

    def _mark_in_groups(
        self, post: Post, answer: Callable[[], Answers], question: Question, groups: Sequence[Tensor], tables: Tables
    ) -> None:
        self._marker.mark_in_groups(post, answer(), question, groups, tables)

    def _ask_in_groups(
        self,
        posts: Sequence[Post],
        epoch: int,
        rows: tuple[Tensor, Tensor, Tensor],
        groups: Sequence[Tensor],
        facts: Facts,
        tables: Tables,
    ) -> None:
        """An attack with hints, and its reference: each group has hints of its own."""
        ids, labels, place = rows
        asked: list[Asked] = []
        for group in groups:
            question = self._question(posts[0], ids[group], labels[group])
            hints = self.hints.draw(question.labels, question.canary, posts[:1])
            places = posts[0].known_places(hints)
            for post in posts:
                if places is None:
                    asked.append((post, hints, None, lambda: None))
                    continue
                own = self._question(post, question.ids, question.labels, places)
                query = Query(post, epoch, None, own.names.clone(), place[group], hints)
                asked.append((post, hints, own, self._desk(post).ask(query, facts)))
        self._mark(partial(self._mark_each_group, posts, asked, tables))

    def _mark_each_group(self, posts: Sequence[Post], asked: Sequence[Asked], tables: Tables) -> None:
        layers: dict[str, set[str]] = {post.name: set() for post in posts}
        for post, hints, question, answer in asked:
            if question is None:
                self._leave_out(post, hints, tuple, tables)
            else:
                layers[post.name] |= self._marker.mark(post, answer(), question, tables)
        for post in posts:
            unasked = sum(question is None for one, _, question, _ in asked if one is post)
            for layer in unasked * sorted(layers[post.name] or self._desk(post).layers(post)()):
                tables.leaks.leave_out(post.key(layer))

    def reasons(self, scored: Collection[str]) -> dict[str, str]:
        """Attack -> why it could not be scored, except for those that were."""
        broken = {name: why for name, why in self._broken().items() if name not in scored}
        return self.shortage.reasons(scored) | broken

    def _broken(self) -> dict[str, str]:
        return {name: why for desk in self._desks for (name, _), why in desk.broken.items()}

    def _question(self, post: Post, ids: Tensor, labels: Tensor, places: Tensor | None = None) -> Question:
        known = self._mask(post, ids, ids[:0] if places is None else places)
        return Question(ids, self.names.of(ids), labels, known, self.canaries.among(ids), is_batch=False)

    def _mask(self, post: Post, ids: Tensor, places: Tensor) -> Tensor:
        """(n,) bool: rows whose label the attacker was given, in this batch or for the whole run."""
        mask = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        mask[places.to(ids.device)] = True
        return mask | self.known.among(ids, post.threat.known_rows) if post.threat.known_rows else mask

    def _leave_out(self, post: Post, hints: Hints, layers: Callable[[], Sequence[str]], tables: Tables) -> None:
        """A batch, or a group of rows, has too few rows that the attack could be given the class of."""
        self.shortage.note(post, hints)
        for layer in layers():
            tables.leaks.leave_out(post.key(layer))

    def state(self) -> dict[str, Any]:
        return {"shortage": self.shortage.state(), "desks": [desk.state() for desk in self._desks]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.shortage.restore(state["shortage"])
        for desk, saved in zip(self._desks, state["desks"], strict=True):
            desk.restore(saved)
