import math

import pytest
import torch
from defenses.contexts import drawing
from support.distinguishing import lower_bound

from vflbench.defenses.base import Context
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.vector_quantize import VectorQuantize


def test_rows_are_shortened_and_noise_is_as_wide_as_said(rng):
    for mechanism, order in (("gaussian", 2), ("laplace", 1)):
        h = torch.randn(1, 8, generator=rng).repeat(10_000, 1) * 10
        defense = EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=4.0, delta=1e-3)
        sent = defense.embedding(h, drawing(rng))
        assert torch.allclose(sent.mean(dim=0), h[0] * 3 / h[0].norm(order), atol=0.16), mechanism
        noise = sent - h * 3 / h[0].norm(order)
        deviation = defense.scale if mechanism == "gaussian" else math.sqrt(2) * 6 / 4
        assert noise.std().item() == pytest.approx(deviation, rel=0.02), mechanism
        kurtosis = (noise / noise.std()).pow(4).mean().item()
        assert kurtosis == pytest.approx(3 if mechanism == "gaussian" else 6, rel=0.1), mechanism
        short = torch.full((4, 8), 0.3)
        mean = EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=1e6).embedding(short, drawing(rng))
        assert torch.allclose(mean, short, atol=0.03), mechanism


@pytest.mark.slow
def test_nobody_who_must_tell_two_embeddings_apart_beats_the_promise(rng):
    """Opposite rows along the first coordinate, which is as far apart as two can be."""
    for mechanism, delta in (("gaussian", 0.01), ("laplace", 0.0)):
        defense = EmbeddingNoise(mechanism=mechanism, norm=1.5, eps=2.0, delta=0.01)
        rows = [torch.tensor([[sign * 9.0, 0.0]]).repeat(40_000, 1) for sign in (-1, 1)]
        ends = [defense.embedding(h, drawing(rng))[:, 0].double().numpy() for h in rows]
        assert 0.55 * 2.0 < lower_bound(*ends, delta) <= 2.0, mechanism


def test_the_promise_is_eps_and_survives_what_comes_after():
    for mechanism, delta in (("gaussian", 1e-6), ("laplace", 0.0)):
        noise = EmbeddingNoise(mechanism=mechanism, eps=0.7)
        for after in ({}, {"quantize": Quantize()}, {"vector_quantize": VectorQuantize()}):
            ((name, release),) = Chain({"noise": noise, **after}).claims(8).releases
            assert (name, release.delta) == ("noise", delta)
            assert 0.999 * 0.7 < release.epsilon <= 0.7, mechanism
            assert "least bits" in release.assumes
        assert noise.guarantee() is None  # nothing about labels


def visits(defense, h, rng, epochs, change=0.0):
    """Messages about the same rows in so many epochs, in orders of their own; between these, h moves by `change`."""
    n, messages = len(h), []
    for epoch in range(epochs):
        order = torch.randperm(n, generator=rng)
        sent = torch.empty_like(h)
        sent[order] = defense.embedding((h + change * epoch)[order], Context(order, None, epoch, rng))
        messages.append(sent)
    return torch.stack(messages)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_an_attacker_who_averages_epochs_removes_fresh_noise_and_not_that_of_a_row(rng, mechanism):
    h = torch.nn.functional.normalize(torch.randn(50, 4, generator=rng)) / 2
    errors = {}
    for memoise in ("none", "noise", "message"):
        defense = EmbeddingNoise(mechanism=mechanism, eps=20.0, memoise=memoise)
        errors[memoise] = float((visits(defense, h, rng, 40).mean(dim=0) - h).std() / defense.scale)
    unit = 1 if mechanism == "gaussian" else math.sqrt(2)
    assert errors["none"] < 0.25 * unit
    assert errors["noise"] == pytest.approx(unit, rel=0.25)
    assert errors["message"] == pytest.approx(unit, rel=0.25)


def test_an_attacker_who_takes_differences_reads_changes_behind_the_noise_of_a_row(rng):
    """Which is why no eps is claimed of two messages with the same noise; one that is sent again says nothing new."""
    h, change = torch.full((50, 4), 0.1), torch.tensor([0.1, -0.05, 0.0, 0.2])
    for memoise in ("noise", "message"):
        defense = EmbeddingNoise(eps=0.5, memoise=memoise)
        first, second = visits(defense, h, rng, 2, change)
        release = Chain({"noise": defense}).claims(4).releases[0][1]
        if memoise == "noise":
            assert torch.allclose(second - first, change.expand(50, 4), atol=0.02)  # beside noise of deviation 17
            assert release.after(2, 1e-6) == math.inf
            assert "differences" in release.reason
        else:
            assert torch.equal(first, second)
            assert release.messages(20, 0) == 1
            assert release.messages(20, 20) == 21  # each prediction has noise of its own
            assert release.after(21, release.delta_after(21)) > release.after(1, release.delta_after(1))
        assert 0.499 < release.epsilon <= 0.5
    fresh = EmbeddingNoise(eps=0.5)
    first, second = visits(fresh, h, rng, 2, change)
    assert (second - first - change).std() > 10
    assert 1 < Chain({"noise": fresh}).claims(4).releases[0][1].after(20, 4e-5) < 10


def test_a_message_that_is_sent_again_teaches_nothing(rng):
    defense, h, g = EmbeddingNoise(memoise="message"), torch.randn(4, 3, generator=rng), torch.ones(4, 3)
    ids = torch.tensor([5, 2, 3, 9])
    sent = defense.embedding(h, drawing(rng, ids))
    assert defense.received(g, h, drawing(rng, ids))[:, 0].tolist() == [1, 1, 1, 1]
    again = defense.embedding(h + 1, drawing(rng, torch.tensor([9, 7, 2, 8])))
    assert torch.equal(again[[0, 2]], sent[[3, 1]])
    assert defense.received(g, h, drawing(rng, ids))[:, 0].tolist() == [0, 1, 0, 1]
    assert not torch.equal(EmbeddingNoise().received(g, h, drawing(rng, ids)), 0 * g)


@pytest.mark.parametrize("memoise", ["noise", "message"])
def test_asking_about_other_rows_does_not_tell_the_noise_of_a_row(rng, memoise):
    """Features that a party is asked about have ids below 0."""
    defense, h = EmbeddingNoise(memoise=memoise), torch.zeros(3, 4)
    trained = defense.embedding(h, drawing(rng, torch.arange(3)))
    asked = [defense.embedding(h, drawing(rng, -1 - torch.arange(3))) for _ in range(2)]
    assert not any(torch.isin(one, trained).any() for one in asked)
    assert not torch.equal(*asked)
    assert torch.equal(defense.embedding(h, drawing(rng, torch.arange(3))), trained)
