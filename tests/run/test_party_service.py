"""A party's process answers what was agreed, and refuses everything else by name; so does the label party's side."""

import pytest
import torch
from support.builders import experiment
from support.loopback import apart

from vflbench import __version__
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.split_guard import SplitGuard
from vflbench.generators import Generators
from vflbench.messages.serialize import PartyError
from vflbench.models.networks import WideDeep
from vflbench.protocols.split import Split
from vflbench.run.setup import join_parties

HELLO = {"version": __version__, "classes": 2, "batch_size": 4, "cheating": []}


@pytest.fixture(scope="module")
def data():
    return Synthetic(rows=60, vocabulary=160).load(Generators(0)["data"])


@pytest.fixture
def link(data, tmp_path):
    whole = experiment(model=WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True), attacks={})
    return apart(whole, data, tmp_path).engine.links["a"]


@pytest.fixture
def party(link):
    """As the label party sees it."""
    return join_parties({"a": link}, lambda: Chain({}), HELLO)["a"]


def test_a_hello_comes_first_and_of_the_same_version(link):
    with pytest.raises(PartyError, match="before it said hello"):
        link.call("embed", STEP)
    problem = rf"party a: it has vflbench {__version__} and the label party 0\.0\.7; install the same"
    with pytest.raises(PartyError, match=problem):
        link.call("hello", {**HELLO, "version": "0.0.7"})


STEP = {"ids": torch.arange(4), "epoch": 0, "watched": False}


@pytest.mark.parametrize(
    ("method", "content", "problem"),
    [
        ("hello", {**HELLO, "classes": "2"}, "classes"),
        ("hello", {**HELLO, "batch_size": -1}, "batch_size"),
        ("embed", {**STEP, "ids": torch.tensor([0, 10**6])}, r"doesn't have: it has 60"),
        ("embed", {**STEP, "ids": torch.zeros(2, 2, dtype=torch.int64)}, "rows that are none"),
        ("embed", {**STEP, "ids": torch.zeros(241, dtype=torch.int64)}, "the same rows many times"),
        ("embed", {**STEP, "epoch": "5"}, "an epoch that is none"),
        ("embed", {**STEP, "epoch": -1}, "an epoch that is none"),
        ("learn", {"gradient": {}, "watched": False}, "without an embedding"),
        ("resume", {"mark": "../../../etc/x"}, "checkpoint"),
        ("resume", {"mark": "0123456789abcde/"}, "checkpoint"),
        ("handle", {}, "doesn't know"),
    ],
)
def test_a_request_that_is_none_is_refused(link, method, content, problem):
    link.call("hello", HELLO)
    with pytest.raises(PartyError, match=problem):
        link.call(method, content)


F2, WIDE = torch.zeros(4, 8), {"wide": torch.zeros(4, 1)}


def test_a_gradient_of_another_shape_is_refused_by_name(link):
    link.call("hello", HELLO)
    link.call("embed", STEP)
    before = [p.clone() for p in link.process.local_party.bottom.parameters()]
    shape = r"no gradient: layer f2 must be \(4, 8\) torch.float32, not \(4, 7\)"
    for f2, problem in ((F2[:, :7], shape), (F2.double(), "float64"), ("x", "is no tensor")):
        with pytest.raises(PartyError, match=problem):
            link.call("learn", {"gradient": {"f2": f2, **WIDE}, "watched": False})
    assert all(map(torch.equal, before, link.process.local_party.bottom.parameters()))


def answering(link, change):
    call = link.call
    link.call = lambda method, content: {**call(method, content), **change}


NO_NAMES = [{"numeric": [name]} for name in ("\x1b[2J", "=1+1")]
NO_SIZES = [{"cardinalities": [-1] * 26}, {"widths": [8]}, {"rows": 10**300}]


@pytest.mark.parametrize("change", [*NO_NAMES, *NO_SIZES, {"sends": ["f2", "f2"]}, {"guarded": "no"}, {"extra": 1}])
def test_a_party_that_announces_what_is_none_is_refused_by_name(link, change):
    answering(link, change)
    with pytest.raises(PartyError, match="party a: it says no names and sizes"):
        join_parties({"a": link}, lambda: Chain({}), HELLO)


EMBEDDINGS = [{"f2": F2[:, :7], **WIDE}, {"f2": F2.double(), **WIDE}, {"f2": F2}, None, {}]


@pytest.mark.parametrize("change", [{"notes": [1]}, {"stopped": True}, *({"message": sent} for sent in EMBEDDINGS)])
def test_an_answer_that_is_none_is_refused_by_name(link, party, change):
    sent = party.embed(torch.arange(4)).result()
    answering(link, change)
    with pytest.raises(PartyError, match="party a"):
        (party.embed(torch.arange(4)) if "message" in change else party.learn(sent)).result()


@pytest.mark.parametrize("figures", [None, {"f2": {"a": "b"}}, {"f9": {"a": 1.0}}, {"f2": {"\n": 1.0}}])
def test_figures_and_checkpoints_that_are_none_are_refused_by_name(link, party, figures):
    answering(link, {"figures": figures, "mark": None})
    with pytest.raises(PartyError, match="party a"):
        party.figures()
    with pytest.raises(PartyError, match="party a"):
        party.state()


def greeted(data, folder, defense, **changes):
    whole = experiment(model=WideDeep(bottom_layers=2, top_layers=1, width=8), attacks={}, defenses=defense, **changes)
    link = apart(whole, data, folder).engine.links["a"]
    link.process.secret = b"s" * 32
    link.call("hello", HELLO)
    return link


def embedded(link, row):
    return link.call("embed", {**STEP, "ids": torch.tensor([row])})["message"]["f2"]


def test_no_request_puts_the_same_noise_on_another_row(data, tmp_path):
    """Who asks twice gets the same answer; who goes back to a checkpoint, or begins anew, and asks for another row gets
    noise that was drawn for that.
    """
    noise = {"embedding_noise": EmbeddingNoise(eps=1.0)}
    honest = {row: embedded(greeted(data, tmp_path / f"p{row}", {}), row) for row in (0, 3)}
    difference = honest[0] - honest[3]

    link = greeted(data, tmp_path / "a", noise)
    mark = link.call("save", {})["mark"]
    first = embedded(link, 0)
    link.call("resume", {"mark": mark})
    assert torch.equal(embedded(link, 0), first)
    link.call("resume", {"mark": mark})
    assert (first - embedded(link, 3) - difference).abs().max() > 0.5
    with pytest.raises(PartyError, match="has been greeted"):
        link.call("hello", HELLO)

    again, anew, later = (greeted(data, tmp_path / name, noise) for name in "bcd")
    assert torch.equal(embedded(again, 0), first)
    assert (first - embedded(anew, 3) - difference).abs().max() > 0.5
    embedded(later, 5)
    assert (embedded(later, 0) - first).abs().max() > 0.5


def test_the_label_party_can_not_choose_the_order_that_guards_do_not_see(data, tmp_path):
    with pytest.raises(PartyError, match="has to see each answer"):
        greeted(data, tmp_path, {"split_guard": SplitGuard()}, protocol=Split(staleness=1))
