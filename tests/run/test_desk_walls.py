"""What crosses between the auditor and the attacks of a party in another process, and what may not."""

import math

import pytest
import torch
from builders import run_in
from loopback import Loopback
from reachable import arrays, reachable
from separated_runs import HERE, parts, separated

from vflbench.attacks.base import Attack, ClassCounts, RebuiltBatch, RebuiltRows, Scores
from vflbench.attacks.completion import Completion
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Gradients, OwnColumns
from vflbench.messages.round import Round
from vflbench.messages.threat import Threat
from vflbench.run.auditor import Auditor
from vflbench.run.desk import Query
from vflbench.run.known_rows import RowNames
from vflbench.run.party_desk import PartyDesk
from vflbench.run.plain_answers import Arrival, to_plain
from vflbench.run.posts import Post
from vflbench.run.remote_desk import RemoteDesk

NAMES = RowNames.keyed(7).of(torch.arange(5))
POST = Post("norm", Norm(), Norm().threat, "a", torch.Generator(), visible=True)


class OwnGradients:
    """A party that knows gradients of five rows."""

    def facts_of_round(self, kinds):
        return {Gradients: Gradients({"f2": torch.eye(5)})}

    def facts_between(self, ids, kinds):
        return {OwnColumns: OwnColumns(torch.ones(len(ids), 2), torch.zeros(len(ids), 0).int())}


def desk(**attacks):
    return PartyDesk("a", attacks or {"norm": Norm()}, Generators(0), OwnGradients())


def request(**changes):
    query = {"post": "norm", "renamed": False, "rows": None, "hints": None, "answered": True}
    given = {"key": 7, "classes": 2, "shares": None, "known": [torch.arange(0), torch.arange(0)]}
    asked = {"epoch": 0, "step": 3, "ids": torch.arange(5), "layers": False, "given": given}
    queries = [{**query, **{name: changes.pop(name) for name in query if name in changes}}]
    given |= {name: changes.pop(name) for name in given if name in changes}
    return {**asked, "queries": queries, **changes}


def test_a_desk_answers_with_places_and_scores():
    reply = desk().handle(request())
    (scores,) = reply["answers"][0]
    assert scores["rows"] is None
    assert scores["layers"]["f2"].tolist() == [1.0] * 5
    assert Arrival("a", POST, NAMES, 2).answers([scores])[0].ids.tolist() == NAMES.tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"given": None},
        {"key": "x"},
        {"key": -1},
        {"known": [torch.arange(3)]},
        {"known": [torch.arange(3), torch.arange(4)]},
        {"known": [torch.rand(3), torch.arange(3)]},
        {"shares": [1]},
        {"queries": None},
        {"queries": [3]},
        {"epoch": 1.5},
        {"step": "3"},
        {"ids": torch.rand(5)},
        {"ids": [0, 1]},
        {"step": None},
        {"step": None, "ids": [torch.arange(2)]},
        {"post": "cosine"},
        {"post": 3},
        {"rows": torch.tensor([5])},
        {"rows": torch.tensor([-1])},
        {"rows": torch.tensor([0.5])},
        {"hints": [torch.arange(2)]},
        {"hints": [torch.tensor([9]), torch.arange(0)]},
    ],
    ids=lambda _: "",
)
def test_a_desk_refuses_what_is_no_request(change):
    with pytest.raises(UserError, match="auditor asks can't be answered|party a has no such attack"):
        desk().handle(request(**change))


def scores(**changes):
    layers = {"f2": torch.rand(5)}
    return {"type": "scores", "rows": None, "by_layer": True, "layers": layers, "message": None, "candidates": {}, **changes}


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        [None],
        [{"type": "truth"}],
        [scores(rows=torch.tensor([0, 0, 1, 2, 3]))],
        [scores(rows=torch.tensor([0, 1, 2, 3, 5]))],
        [scores(rows=torch.rand(5))],
        [scores(rows=torch.arange(4))],
        [scores(layers={"f2": torch.rand(4)})],
        [scores(layers={"f2": torch.rand(5, 3)})],
        [scores(layers={"f2": torch.full((5,), math.nan)})],
        [scores(layers={"f2": [1.0] * 5})],
        [scores(layers={"f2": torch.zeros(5, dtype=torch.complex64)})],
        [scores(layers={"\x1b[2J": torch.rand(5)})],
        [scores(layers={"f" * 300: torch.rand(5)})],
        [scores(layers=torch.rand(5))],
        [scores(by_layer=False)],
        [scores(by_layer="yes")],
        [scores(message="telepathy")],
        [scores(candidates={"f2": torch.rand(5)})],
        [scores(candidates={"f2": torch.full((5, 2), math.inf)})],
        [{"type": "class counts", "layers": {"f2": torch.rand(3)}}],
        [{"type": "class counts", "layers": {"f2": torch.tensor([math.inf, 1.0])}}],
        [{"type": "rebuilt rows", "rows": None, "layer": "f2", "features": {}, "figures": None, "note": ""}],
        [
            {
                "type": "rebuilt rows",
                "rows": None,
                "layer": "f2",
                "features": {"b": [torch.rand(4, 2), torch.rand(5, 0)]},
                "figures": {},
                "note": "",
            }
        ],
    ],
    ids=lambda _: "",
)
def test_an_answer_that_is_none_is_refused_with_the_name_of_the_party(content):
    with pytest.raises(UserError, match="party a sends what is no answer"):
        Arrival("a", POST, NAMES, 2).answers(content)


def test_answers_arrive_as_they_were_given():
    rows = RebuiltRows(NAMES[1:3], "f2", {"b": OwnColumns(torch.rand(2, 3), torch.ones(2, 1).int())}, {"steps": 3.0}, "so")
    counts = ClassCounts({"f2": torch.tensor([3.0, 2.0])})
    some = Scores(NAMES[[3, 0]], torch.tensor([1.0, 2.0]))
    back = Arrival("a", POST, NAMES, 2).answers(to_plain([some, None, counts, rows], NAMES, "norm"))
    assert [type(answer) for answer in back] == [Scores, ClassCounts, RebuiltRows]
    assert torch.equal(back[0].ids, some.ids)
    assert torch.equal(back[0].layers, some.layers)
    assert torch.equal(back[1].layers["f2"], counts.layers["f2"])
    assert torch.equal(back[2].features["b"].numeric, rows.features["b"].numeric)
    assert (back[2].layer, back[2].figures, back[2].note) == ("f2", {"steps": 3.0}, "so")


def test_an_answer_that_nobody_can_grade_there_is_refused():
    with pytest.raises(UserError, match="it answered with RebuiltBatch"):
        to_plain(RebuiltBatch(0, torch.zeros(2), 0.5), NAMES, "norm")
    with pytest.raises(UserError, match="must be a tensor, got list"):
        to_plain(Scores(NAMES, {"f2": [1.0] * 5}), NAMES, "norm")
    with pytest.raises(UserError, match="rows of the view"):
        to_plain(Scores(NAMES + 1, {"f2": torch.rand(5)}), NAMES, "norm")


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"answers": []},
        {"answers": [[], []]},
        {"answers": [[]], "broken": []},
        {"answers": [[]], "broken": {"norm": 3}},
        {"answers": [[]], "broken": {}, "layers": []},
        {"answers": [[]], "broken": {}, "layers": {"telepathy": []}},
        {"answers": [[]], "broken": {}, "layers": {"gradient": ["f1", 2]}},
        {"answers": [3], "broken": {}, "layers": {}},
    ],
    ids=lambda _: "",
)
def test_a_reply_that_is_none_is_refused_with_the_name_of_the_party(reply):
    asked = RemoteDesk("a", lambda *_: reply, {}, 2)
    asked.note(Round(0, 3, torch.arange(5)), [POST])
    answer = asked.ask(Query(POST, 0, 3, NAMES), {})
    with pytest.raises(UserError, match="party a sends what is no answer"):
        answer()


class Listening:
    """Copies what crosses between the auditor and a party. meddle: changes a reply."""

    def __init__(self, link: Loopback, meddle=lambda reply: reply):
        self.said, self._meddle, self._call = [], meddle, link.call
        link.call = self.call

    def call(self, method, content):
        reply = self._call(method, content)
        if method == "ask":
            self.said.append((content, reply))
            return self._meddle(reply)
        return reply


def tensors(content):
    if isinstance(content, torch.Tensor):
        return [content]
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


@pytest.mark.slow
def test_a_run_with_a_hostile_party_ends_with_its_name(tmp_path):
    def meddle(reply):
        return {**reply, "answers": [[scores(layers={"f2": torch.full((128,), math.nan)})] for _ in reply["answers"]]}

    whole = parts({"norm": Norm()})
    far = separated(tmp_path, whole)
    Listening(far.engine.links["a"], meddle)
    with pytest.raises(UserError, match=r"party a sends what is no answer: attack=norm: its scores on f2"):
        run_in(tmp_path, **{**whole, "engine": far.engine})


@pytest.mark.slow
def test_nothing_of_a_party_reaches_the_auditor_but_what_crossed(tmp_path, monkeypatch):
    """And scores. The same eyes find hidden layers where the party lives in the auditor's process."""
    attacks = {name: HERE[name] for name in ("norm", "completion", "direct", "spectral", "posterior")}
    whole = parts(attacks)
    seen = []

    def see(auditor, round_):
        layers = {layer for fact in round_.facts.get("a", {}).values() for layer in getattr(fact, "layers", ())}
        seen.append((auditor, round_, layers))
        return original(auditor, round_)

    original = Auditor.see
    monkeypatch.setattr(Auditor, "see", see)
    run_in(tmp_path / "here", **whole)
    assert set().union(*(layers for _, _, layers in seen)) == {"f1", "f2"}
    seen.clear()
    far = separated(tmp_path / "apart", whole)
    listening = Listening(far.engine.links["a"])
    run_in(tmp_path / "apart", **{**whole, "engine": far.engine})
    assert set().union(*(layers for _, _, layers in seen)) == {"f2"}
    sent = [tensor for _, reply in listening.said for tensor in tensors(reply["answers"])]
    assert sent
    assert all(tensor.ndim == 1 or (tensor.ndim == 2 and tensor.shape[1] <= 2) for tensor in sent)
    link = far.engine.links["a"]
    party, link.process = link.process.service.party, None  # nothing else leads to the party's process
    hidden = [values.detach()[0].numpy() for values in (party.activations["f1"], party.activations["f1"].grad)]
    there = [array.tobytes() for array in arrays(list(seen[-1]))]
    crossed = next(iter(seen[-1][1].facts["a"].values())).layers["f2"][0].numpy()
    assert any(crossed.tobytes() in memory for memory in there)
    assert not any(row.tobytes() in memory for row in hidden for memory in there)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attacks", "known"),
    [
        ({"norm": Norm(), "direct": HERE["direct"], "averaging": HERE["averaging"]}, 0),
        ({"completion": Completion(known=20)}, 20),
        ({"completion": Completion(known=20), "more": Completion(known=30), "hints": Hints(k=2)}, 30),
    ],
    ids=lambda _: "",
)
def test_no_label_reaches_a_party_but_those_that_its_attacks_declare(attacks, known, tmp_path):
    whole = parts(attacks)
    far = separated(tmp_path, whole)
    listening = Listening(far.engine.links["a"])
    run_in(tmp_path, **{**whole, "engine": far.engine})
    data = far.dataset.load(Generators(0)["data"])
    asked = [content for content, _ in listening.said]
    given = [content["given"] for content in asked if "given" in content]
    assert len(given) == 1
    ids, labels = given[0]["known"]
    assert len(labels) == known
    assert torch.equal(labels, data.aligned().labels(ids[:known]))
    assert bool(len(ids)) == bool(known)
    for content in asked:
        places = [*tensors(content.get("ids")), *tensors([query["rows"] for query in content["queries"]])]
        hints = tensors([query["hints"] for query in content["queries"]])
        assert {id(one) for one in tensors({**content, "given": None})} == {id(one) for one in places + hints}
        most = max(attack.threat.hints for attack in attacks.values())
        assert all(len(one) <= most for one in hints)
    here = far.engine.links["a"].process.service._desk
    here._facts = None  # the party's own

    def like_labels():
        held = [one for one in reachable(here) if isinstance(one, torch.Tensor) and one.dtype is torch.int64 and one.ndim]
        return [one for one in held if len(one) > known and bool((one >= 0).all() & (one < 2).all())]

    assert not like_labels()
    here._facts = {"planted": [data.aligned().labels(data.train.all().ids)]}
    assert len(like_labels()) == 1


@pytest.mark.slow
def test_ids_of_known_rows_are_in_an_order_that_tells_no_class(tmp_path):
    """`KnownRows` begins with a row of each class; an attack that knows one label isn't shown which row is the other."""

    class One(Attack):
        threat = Threat(knows={Gradients}, known_rows=1)

        def batch(self, view):
            return Scores(view.ids, {layer: g.norm(dim=1) for layer, g in view[Gradients].layers.items()})

    whole = parts({"one": One()})
    far = separated(tmp_path, whole)
    listening = Listening(far.engine.links["a"])
    run_in(tmp_path, **{**whole, "engine": far.engine})
    ids, labels = listening.said[0][0]["given"]["known"]
    assert len(labels) == 1
    assert torch.equal(ids[1:], ids[1:].sort().values)
