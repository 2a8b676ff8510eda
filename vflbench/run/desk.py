"""Desks: where the attacks of a party are asked, in this process or in the party's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from vflbench.attacks.base import Answers
from vflbench.messages.message import Kind
from vflbench.messages.round import Facts, Round
from vflbench.messages.view import Unavailable, Undeclared, View
from vflbench.run.helpers import Helpers
from vflbench.run.posts import Hints, Post
from vflbench.run.supply import Supply

AT_THE_END = " (epoch)"  # follows the name of an attack that answers about batches as well


@dataclass(frozen=True)
class Query:
    """What one post is asked.

    epoch, step: when; step is None at the end of an epoch. names: (n,) of the rows. rows: (n,) their places in the batch,
    or among the rows of the end; None for the whole batch. hints: None where none are drawn for these rows. answered:
    whether the answer counts; else the attack only keeps what it sees.
    """

    post: Post
    epoch: int
    step: int | None
    names: Tensor
    rows: Tensor | None = None
    hints: Hints | None = None
    answered: bool = True


class Desk:
    """Where posts are asked. broken: name and party of a reference on own columns -> why it can't read them."""

    def __init__(self) -> None:
        self.broken: dict[tuple[str, str], str] = {}
        self._layers: dict[tuple[str, Kind | None], tuple[str, ...]] = {}

    def note(self, round_: Round, posts: Sequence[Post]) -> None:
        """A round is over, about which these posts may be asked next."""
        raise NotImplementedError

    def note_end(self, epoch: int, parts: Sequence[Tensor]) -> None:
        """An epoch is over, about whose rows posts may be asked next. parts: ids (n,) each: of the rows that are followed,
        the others, and those whose label is known.
        """

    def layers(self, post: Post) -> Callable[[], Sequence[str]]:
        """The layers of the round that was noted for which the party has values of the post's kind of message."""
        layers = self._layers.get((post.party, post.message), ())
        return lambda: layers

    def ask(self, query: Query, facts: Facts) -> Callable[[], Answers]:
        """Returns a function that waits for the answer. facts: of the party, as far as this process has them."""
        raise NotImplementedError

    def send(self) -> None:
        """Have everything done that was asked."""

    def state(self) -> dict[str, Any]:
        return {
            "broken": [[*reference, why] for reference, why in self.broken.items()],
            "layers": [[party, str(kind or ""), list(layers)] for (party, kind), layers in self._layers.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.broken = {(name, party): why for name, party, why in state["broken"]}
        self._layers = {(party, Kind(kind) if kind else None): tuple(layers) for party, kind, layers in state["layers"]}


class LocalDesk(Desk):
    """Posts of this process. An attack is asked at once, or in a thread beside this one if it only reads.

    supply: the facts that an attack may read, beside those of its party. helpers: threads that ask about batches.
    """

    def __init__(self, supply: Supply, helpers: Helpers | None = None):
        super().__init__()
        self._supply, self._helpers = supply, helpers

    def note(self, round_: Round, posts: Sequence[Post]) -> None:
        for post in posts:
            self._layers[post.party, post.message] = round_.layers(post.party, post.message)

    def ask(self, query: Query, facts: Facts) -> Callable[[], Answers]:
        post, rows = query.post, query.rows
        if rows is not None:
            facts = {kind: fact.rows(rows) for kind, fact in facts.items() if kind in post.reads}
        known = post.facts(self._supply.to(post, facts), query.hints)
        view = post.view(query.epoch, query.step, query.names, known)
        if not query.answered and post.attack.attends:
            with _naming(post):
                post.attack.attend(view)
            return _nothing
        if self._helpers is not None and post.only_reads and query.answered and query.step is not None:
            key = (post.name, post.party, post.visible)
            return self._helpers.begin(key, partial(self._answer, post, view)).result
        answers = self._answer(post, view)
        return lambda: answers

    def _answer(self, post: Post, view: View) -> Answers:
        """What it answers. A reference on own columns may fail, as not every attack can do without its layers."""
        ask = post.attack.batch if view.step is not None else post.attack.epoch
        if not post.on_columns:
            with _naming(post):
                return ask(view)
        if (post.name, post.party) in self.broken:
            return None
        try:
            return ask(view)
        except Exception as error:  # whatever a user's attack raises for layers of other names and widths
            why = f"it can't read own columns in place of messages: {type(error).__name__}: {error}"
            self.broken[post.name, post.party] = why
            return None


@contextmanager
def _naming(post: Post) -> Iterator[None]:
    """While entered, an error over facts names the attack."""
    try:
        yield
    except (Undeclared, Unavailable) as error:
        raise type(error)(error.problem, key=error.key or f"attack={post.name}", value=error.value, see=error.see) from error


def _nothing() -> None:
    return None
