import pytest

from vflbench.messages.facts import (
    BatchHints,
    ClassHints,
    ClassShares,
    Embeddings,
    Gradients,
    Known,
    LocalModel,
    PartyFeatures,
    PeerModels,
    Predictions,
    Updates,
)
from vflbench.messages.threat import Role, Threat
from vflbench.messages.wire import Kind


def test_a_threat_reads_as_a_line_a_sentence_and_plain_values():
    threat = Threat(knows={Gradients, PartyFeatures}, known_rows=20, hints=1)
    assert str(threat) == (
        "non-label party; knows 1 known positive of each batch, gradients, own columns, the labels of 20 rows"
    )
    assert threat.sentence() == (
        "An honest-but-curious attacker at a non-label party, who knows: 1 known positive of each batch, gradients, "
        "own columns and the labels of 20 rows."
    )
    assert threat.record() == {
        "role": "non-label party",
        "knows": ["gradients", "known labels", "known positives of each batch", "own columns"],
        "known_rows": 20,
        "hints": 1,
        "active": False,
        "level": "known labels",
        "message": "gradient",
        "text": threat.sentence(),
    }


def test_active_and_ignorant_attackers_have_sentences_too():
    active = Threat(Role.LABEL, {Embeddings}, active=True)
    assert str(active) == "label party; knows embeddings; active"
    assert active.sentence() == "An active attacker at the label party, who knows: embeddings."
    nobody = Threat(Role.PARTICIPANT)
    assert str(nobody) == "participant; knows nothing"
    assert nobody.sentence() == "An honest-but-curious attacker at one of the participants."
    assert nobody.record()["message"] == "none"
    assert Threat(knows={ClassHints}, hints=3).titles == [
        "3 known positives of each batch",
        "one known row of each class in each batch",
    ]


def test_the_message_is_the_first_of_gradients_embeddings_updates():
    for knows, message in (
        ({Gradients, Embeddings, LocalModel}, Kind.GRADIENT),
        ({Embeddings, ClassShares, PeerModels}, Kind.EMBEDDING),
        ({LocalModel, PartyFeatures}, Kind.EMBEDDING),
        ({Updates, PartyFeatures}, Kind.UPDATE),
        ({Predictions, PartyFeatures, ClassShares}, Kind.PREDICTION),
        ({Predictions, Embeddings}, Kind.EMBEDDING),
        ({PartyFeatures, ClassShares}, None),
    ):
        assert Threat(knows=knows).message is message, knows


def test_a_threat_that_does_not_say_how_many_rows_it_knows_is_refused():
    for wrong in (
        {"knows": {Known}},
        {"knows": {BatchHints}},
        {"knows": {Known}, "hints": 3},
        {"known_rows": -1},
        {"hints": -2},
    ):
        with pytest.raises(ValueError, match="must say how many: known_rows or hints"):
            Threat(**wrong)
