import torch

from vflbench.defenses.base import Context
from vflbench.numerics.distance_correlation import distance_correlation
from vflbench.protocols.adversaries.embedding_extension import EmbeddingExtension


def context(ids):
    return Context(ids, None, 0, torch.Generator().manual_seed(0))


def test_distance_correlation_with_the_labels_vanishes_and_the_other_columns_keep_the_label(rng):
    y = (torch.rand(512, generator=rng) < 0.5).float()[:, None]
    h = torch.randn(512, 8, generator=rng) + 3 * y
    sent = EmbeddingExtension().embedding("f1", h, context(torch.arange(512)))
    assert torch.equal(sent[:, :6], h[:, :6])
    assert float(distance_correlation(h, y)) > 0.5
    assert float(distance_correlation(sent, y)) < 0.05


def test_its_values_are_drawn_afresh_and_of_the_stated_size(rng):
    h, given = torch.randn(64, 8, generator=rng), context(torch.arange(64))
    first, second = (EmbeddingExtension(scale=7.0).embedding("f1", h, given)[:, 6:] for _ in range(2))
    assert torch.allclose(first.abs(), 7 * h.square().mean().sqrt().expand(64, 2))
    assert not torch.equal(first, second)


def test_it_does_not_learn_from_columns_that_it_made(rng):
    g = torch.randn(5, 8, generator=rng)
    learned = EmbeddingExtension(share=0.5).gradient("f1", g, g, context(torch.arange(5)))
    assert torch.equal(learned[:, :4], g[:, :4])
    assert not learned[:, 4:].any()


def test_a_single_column_and_constant_embeddings_stay_usable():
    one = torch.ones(4, 1)
    assert torch.equal(EmbeddingExtension().embedding("wide", one, context(torch.arange(4))), one)
    assert torch.equal(EmbeddingExtension().gradient("wide", one, one, context(torch.arange(4))), one)
    assert not EmbeddingExtension().embedding("f1", torch.zeros(4, 8), context(torch.arange(4))).any()
