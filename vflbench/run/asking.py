"""Attacks are asked about the rows of a batch, or of an epoch; what they answer is graded, without the rows they know."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers
from vflbench.messages.facts import ClassHints
from vflbench.messages.message import Kind
from vflbench.messages.round import Facts, Round
from vflbench.messages.view import View
from vflbench.run.answers import Marker, Tables
from vflbench.run.canaries import Canaries
from vflbench.run.end_of_epoch import Shortage
from vflbench.run.helpers import Helpers
from vflbench.run.known_rows import KnownRows, RowNames
from vflbench.run.posts import Hints, HintSource, Post
from vflbench.run.question import Question
from vflbench.run.supply import Supply

_AT_THE_END = " (epoch)"  # follows the name of an attack that answers about batches as well
_GROUPS = 5  # of rows that are asked about at the end of an epoch, at least, so that there is an interval


class Asking:
    """Shows each attack its view, and hands its answer to the marker.

    supply: the facts that an attack may read. references: attacks that know labels, each with the same attack on the party's
    own columns, which is given the same hints. group: rows of a batch. helpers: threads that ask attacks about batches, if
    these only read; answers are marked in the order of the questions.
    """

    def __init__(
        self,
        supply: Supply,
        names: RowNames,
        known: KnownRows,
        canaries: Canaries,
        hints: HintSource,
        marker: Marker,
        references: Sequence[tuple[Post, Post]],
        group: int,
        helpers: Helpers | None = None,
    ):
        self._helpers = helpers
        self._unmarked: list[Callable[[], object]] = []  # of the last batch
        self._asked: list[Callable[[], object]] = []  # of this one
        self.supply, self.names, self.known, self.canaries, self.hints = supply, names, known, canaries, hints
        self._marker, self._group = marker, group
        self._references = {(post.name, post.party): twin for post, twin in references}
        self._layers: dict[tuple[str, Kind | None], tuple[str, ...]] = {}
        self.shortage = Shortage()
        self.broken: dict[str, str] = {}

    def draw(self, round_: Round, labels: Tensor, canary: Tensor, posts: Sequence[Post]) -> Hints:
        """Hints about a batch, the same for all attacks that don't follow rows."""
        for post in posts:
            self._layers[post.party, post.message] = round_.layers(post.party, post.message)
        return self.hints.draw(labels, canary, [post for post in posts if not post.attack.follows])

    def show(self, post: Post, round_: Round, rows: Tensor) -> None:
        """Rows of a batch for an attack that only keeps what it sees. rows: (m,) places."""
        if not len(rows):
            return
        shown = {kind: fact.rows(rows) for kind, fact in round_.facts.get(post.party, {}).items() if kind in post.reads}
        facts = post.facts(self.supply.to(post, shown), None)
        view = post.view(round_.epoch, round_.step, self.names.of(round_.ids[rows]), facts)
        if post.attack.attends:
            post.attack.attend(view)
        else:
            self._answer(post, view)

    def about_batch(self, post: Post, round_: Round, labels: Tensor, canary: Tensor, hints: Hints, tables: Tables) -> None:
        places = post.known_places(hints)
        if places is None:
            self._mark(partial(self._leave_out, post, hints, self._layers[post.party, post.message], tables))
            return
        names = self.names.of(round_.ids)
        known = self.supply.to(post, round_.facts.get(post.party, {}))
        view = post.view(round_.epoch, round_.step, names.clone(), post.facts(known, hints))
        question = Question(round_.ids, names, labels, self._mask(post, round_.ids, places), canary)
        if self._helpers is not None and post.only_reads:
            key = (post.name, post.party, post.visible)
            coming = self._helpers.begin(key, partial(self._answer, post, view))
            self._mark(lambda: self._marker.mark(post, coming.result(), question, tables))
        else:
            self._mark(partial(self._marker.mark, post, self._answer(post, view), question, tables))

    def _mark(self, mark: Callable[[], object]) -> None:
        """At once, or where attacks are asked beside this thread, in `settle`."""
        if self._helpers is None:
            mark()
        else:
            self._asked.append(mark)

    def settle(self, *, but_last: bool = False) -> None:
        """Mark all answers that are not marked. but_last: those about the last batch later, so that it goes on meanwhile."""
        due, self._unmarked = self._unmarked, self._asked
        self._asked = []
        if not but_last:
            due, self._unmarked = due + self._unmarked, []
        for mark in due:
            mark()

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
        posts = [replace(one, name=f"{one.name}{_AT_THE_END}") if one.name in answered else one for one in both]
        if post.threat.hints or ClassHints in post.threat.knows:
            self._ask_in_groups(posts, epoch, rows, groups, facts, tables)
            return
        for one in posts:
            everyone = self._question(one, ids, labels)
            known = {kind: fact.rows(place) for kind, fact in self.supply.to(one, facts).items()}
            view = one.view(epoch, None, everyone.names.clone(), one.facts(known, Hints(ids[:0], ids[:0])))
            self._marker.mark_in_groups(one, self._answer(one, view), everyone, groups, tables)

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
        unasked = 0
        layers: dict[str, set[str]] = {post.name: set() for post in posts}
        for group in groups:
            question = self._question(posts[0], ids[group], labels[group])
            hints = self.hints.draw(question.labels, question.canary, posts[:1])
            places = posts[0].known_places(hints)
            unasked += places is None
            for post in posts:
                if places is None:
                    self._leave_out(post, hints, (), tables)
                    continue
                asked = self._question(post, question.ids, question.labels, places)
                known = {kind: fact.rows(place[group]) for kind, fact in self.supply.to(post, facts).items()}
                view = post.view(epoch, None, asked.names.clone(), post.facts(known, hints))
                layers[post.name] |= self._marker.mark(post, self._answer(post, view), asked, tables)
        for post in posts:
            for layer in unasked * sorted(layers[post.name] or self._layers.get((post.party, post.message), ())):
                tables.leaks.leave_out(post.key(layer))

    def _answer(self, post: Post, view: View) -> Answers:
        """What it answers. A reference on own columns may fail, as not every attack can do without its layers."""
        ask = post.attack.batch if view.step is not None else post.attack.epoch
        if not post.on_columns:
            return ask(view)
        if post.name in self.broken:
            return None
        try:
            return ask(view)
        except Exception as error:  # whatever a user's attack raises for layers of other names and widths
            self.broken[post.name] = f"it can't read own columns in place of messages: {type(error).__name__}: {error}"
            return None

    def reasons(self, scored: Collection[str]) -> dict[str, str]:
        """Attack -> why it could not be scored, except for those that were."""
        return self.shortage.reasons(scored) | {name: why for name, why in self.broken.items() if name not in scored}

    def _question(self, post: Post, ids: Tensor, labels: Tensor, places: Tensor | None = None) -> Question:
        known = self._mask(post, ids, ids[:0] if places is None else places)
        return Question(ids, self.names.of(ids), labels, known, self.canaries.among(ids), is_batch=False)

    def _mask(self, post: Post, ids: Tensor, places: Tensor) -> Tensor:
        """(n,) bool: rows whose label the attacker was given, in this batch or for the whole run."""
        mask = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        mask[places.to(ids.device)] = True
        return mask | self.known.among(ids, post.threat.known_rows) if post.threat.known_rows else mask

    def _leave_out(self, post: Post, hints: Hints, layers: Sequence[str], tables: Tables) -> None:
        """A batch, or a group of rows, has too few rows that the attack could be given the class of."""
        self.shortage.note(post, hints)
        for layer in layers:
            tables.leaks.leave_out(post.key(layer))

    def state(self) -> dict[str, Any]:
        return {
            "shortage": self.shortage.state(),
            "broken": dict(self.broken),
            "layers": [[party, str(kind or ""), list(layers)] for (party, kind), layers in self._layers.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.shortage.restore(state["shortage"])
        self.broken = dict(state["broken"])
        self._layers = {(party, Kind(kind) if kind else None): tuple(layers) for party, kind, layers in state["layers"]}
