"""What no defense can do: rows that are labelled, and a head on embeddings."""

import math

import pytest
import torch

from vflbench.errors import UserError
from vflbench.run.no_defense import Read, head, labelled


def read_of(values, labels, tests):
    return Read({"embeddings": values}, labels, tests, {}, 0.5)


def test_labelled_rows_are_training_rows_of_both_classes(rng):
    labels = torch.tensor([1, 0] * 10 + [0] * 57 + [1] * 3)
    read = read_of(torch.zeros(80, 1), labels, tests=20)
    drawn = list(labelled(read, 5, 50, rng))
    assert len(drawn) == 50
    assert all(int(places.min()) >= 20 and 0 < int(labels[places].sum()) < 5 for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 40


def test_aucs_leave_out_the_rows_that_were_fitted():
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    read = read_of(torch.zeros(6, 1), labels, tests=2)
    scores = torch.tensor([1.0, 0.0, 0.0, 1.0, 5.0, 2.0])
    assert read.aucs(scores) == {"test": 0.0, "train": 0.5}
    assert read.aucs(scores, torch.tensor([4])) == {"test": 0.0, "train": 1.0}


def test_a_head_reaches_the_best_reader_of_planted_embeddings(rng):
    """Classes N(+-e_1, I) in 8 dimensions: nobody exceeds Phi(sqrt 2)."""
    labels = torch.randint(2, (6000,), generator=rng)
    values = torch.randn(6000, 8, generator=rng)
    values[:, 0] += 2.0 * labels - 1
    read = read_of(values, labels, tests=3000)
    best = 0.5 * (1 + math.erf(1))
    few, many = (read.aucs(head(values, read, torch.arange(3000, 3000 + k)))["test"] for k in (10, 1000))
    assert abs(many - best) < 0.02
    assert 0.6 < few < many


def test_rows_of_one_class_are_refused_and_not_drawn_for_ever(rng):
    with pytest.raises(UserError, match="two classes"):
        next(labelled(read_of(torch.zeros(8, 1), torch.tensor([1, 1] + [0] * 6), tests=2), 3, 1, rng))
