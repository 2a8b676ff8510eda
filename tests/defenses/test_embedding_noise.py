import math

import pytest
import torch
from defenses.contexts import drawing
from distinguishing import lower_bound

from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.vector_quantize import VectorQuantize


def test_rows_are_shortened_and_noise_is_as_wide_as_said(rng):
    for mechanism, order in (("gaussian", 2), ("laplace", 1)):
        h = torch.randn(1, 8, generator=rng).repeat(100_000, 1) * 10
        defense = EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=4.0, delta=1e-3)
        sent = defense.embedding(h, drawing(rng))
        assert torch.allclose(sent.mean(dim=0), h[0] * 3 / h[0].norm(order), atol=0.08), mechanism
        noise = sent - h * 3 / h[0].norm(order)
        deviation = defense.scale if mechanism == "gaussian" else math.sqrt(2) * 6 / 4
        assert noise.std().item() == pytest.approx(deviation, rel=0.01), mechanism
        kurtosis = (noise / noise.std()).pow(4).mean().item()
        assert kurtosis == pytest.approx(3 if mechanism == "gaussian" else 6, rel=0.05), mechanism
        short = torch.full((4, 8), 0.3)
        mean = EmbeddingNoise(mechanism=mechanism, norm=3.0, eps=1e6).embedding(short, drawing(rng))
        assert torch.allclose(mean, short, atol=0.03), mechanism


def test_nobody_who_must_tell_two_embeddings_apart_beats_the_promise(rng):
    """Opposite rows along the first coordinate, which is as far apart as two can be."""
    for mechanism, delta in (("gaussian", 0.01), ("laplace", 0.0)):
        for eps in (0.5, 2.0):
            defense = EmbeddingNoise(mechanism=mechanism, norm=1.5, eps=eps, delta=0.01)
            rows = [torch.tensor([[sign * 9.0, 0.0]]).repeat(100_000, 1) for sign in (-1, 1)]
            ends = [defense.embedding(h, drawing(rng))[:, 0].double().numpy() for h in rows]
            assert 0.6 * eps < lower_bound(*ends, delta) <= eps, (mechanism, eps)


def test_the_promise_is_eps_and_survives_what_comes_after():
    for mechanism, delta in (("gaussian", 1e-6), ("laplace", 0.0)):
        noise = EmbeddingNoise(mechanism=mechanism, eps=0.7)
        for after in ({}, {"quantize": Quantize()}, {"vector_quantize": VectorQuantize()}):
            ((name, release),) = Chain({"noise": noise, **after}).claims(8).releases
            assert (name, release.delta) == ("noise", delta)
            assert release.epsilon == pytest.approx(0.7, rel=1e-6), mechanism
        assert noise.guarantee() is None  # nothing about labels
