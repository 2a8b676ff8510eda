import copy

import pytest
import torch
from support.builders import session, table, weights
from torch import optim

from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.messages.facts import Embeddings, Gradients, SummedGradients
from vflbench.models.optimizers import Sgd
from vflbench.options import options
from vflbench.protocols.adversaries import Adversary

FACTS = frozenset({Embeddings, Gradients, SummedGradients})


@options
class Impatient(Adversary):
    """Takes steps that are `factor` times as large, by plain SGD."""

    factor: float = 100.0

    def attach(self, network, optimizer):
        return optim.SGD(network.parameters(), lr=self.factor * optimizer.lr, momentum=0.5)


@options
class Stubborn(Adversary):
    """Learns from the sum of all gradients so far, of each layer."""

    def __post_init__(self):
        self.sums = {}

    def gradient(self, layer, g, h, context):
        assert g.shape == h.shape
        assert len(context.ids) == len(context.columns.numeric) == len(g)
        self.sums[layer] = self.sums.get(layer, 0) + g
        return self.sums[layer]


@options
class Loud(Adversary):
    """Sends embeddings that are twice as long."""

    def embedding(self, layer, h, context):
        return 2 * (h.values if isinstance(h, Encoded) else h)


@pytest.fixture
def rows(rng):
    return table(rng, parties=("a", "b", "label"))


def test_what_it_learns_from_changes_its_own_party_alone(rows):
    """In one round, what others hold follows from what they were sent, and from nothing else."""
    for adversary, deviates in ((Adversary(), 3), (Impatient(), 1), (Stubborn(), 2)):  # and the round in which it deviates
        honest, cheated = (session(rows, optimizer=Sgd(lr=0.1), adversaries=it) for it in ({}, {"it": adversary}))
        for _ in range(deviates):
            assert all(map(torch.equal, weights(honest), weights(cheated))), adversary
            ours, theirs = (split.round(rows.ids, watch=FACTS).facts["a"] for split in (honest, cheated))
        networks = [[*(party.bottom for party in split.parties), split.label_party.network] for split in (honest, cheated)]
        same = [all(map(torch.equal, a.parameters(), b.parameters())) for a, b in zip(*networks, strict=True)]
        assert same == [type(adversary) is Adversary, True, True], adversary
        # Its attacks see the gradient that it received, and of its parameters those that it learned from.
        assert torch.equal(ours[Gradients].layers["f2"], theirs[Gradients].layers["f2"]), adversary
        summed = [facts[SummedGradients].parameters["stack.layers.f2.bias"] for facts in (ours, theirs)]
        assert torch.equal(*summed) is not isinstance(adversary, Stubborn), adversary


def test_what_it_sends_reaches_the_label_party_while_training_alone(rows):
    honest, cheated = session(rows), session(rows, adversaries={"it": Loud()})
    assert torch.equal(honest.predict(rows.ids), cheated.predict(rows.ids))
    ours, theirs = (split.round(rows.ids, watch=FACTS).facts for split in (honest, cheated))
    sent = [facts["label"][Embeddings].received for facts in (ours, theirs)]
    assert torch.equal(sent[1]["a"]["f2"], 2 * sent[0]["a"]["f2"])
    assert torch.equal(sent[1]["b"]["f2"], sent[0]["b"]["f2"])
    assert torch.equal(ours["a"][Embeddings].layers["f2"], theirs["a"][Embeddings].layers["f2"])  # its own activations


def test_what_it_keeps_is_saved_and_restored(rows):
    for adversary in (Stubborn(), Impatient(factor=2.0)):
        whole, stopped, resumed = (session(rows, adversaries={"it": copy.deepcopy(adversary)}) for _ in range(3))
        for _ in range(2):
            whole.round(rows.ids)
            stopped.round(rows.ids)
        resumed.restore(stopped.state())
        stopped.round(rows.ids)  # which must not reach what was restored
        for _ in range(2):
            whole.round(rows.ids)
            resumed.round(rows.ids)
        assert all(map(torch.equal, weights(whole), weights(resumed))), adversary


def test_parties_that_can_not_cheat_are_refused(rows):
    wrong = {
        r"adversary\.x\.party=c: there is no such non-label party; there are a, b": {"x": Loud(party="c")},
        r"adversary\.x\.party=label: there is no such non-label party": {"x": Loud(party="label")},
        r"adversary\.y\.party=a: another adversary cheats at that party": {"x": Loud(), "y": Stubborn()},
    }
    for problem, adversaries in wrong.items():
        with pytest.raises(UserError, match=problem):
            session(rows, adversaries=adversaries)
    both = session(rows, adversaries={"x": Loud(), "y": Stubborn(party="b")})
    both.round(rows.ids)
