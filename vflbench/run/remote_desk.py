"""The attacks of a party that lives in a process of its own: questions go there, and answers come back."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack
from vflbench.errors import shown
from vflbench.messages.envelope import Content
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassHints, ClassShares, Known, KnownColumn
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary, PeerArchitectures, PeerModels, Queries
from vflbench.messages.round import Facts, Round
from vflbench.messages.threat import Seat
from vflbench.run.desk import AT_THE_END, Desk, Query
from vflbench.run.known_rows import KnownRows, Population, RowNames
from vflbench.run.plain_answers import Arrival, is_name, refused
from vflbench.run.posts import Hints, Post

Call = Callable[[str, Content], Content]
"""(method, content) -> what the process of a party answers."""

_LONGEST = 500  # letters of why a reference failed


class RemoteDesk(Desk):
    """Posts of a party in its own process. What is asked is gathered, and sent in one call when an answer is waited for.

    party: its name. call: to its process. given: what its attacks may know of the run, sent along with the first questions.
    classes: K.
    """

    def __init__(self, party: str, call: Call, given: Mapping[str, Any], classes: int):
        super().__init__()
        self._party, self._call, self._classes = party, call, classes
        self._given: Mapping[str, Any] | None = given
        self._about: dict[str, Any] = {}
        self._queries: list[Query] = []
        self._names_layers = False
        self._answers: dict[int, Answers] = {}
        self._asked = 0

    def note(self, round_: Round, posts: Sequence[Post]) -> None:
        self.send()
        self._about = {"epoch": round_.epoch, "step": round_.step, "ids": round_.ids.cpu()}
        self._names_layers = any(post.threat.hints or ClassHints in post.threat.knows for post in posts)

    def note_end(self, epoch: int, parts: Sequence[Tensor]) -> None:
        self.send()
        followed, others, _ = parts  # known rows went there with what was given
        self._about = {"epoch": epoch, "step": None, "ids": [followed.cpu(), others.cpu()]}
        self._names_layers = False

    def layers(self, post: Post) -> Callable[[], Sequence[str]]:
        return partial(self._layers_now, post)

    def _layers_now(self, post: Post) -> Sequence[str]:
        self.send()
        return self._layers.get((post.party, post.message), ())

    def ask(self, query: Query, facts: Facts) -> Callable[[], Answers]:
        self._queries.append(query)
        number = self._asked
        self._asked += 1
        return partial(self._answer, number)

    def _answer(self, number: int) -> Answers:
        if number not in self._answers:
            self.send()
        return self._answers.pop(number)

    def send(self) -> None:
        queries, self._queries = self._queries, []
        if not queries and not self._names_layers:
            return
        request = {**self._about, "layers": self._names_layers, "queries": [_plain(query) for query in queries]}
        if self._given is not None:
            request["given"] = self._given
        self._names_layers = False
        reply = self._call("ask", request)
        self._given = None
        self._take(reply, queries)

    def _take(self, reply: Any, queries: Sequence[Query]) -> None:
        answers, broken, layers = (reply.get(name) for name in ("answers", "broken", "layers"))
        if type(answers) is not list or len(answers) != len(queries):
            raise refused(self._party, f"it was asked {len(queries)} questions, and answers otherwise")
        if type(broken) is not dict or not all(is_name(name) and type(why) is str for name, why in broken.items()):
            raise refused(self._party, "it says of no attack why it failed")
        first = self._asked - len(queries)
        for number, (query, content) in enumerate(zip(queries, answers, strict=True)):
            if query.answered:
                arrival = Arrival(self._party, query.post, query.names, self._classes)
                self._answers[first + number] = arrival.answers(content)
        self.broken |= {(name, self._party): shown(why, _LONGEST) for name, why in broken.items()}
        self._take_layers(layers)

    def _take_layers(self, layers: Any) -> None:
        kinds = ["", *(str(kind) for kind in Kind)]
        if type(layers) is not dict or not set(layers) <= set(kinds):
            raise refused(self._party, "it names no layers")
        for kind, named in layers.items():
            if type(named) is not list or not all(map(is_name, named)):
                raise refused(self._party, "it names no layers")
            self._layers[self._party, Kind(kind) if kind else None] = tuple(named)


def _plain(query: Query) -> dict[str, Any]:
    """Hints are what the post declares, and no more."""
    post, renamed = query.post, query.post.name.endswith(AT_THE_END)
    return {
        "post": post.name.removesuffix(AT_THE_END),
        "renamed": renamed,
        "rows": None if query.rows is None else query.rows.cpu(),
        "hints": None if query.hints is None else _hints(post, query.hints),
        "answered": query.answered,
    }


def _hints(post: Post, hints: Hints) -> list[Tensor]:
    classes = hints.classes if ClassHints in post.threat.knows else hints.classes[:0]
    return [hints.positives[: post.threat.hints].cpu(), classes.cpu()]


def given_to(posts: Sequence[Post], names: RowNames, known: KnownRows, train: Population) -> dict[str, Any]:
    """What the attacks of a party may know of the run, and nothing that none of them declares.

    The key of the row names goes with it, and not the names: it is drawn before anything is known of rows or labels, and a
    party knows the ids of its rows, so it tells the process nothing. Names hide places in the file from attacks alone.
    Ids of known rows come with labels only as far as an attack of this party declares them. The ids after these serve to
    embed all known rows at once, as the run in one process does, and are in an order of their own where the first of them
    could tell their class: `KnownRows` begins with a row of each.
    """
    knows = {kind for post in posts for kind in post.threat.knows}
    count = max((post.threat.known_rows for post in posts if Known in post.threat.knows), default=0)
    ids = known.ids if count else known.ids[:0]
    if count < train.classes:
        ids = torch.cat([ids[:count], ids[count:].sort().values])
    return {
        "key": names.key,
        "classes": train.classes,
        "shares": list(train.class_ratios) if ClassShares in knows else None,
        "known": [ids.cpu(), known.labels[:count].cpu()],
    }


def remote_desks(
    calls: Mapping[str, Call], posts: Sequence[Post], names: RowNames, known: KnownRows, train: Population
) -> dict[str, RemoteDesk]:
    """Party -> its desk."""
    return {
        party: RemoteDesk(
            party, call, given_to([post for post in posts if post.party == party], names, known, train), train.classes
        )
        for party, call in calls.items()
    }


_ELSEWHERE: Mapping[type[Fact], str] = {
    PeerModels: "the network of every other party",
    PeerArchitectures: "the networks of the other parties, as they were built",
    Queries: "the network and the defenses of every other party, to be asked about any rows",
    Auxiliary: "columns of other parties",
    KnownColumn: "a column of another party",
}


def unmet_apart(attacks: Mapping[str, Attack], remote: Collection[str]) -> dict[str, str]:
    """Attack -> why it can't run where these parties live in processes of their own."""
    reasons: dict[str, str] = {}
    whose = f"part{'ies' if len(remote) > 1 else 'y'} {', '.join(remote)}"
    for name, attack in attacks.items() if remote else ():
        missing = [what for kind, what in _ELSEWHERE.items() if kind in attack.threat.knows]
        if missing:
            what = " and ".join(missing)
            reasons[name] = f"the process of {attack.threat.seat.place} would have to hold {what}; {whose} live elsewhere"
        elif attack.threat.seat is Seat.LABEL:
            problem = "what it rebuilds would be compared with columns, and the process that grades it has none of those of"
            reasons[name] = f"{problem} {whose}"
    return reasons


def notes_apart(remote: Collection[str], *, dcor: bool, record: str) -> list[str]:
    """Lines on what is not measured, or not recorded, where these parties live in processes of their own."""
    notes = []
    if remote and dcor:
        notes.append(f"audit.dcor=true: of {', '.join(remote)}, only embeddings that cross are measured, as they arrive")
    if remote and record != "none":
        problem = "only what crosses is recorded here; each keeps a recording of its own rounds in its own folder"
        notes.append(f"record={record}: of {', '.join(remote)}, {problem}")
    return notes
