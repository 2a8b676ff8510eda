import pytest
import torch

from vflbench.errors import UserError
from vflbench.messages.facts import BatchHints, ClassShares, Embeddings, Gradients, Known, PartyFeatures
from vflbench.messages.threat import Threat, Unavailable, Undeclared, View

IDS = torch.tensor([40, 10, 30])


def facts():
    """What party a knows of a round."""
    return {
        Embeddings: Embeddings({"f1": torch.ones(3, 2)}),
        Gradients: Gradients({"f1": torch.full((3, 2), 7.0)}),
        PartyFeatures: PartyFeatures(torch.zeros(3, 1), torch.zeros(3, 0, dtype=torch.int32)),
        BatchHints: BatchHints(torch.tensor([2])),
        Known: Known(IDS[:2], torch.tensor([0, 1])),
    }


def view_of(threat, known=None, **options):
    return View("a", 3, 5, IDS.clone(), torch.Generator(), threat, facts() if known is None else known, **options)


def test_declared_facts_are_there():
    view = view_of(Threat(knows={Gradients, PartyFeatures}, hints=1))
    assert (view.party, view.epoch, view.step, view.ids.tolist(), view.visible) == ("a", 3, 5, [40, 10, 30], True)
    assert view[Gradients].layers["f1"].tolist() == [[7.0, 7.0]] * 3
    assert view[BatchHints].places.tolist() == [2]
    assert PartyFeatures in view
    assert not view_of(Threat(knows={Gradients}), visible=False).visible


def test_undeclared_facts_raise_whether_they_are_there_or_not():
    view = view_of(Threat(knows={Gradients}))
    for kind in (Embeddings, PartyFeatures, BatchHints, Known, ClassShares):
        assert kind not in view
        with pytest.raises(Undeclared) as refusal:
            view[kind]
        expected = f"the attack reads {kind.__name__}, but declares this threat: non-label party; knows gradients"
        assert str(refusal.value) == expected
    assert issubclass(Undeclared, UserError)


def test_declared_facts_that_this_round_lacks_are_unavailable():
    view = view_of(Threat(knows={Gradients, ClassShares}), {Gradients: facts()[Gradients]})
    assert ClassShares not in view
    with pytest.raises(Unavailable, match="the attack reads ClassShares, which party a does not have here"):
        view[ClassShares]
    assert issubclass(Unavailable, UserError)


def test_an_attack_that_writes_into_its_facts_changes_nothing_for_others():
    known, threat = facts(), Threat(knows={Gradients, PartyFeatures}, known_rows=2, hints=1)
    first = view_of(threat, known)
    for tensor in (first[Gradients].layers["f1"], first[PartyFeatures].numeric, first[BatchHints].places, first[Known].ids):
        tensor.fill_(-1)
    first[Gradients].layers["f9"] = torch.zeros(3, 1)
    assert first[Gradients].layers["f1"].tolist() == [[-1.0, -1.0]] * 3  # its own copy, the same at each reading
    assert first.ids.tolist() == IDS.tolist()
    second = view_of(threat, known)
    assert second[Gradients].layers["f1"].tolist() == [[7.0, 7.0]] * 3
    assert list(second[Gradients].layers) == ["f1"]
    assert (second[BatchHints].places.tolist(), second[Known].ids.tolist()) == ([2], [40, 10])
    assert not second[PartyFeatures].numeric.any()


def test_passing_a_view_on_never_widens_what_is_known():
    view = view_of(Threat(knows={Gradients}))
    with pytest.raises(Undeclared, match=r"one that also knows \['Embeddings', 'PartyFeatures'\]"):
        view.passed_on(Threat(knows={Gradients, PartyFeatures, Embeddings}))
    given = view.passed_on(Threat(knows={Embeddings}), Embeddings({"f1": torch.zeros(3, 1)}), ClassShares((0.5, 0.5)))
    assert given[Embeddings].layers["f1"].shape == (3, 1)
    for kind in (Gradients, ClassShares):  # given, but not declared
        with pytest.raises(Undeclared):
            given[kind]
    less = view.passed_on(Threat())
    with pytest.raises(Undeclared):
        less.passed_on(Threat(knows={Gradients}))
