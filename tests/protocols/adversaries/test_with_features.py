"""Parties with features that cheat: what a deviation reaches, and the published deviations.

By `embedding_extension` and `malicious_optimizer`.
"""

import copy

import pytest
import torch
from support.builders import session, table, weights
from torch import nn, optim

from vflbench.defenses.base import Context
from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.messages.facts import Embeddings, Gradients, SummedGradients
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.optimizers import Adam, Sgd
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.options import options
from vflbench.protocols.adversaries import Adversary
from vflbench.protocols.adversaries.embedding_extension import EmbeddingExtension
from vflbench.protocols.adversaries.malicious_optimizer import MaliciousOptimizer

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


@pytest.mark.parametrize("optimizer", [Sgd(lr=0.1), Adam(), LazyAdam(kernel="torch")])
def test_what_it_keeps_is_saved_and_restored(rows, optimizer):
    for adversary in (Stubborn(), Impatient(factor=2.0), MaliciousOptimizer()):
        whole, stopped, resumed = (
            session(rows, optimizer=optimizer, adversaries={"it": copy.deepcopy(adversary)}) for _ in range(3)
        )
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


def steps(adversary, optimizer, gradients):
    """What each of these gradients moves the weights by."""
    network, moves = nn.ParameterList([torch.zeros(gradients.shape[1])]), []
    stepper = adversary.attach(network, optimizer)
    for g in gradients:
        before = network[0].detach().clone()
        stepper.zero_grad()
        network[0].grad = g.clone()
        stepper.step()
        moves.append(network[0].detach() - before)
    return torch.stack(moves)


def test_sgd_steps_follow_the_published_ratio_coordinate_by_coordinate():
    g = torch.tensor([[1.0, 1.0, 1.0, 0.0, 1.0], [2.0, -1.0, 9.0, 1.0, 0.0], [6.0, -1.0, 9.0, 1.0, 1.0]])
    scaled = -steps(MaliciousOptimizer(), Sgd(lr=1.0), g)
    assert scaled[0].tolist() == g[0].tolist()
    assert scaled[1].tolist() == [6.0, -1.0, 45.0, 1.0, 0.0]  # ratios 1 + 2, 1 + -1 raised to 1, 1 + 9 cut to 5, 1, 1
    assert torch.allclose(scaled[2], torch.tensor([6 * 2.0, -1 * 2.0, 9 * 1.2, 1 * 2.0, 1.0]))  # the last ones were scaled


def test_adam_steps_are_scaled_not_the_gradients_that_adam_would_normalise():
    g = torch.ones(20, 3)
    honest, scaled = (steps(a, Adam(lr=0.01), g) for a in (MaliciousOptimizer(gamma=0.0), MaliciousOptimizer()))
    assert torch.allclose(honest, torch.full_like(honest, -0.01), rtol=1e-3)
    ratio = scaled / honest
    assert torch.allclose(ratio[0], torch.ones(3))
    assert bool((ratio[1:] > 1.3).all() and (ratio <= 5.001).all())


def context(rows):
    return Context(torch.arange(rows), None, 0, torch.Generator().manual_seed(0))


def test_distance_correlation_with_the_labels_vanishes_and_the_other_columns_keep_the_label(rng):
    y = (torch.rand(512, generator=rng) < 0.5).float()[:, None]
    h = torch.randn(512, 8, generator=rng) + 3 * y
    sent = EmbeddingExtension().embedding("f1", h, context(512))
    assert torch.equal(sent[:, :6], h[:, :6])
    assert float(distance_correlation(h, y)) > 0.5
    assert float(distance_correlation(sent, y)) < 0.05


def test_its_values_are_drawn_afresh_and_of_the_stated_size(rng):
    h, given = torch.randn(64, 8, generator=rng), context(64)
    first, second = (EmbeddingExtension(scale=7.0).embedding("f1", h, given)[:, 6:] for _ in range(2))
    assert torch.allclose(first.abs(), 7 * h.square().mean().sqrt().expand(64, 2))
    assert not torch.equal(first, second)


def test_it_does_not_learn_from_columns_that_it_made(rng):
    g = torch.randn(5, 8, generator=rng)
    learned = EmbeddingExtension(share=0.5).gradient("f1", g, g, context(5))
    assert torch.equal(learned[:, :4], g[:, :4])
    assert not learned[:, 4:].any()


def test_a_single_column_and_constant_embeddings_stay_usable():
    one = torch.ones(4, 1)
    assert torch.equal(EmbeddingExtension().embedding("wide", one, context(4)), one)
    assert torch.equal(EmbeddingExtension().gradient("wide", one, one, context(4)), one)
    assert not EmbeddingExtension().embedding("f1", torch.zeros(4, 8), context(4)).any()
