"""The attacks that sit at a party which lives in this process, asked by the auditor in another."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.errors import UserError, shown
from vflbench.generators import Generators
from vflbench.messages.envelope import Content
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassHints, ClassShares, OwnColumns
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts, Round
from vflbench.messages.threat import Seat
from vflbench.options import restore_state, state_of
from vflbench.run.desk import AT_THE_END, LocalDesk, Query
from vflbench.run.known_rows import KnownRows, RowNames
from vflbench.run.plain_answers import is_rows, to_plain
from vflbench.run.posts import Hints, Post, column_references, posted
from vflbench.run.supply import Columns, Supply, remembered

_LARGEST = 2**62


class OwnFacts(Protocol):
    """What the party of this process knows."""

    def facts_of_round(self, kinds: frozenset[type[Fact]]) -> Facts:
        """Of the batch that it learned from last."""
        ...

    def facts_between(self, ids: Tensor, kinds: frozenset[type[Fact]]) -> Facts:
        """Of these rows, between rounds."""
        ...


class PartyDesk:
    """Asks the attacks at one party, with that party's own facts: `handle` takes what a `RemoteDesk` sends.

    Attacks, generators and the order of questions are those of a run in one process, so the answers are the same to the
    bit. No label is here but those that the auditor gives as known rows and hints, and no fact leaves but as an answer.

    attacks: those that the party lets run; an answer tells what that attack makes of the party's own messages and columns.
    facts: the party's. cheats: whether it has an adversary. references: also ask attacks with labels about own columns.
    """

    def __init__(
        self,
        party: str,
        attacks: Mapping[str, Attack],
        generators: Generators,
        facts: OwnFacts,
        *,
        cheats: bool = False,
        references: bool = True,
        device: torch.device | None = None,
    ):
        self.party, self._facts, self._device = party, facts, device or torch.device("cpu")
        on_device = partial(generators.on, self._device)
        posts = list(posted(attacks, {Seat.NON_LABEL: (party,)}, [party] if cheats else [], on_device))
        twins = column_references(posts, on_device) if references else ()
        self.posts = {post.name: post for post in (*posts, *(twin for _, twin in twins))}
        self._desk: LocalDesk | None = None
        self._saved: Mapping[str, Any] | None = None
        self._names, self._known = RowNames.keyed(0), torch.empty(0, dtype=torch.int64)

    def handle(self, request: Content) -> dict[str, Any]:
        """The answers to what the auditor asks. Raises UserError for what is no request, and for an attack that fails."""
        with torch.autocast(self._device.type, enabled=False):  # of the party's own steps
            if request.get("given") is not None:
                self._be_given(request["given"])
            if self._desk is None:
                raise refused("it doesn't say what attacks may know of the run")
            asked = request.get("queries")
            if type(asked) is not list or not all(type(one) is dict for one in asked):
                raise refused("it holds no questions")
            posts = [self._post(one) for one in asked]
            epoch, step = request.get("epoch"), request.get("step")
            if type(epoch) is not int or not (step is None or type(step) is int):
                raise refused("it says of no round what it asks")
            if step is None:
                ids, facts = self._rows_at_the_end(request.get("ids"), posts)
            else:
                ids, facts = self._rows(request.get("ids")), self._of_round(posts, request.get("layers") is True)
            layers = self._layers(epoch, step, ids, facts) if step is not None and request.get("layers") is True else {}
            answers = [self._answer(post, one, epoch, step, ids, facts) for post, one in zip(posts, asked, strict=True)]
            broken = {name: why for (name, _), why in self._desk.broken.items()}
        return {"answers": answers, "broken": broken, "layers": layers}

    def _be_given(self, given: Any) -> None:
        key, shares, known = (given.get(name) if type(given) is dict else None for name in ("key", "shares", "known"))
        if type(key) is not int or not 0 <= key < _LARGEST or type(known) is not list or len(known) != 2:
            raise refused("it gives no names of rows")
        ids, labels = known
        if not is_rows(ids, _LARGEST) or not is_rows(labels, 2**31) or len(labels) > len(ids):
            raise refused("it gives no known rows")
        if shares is not None and (type(shares) is not list or not all(type(share) is float for share in shares)):
            raise refused("it gives no shares of the classes")
        self._names, self._known = RowNames.keyed(key), ids.to(self._device)
        rows = KnownRows.recorded(self._known[: len(labels)], labels.to(self._device))
        supply = Supply(self._names, ClassShares(tuple(shares or ())), rows, Auxiliary({}), self._columns)
        self._desk = LocalDesk(supply)
        if self._saved is not None:
            self._desk.restore(self._saved)
            self._saved = None

    def _columns(self, party: str, ids: Tensor) -> Columns:
        columns = self._facts.facts_between(ids, frozenset({OwnColumns}))[OwnColumns]
        assert isinstance(columns, OwnColumns)
        return columns

    def _post(self, asked: Mapping[str, Any]) -> Post:
        name = asked.get("post")
        if type(name) is not str or name not in self.posts:
            raise UserError(
                f"party {self.party} has no such attack; it has {', '.join(self.posts)}", key="attack", value=name
            )
        post = self.posts[name]
        return replace(post, name=f"{name}{AT_THE_END}") if asked.get("renamed") is True else post

    def _rows(self, ids: Any) -> Tensor:
        if not is_rows(ids, _LARGEST):
            raise refused("it names no rows")
        rows: Tensor = ids.to(self._device)
        return rows

    def _of_round(self, posts: Collection[Post], names_layers: bool) -> Facts:
        asked = [*posts, *(filter(hinted, self.posts.values()) if names_layers else ())]
        return self._facts.facts_of_round(frozenset(kind for post in asked for kind in post.reads))

    def _rows_at_the_end(self, parts: Any, posts: Collection[Post]) -> tuple[Tensor, Facts]:
        if type(parts) is not list or len(parts) != 2:
            raise refused("it names no rows of the end of an epoch")
        followed, others = map(self._rows, parts)
        ids = torch.cat([followed, others])
        kinds = frozenset(kind for post in posts for kind in post.attack.threat.knows)
        facts = {self.party: self._facts.facts_between(ids, kinds)}
        return ids, remembered(facts, [followed, others, self._known])[self.party]

    def _layers(self, epoch: int, step: int, ids: Tensor, facts: Facts) -> dict[str, list[str]]:
        """Kind of message -> layers, for attacks with hints: they count batches that they aren't asked about."""
        round_ = Round(epoch, step, ids, facts={self.party: facts})
        kinds: set[Kind | None] = {post.message for post in self.posts.values() if hinted(post)}
        return {str(kind or ""): list(round_.layers(self.party, kind)) for kind in sorted(kinds, key=str)}

    def _answer(
        self, post: Post, asked: Mapping[str, Any], epoch: int, step: int | None, ids: Tensor, facts: Facts
    ) -> list[dict[str, Any]]:
        rows, answered = asked.get("rows"), asked.get("answered") is True
        if rows is not None and not is_rows(rows, len(ids)):
            raise refused(f"it asks attack={post.name} about rows that are none")
        rows = None if rows is None else rows.to(self._device)
        names = self._names.of(ids if rows is None else ids[rows])
        query = Query(post, epoch, step, names.clone(), rows, self._hints(asked.get("hints"), len(names)), answered)
        assert self._desk is not None
        try:
            answers = self._desk.ask(query, facts)()
        except UserError:
            raise
        except Exception as error:  # whatever an attack of a user's own raises
            problem = f"it fails at party {self.party} ({type(error).__name__}: {shown(error)})"
            raise UserError(problem, key="attack", value=post.name) from error
        return to_plain(answers, names, post.name) if answered else []

    def _hints(self, hints: Any, rows: int) -> Hints | None:
        if hints is None:
            return None
        if type(hints) is not list or len(hints) != 2 or not all(is_rows(places, rows) for places in hints):
            raise refused("its hints are about no rows")
        positives, classes = (places.to(self._device) for places in hints)
        return Hints(positives, classes)

    def state(self) -> dict[str, Any]:
        """What the attacks keep, and what the desk noted. Generators are saved with the party's others."""
        kept = self._saved if self._desk is None else self._desk.state()
        return {"posts": [[name, state_of(post.attack)] for name, post in self.posts.items()], "desk": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        for post, (_, saved) in zip(self.posts.values(), state["posts"], strict=True):
            restore_state(post.attack, saved)
        self._saved, self._desk = state["desk"], None


def hinted(post: Post) -> bool:
    """Whether it is given rows of each batch."""
    return post.threat.hints > 0 or ClassHints in post.threat.knows


def refused(problem: str) -> UserError:
    return UserError(f"what the auditor asks can't be answered: {problem}", key="engine")
