import pytest
import torch
from attacks.views import embeddings, gradients, view_of

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.esa import Esa
from vflbench.attacks.hints import Hints
from vflbench.attacks.model_inversion import ModelInversion
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.messages.facts import (
    Auxiliary,
    BatchHints,
    ClassShares,
    Embeddings,
    Gradients,
    LocalTop,
    PartyFeatures,
    PeerModels,
    Predictions,
    Queries,
    Updates,
)
from vflbench.messages.threat import Role, Threat, Undeclared
from vflbench.messages.wire import Kind


class Greedy(Attack):
    """Declares embeddings, reads gradients."""

    threat = Threat(knows={Embeddings})

    def batch(self, view):
        return Scores(view.ids, view[Gradients].layers)


def test_what_was_not_declared_cannot_be_read():
    view = view_of(Greedy.threat, embeddings(torch.ones(3, 2)), gradients(torch.ones(3, 2)))
    with pytest.raises(Undeclared, match="reads Gradients, but declares this threat: non-label party; knows embeddings"):
        Greedy().batch(view)


def test_unmet_needs_are_named():
    everything = frozenset({Gradients, Embeddings, ClassShares})
    assert Norm().unmet(everything, classes=2) is None
    assert Norm().unmet(frozenset({Embeddings}), classes=2, where="this recording") == (
        "gradients are not in this recording for the non-label party"
    )
    assert Norm().unmet(everything, classes=10) == "it tells 2 classes apart, and the labels have 10"


def test_an_attack_that_does_not_say_what_it_knows_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match="Silent must define `threat`"):

        class Silent(Attack):
            follows = 3


@pytest.mark.parametrize(
    ("attack", "threat", "message"),
    [
        (Hints(k=4), Threat(knows={Gradients, BatchHints}, hints=4), Kind.GRADIENT),
        (Spectral(message="gradients"), Threat(knows={Gradients, ClassShares}), Kind.GRADIENT),
        (NoMessage(k=7), Threat(knows={PartyFeatures, BatchHints}, hints=7), None),
        (ModelInversion(), Threat(Role.LABEL, {Embeddings, PeerModels}), Kind.EMBEDDING),
        (ModelInversion(mode="black_box"), Threat(Role.LABEL, {Embeddings, Queries, Auxiliary}), Kind.EMBEDDING),
        (Esa(), Threat(Role.LABEL, {Predictions, PeerModels, LocalTop, PartyFeatures}), Kind.PREDICTION),
        (BatchReconstruction(), Threat(Role.PARTICIPANT, {Updates, PartyFeatures, ClassShares}), Kind.UPDATE),
    ],
)
def test_threats_follow_the_options(attack, threat, message):
    assert attack.threat == threat
    assert attack.threat.message is message
