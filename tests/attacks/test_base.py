import pytest
import torch
from attacks.views import view_of

from vflbench.attacks.base import Attack
from vflbench.attacks.norm import Norm
from vflbench.messages.transcript import Knowledge, UndeclaredKnowledgeError
from vflbench.messages.wire import Kind


class Greedy(Attack):
    """Declares embeddings, reads gradients."""

    knows = frozenset({Knowledge.EMBEDDINGS})
    scores = Kind.GRADIENT

    def infer(self, view):
        return dict(view.gradients)


def test_what_was_not_declared_cannot_be_read():
    view = view_of(Greedy.knows, gradients={"f1": torch.ones(3, 2)})
    with pytest.raises(UndeclaredKnowledgeError, match="gradients"):
        Greedy().infer(view)
    with pytest.raises(UndeclaredKnowledgeError, match="prior"):
        _ = view.prior


def test_unmet_needs_are_told_in_words():
    everything = frozenset(Knowledge)
    assert Norm().unmet(everything, classes=2) is None
    assert "gradients" in Norm().unmet(frozenset({Knowledge.EMBEDDINGS}), classes=2)
    assert "10" in Norm().unmet(everything, classes=10)


def test_an_attack_that_does_not_say_what_it_knows_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match="Silent must define `knows`"):

        class Silent(Attack):
            scores = Kind.GRADIENT
