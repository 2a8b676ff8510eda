"""What no defense can do: rows that are labelled, and a head on embeddings."""

import math

import torch

from vflbench.run.no_defense import TrainedNetwork, head, labelled


def read_of(values, labels, tests):
    return TrainedNetwork({"embeddings": values}, labels, tests, {}, 0.5)


def test_labelled_rows_are_training_rows_of_both_classes(rng):
    labels = torch.tensor([1, 0] * 10 + [0] * 57 + [1] * 3)
    read = read_of(torch.zeros(80, 1), labels, tests=20)
    drawn = list(labelled(read, 5, 50, rng))
    assert len(drawn) == 50
    assert all(int(places.min()) >= 20 and 0 < int(labels[places].sum()) < 5 for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 40


def test_a_head_reaches_the_best_reader_of_planted_embeddings(rng):
    """Classes N(+-e_1, I) in 8 dimensions: nobody exceeds Phi(sqrt 2)."""
    labels = torch.randint(2, (6000,), generator=rng)
    values = torch.randn(6000, 8, generator=rng)
    values[:, 0] += 2.0 * labels - 1
    read = read_of(values, labels, tests=3000)
    few, many = (read.aucs(head(values, read, torch.arange(3000, 3000 + k)))["test"] for k in (10, 1000))
    assert abs(many - 0.5 * (1 + math.erf(1))) < 0.02
    assert 0.6 < few < many
