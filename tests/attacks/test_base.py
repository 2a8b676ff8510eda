import pytest
import torch
from attacks.views import embeddings, gradients, view_of

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.hints import Hints
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import ClassShares, Embeddings, Gradients
from vflbench.messages.threat import Threat, Undeclared


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
    missing = Norm().unmet(frozenset({Embeddings}), classes=2, where="this recording")
    assert missing == "gradients are not in this recording for the non-label party"
    assert Norm().unmet(everything, classes=10) == "it tells 2 classes apart, and the labels have 10"


def test_an_attack_that_does_not_say_what_it_knows_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match="Silent must define `threat`"):
        type("Silent", (Attack,), {})


@pytest.mark.parametrize("kind", [Cosine, Hints, NoMessage])
def test_the_option_k_is_the_number_of_rows_whose_label_is_known(kind):
    assert kind(k=7).threat.hints == 7
