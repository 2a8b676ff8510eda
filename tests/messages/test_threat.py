import pytest
import torch

from vflbench.errors import UserError
from vflbench.messages import facts
from vflbench.messages.threat import Role, Threat, Unavailable, Undeclared, View
from vflbench.messages.wire import Kind


def test_a_threat_reads_as_a_line_a_sentence_and_plain_values():
    threat = Threat(knows={facts.Gradients, facts.PartyFeatures}, known_rows=20, hints=1)
    knows = "1 known positive of each batch, gradients, own columns"
    assert str(threat) == f"non-label party; knows {knows}, the labels of 20 rows"
    sentence = f"An honest-but-curious attacker at a non-label party, who knows: {knows} and the labels of 20 rows."
    record = threat.record()
    assert record["knows"] == ["gradients", "known labels", "known positives of each batch", "own columns"]
    assert (record["level"], record["message"], record["text"]) == ("known labels", "gradient", sentence)
    active = Threat(Role.LABEL, {facts.Embeddings}, active=True)
    assert str(active) == "label party; knows embeddings; active"
    assert active.sentence() == "An active attacker at the label party, who knows: embeddings."
    nobody = Threat(Role.PARTICIPANT)
    assert str(nobody) == "participant; knows nothing"
    assert nobody.sentence() == "An honest-but-curious attacker at one of the participants."
    assert nobody.record()["message"] == "none"
    assert Threat(knows=(), hints=3).titles == ["3 known positives of each batch"]


def test_the_message_is_the_first_of_gradients_embeddings_updates():
    for knows, message in (
        ({facts.Gradients, facts.Embeddings, facts.LocalModel}, Kind.GRADIENT),
        ({facts.LocalModel, facts.PartyFeatures}, Kind.EMBEDDING),
        ({facts.Updates, facts.PartyFeatures}, Kind.UPDATE),
        ({facts.Predictions, facts.PartyFeatures, facts.ClassShares}, Kind.PREDICTION),
        ({facts.Predictions, facts.Embeddings}, Kind.EMBEDDING),
        ({facts.PartyFeatures, facts.ClassShares}, None),
    ):
        assert Threat(knows=knows).message is message, knows


def test_a_threat_that_does_not_say_how_many_rows_it_knows_is_refused():
    for wrong in ({"knows": {facts.Known}}, {"knows": {facts.BatchHints}}, {"known_rows": -1}, {"hints": -2}):
        with pytest.raises(ValueError, match="must say how many: known_rows or hints"):
            Threat(**wrong)


IDS = torch.tensor([40, 10, 30])


def known_facts():
    """What party a knows of a round."""
    return {
        facts.Embeddings: facts.Embeddings({"f1": torch.ones(3, 2)}),
        facts.Gradients: facts.Gradients({"f1": torch.full((3, 2), 7.0)}),
        facts.PartyFeatures: facts.PartyFeatures(torch.zeros(3, 1), torch.zeros(3, 0, dtype=torch.int32)),
        facts.BatchHints: facts.BatchHints(torch.tensor([2])),
        facts.Known: facts.Known(IDS[:2], torch.tensor([0, 1])),
    }


def view_of(threat, known=None):
    return View("a", 3, 5, IDS.clone(), torch.Generator(), threat, known_facts() if known is None else known)


def test_declared_facts_are_there_and_all_others_raise_whether_the_round_has_them_or_not():
    view = view_of(Threat(knows={facts.Gradients, facts.PartyFeatures, facts.ClassShares}, hints=1))
    assert (view.party, view.epoch, view.step, view.ids.tolist()) == ("a", 3, 5, [40, 10, 30])
    assert view[facts.Gradients].layers["f1"].tolist() == [[7.0, 7.0]] * 3
    assert view[facts.BatchHints].places.tolist() == [2]
    assert facts.PartyFeatures in view
    for kind in (facts.Embeddings, facts.Known, facts.Auxiliary):
        assert kind not in view
        with pytest.raises(Undeclared, match=f"the attack reads {kind.__name__}, but declares .* own columns"):
            view[kind]
    assert facts.ClassShares not in view
    with pytest.raises(Unavailable, match="the attack reads ClassShares, which party a does not have here"):
        view[facts.ClassShares]
    assert issubclass(Undeclared, UserError)
    assert issubclass(Unavailable, UserError)


def test_an_attack_that_writes_into_its_facts_changes_nothing_for_others():
    known, threat = known_facts(), Threat(knows={facts.Gradients, facts.PartyFeatures})
    first = view_of(threat, known)
    for tensor in (first[facts.Gradients].layers["f1"], first[facts.PartyFeatures].numeric):
        tensor.fill_(-1)
    first[facts.Gradients].layers["f9"] = torch.zeros(3, 1)
    assert first[facts.Gradients].layers["f1"].tolist() == [[-1.0, -1.0]] * 3  # its own copy, the same at each reading
    second = view_of(threat, known)
    assert second[facts.Gradients].layers["f1"].tolist() == [[7.0, 7.0]] * 3
    assert list(second[facts.Gradients].layers) == ["f1"]
    assert not second[facts.PartyFeatures].numeric.any()


def test_passing_a_view_on_never_widens_what_is_known():
    view = view_of(Threat(knows={facts.Gradients}))
    with pytest.raises(Undeclared, match=r"one that also knows \['Embeddings', 'PartyFeatures'\]"):
        view.passed_on(Threat(knows={facts.Gradients, facts.PartyFeatures, facts.Embeddings}))
    given = view.passed_on(
        Threat(knows={facts.Embeddings}), facts.Embeddings({"f1": torch.zeros(3, 1)}), facts.ClassShares((0.5, 0.5))
    )
    assert given[facts.Embeddings].layers["f1"].shape == (3, 1)
    for kind in (facts.Gradients, facts.ClassShares):  # given, but not declared
        with pytest.raises(Undeclared):
            given[kind]
    less = view.passed_on(Threat())
    with pytest.raises(Undeclared):
        less.passed_on(Threat(knows={facts.Gradients}))
