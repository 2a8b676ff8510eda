"""An attack that reads what it didn't declare is named: of several, a user must know which one to mend."""

from types import SimpleNamespace

import pytest
import torch

from vflbench.attacks.base import Attack
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.threat import Threat
from vflbench.messages.view import Unavailable, Undeclared, View
from vflbench.run.desk import LocalDesk


class Reads(Attack):
    threat = Threat(knows={Gradients})

    def __init__(self, fact):
        self.fact = fact

    def batch(self, view):
        return view[self.fact]


@pytest.mark.parametrize(("fact", "refusal"), [(Embeddings, Undeclared), (Gradients, Unavailable)])
def test_an_attack_that_reads_what_it_may_not_is_named(fact, refusal):
    attack = Reads(fact)
    post = SimpleNamespace(name="mine", attack=attack, on_columns=False)
    view = View("a", 0, 0, torch.arange(2), torch.Generator(), attack.threat, {})
    with pytest.raises(refusal, match=f"^attack=mine: the attack reads {fact.__name__}, "):
        LocalDesk(None)._answer(post, view)
