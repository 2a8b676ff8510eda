"""Classes as clusters: of k-means, and of the graph of neighbours."""

import math

import pytest
import torch
from attacks.views import blobs, view_of
from sklearn.metrics import adjusted_mutual_info_score

from vflbench.attacks.base import MESSAGE_FACTS
from vflbench.attacks.kmeans import Kmeans, by_hints, by_ratios
from vflbench.attacks.spectral_clustering import SpectralClustering
from vflbench.messages.facts import ClassHints, ClassShares


def rings(rng, sizes):
    """Class k evenly on a circle of radius 1 + 2 k, of a plane in 8 dimensions."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    angle = torch.cat([2 * math.pi * (torch.arange(n) + torch.rand(n, generator=rng)) / n for n in sizes])
    plane = (1 + 2 * y)[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=rng)).Q
    return torch.nn.functional.pad(plane, (0, 6)) @ rotation + 0.03 * torch.randn(len(y), 8, generator=rng), y


def scores(x, known, kind=SpectralClustering, **options):
    """known: class shares, or a row of each class."""
    attack = kind(**options)
    return attack.batch(view_of(attack.threat, MESSAGE_FACTS[attack.message]({"f1": x}), known)).layers.get("f1")


KINDS = pytest.mark.parametrize("kind", [Kmeans, SpectralClustering])


@KINDS
def test_classes_of_different_sizes_are_recognised_by_their_shares(rng, kind):
    for message in ("embeddings", "gradients"):
        x, y = blobs(rng, [100, 50, 200])
        answer = scores(x, ClassShares((0.3, 0.1, 0.6)), kind, message=message)
        assert answer.shape == (350, 3)
        assert (answer.argmax(1) == y).all(), message


def test_rings_are_cut_apart_where_k_means_halves_them(rng):
    x, y = rings(rng, [60, 150, 250])
    shares = ClassShares((0.1, 0.3, 0.6))
    ours, theirs = (scores(x, shares, kind).argmax(1) for kind in (SpectralClustering, Kmeans))
    assert (ours == y).all()
    assert adjusted_mutual_info_score(y, theirs) < 0.5


def test_one_known_row_of_each_class_names_the_clusters(rng):
    for kind, (x, y) in ((Kmeans, blobs(rng, [120, 120, 121])), (SpectralClustering, rings(rng, [120, 120, 121]))):
        assert (scores(x, ClassHints(torch.tensor([3, 130, 350])), kind, map="hints").argmax(1) == y).all(), kind


def test_rows_that_were_not_drawn_are_scored_by_those_that_were(rng):
    x, y = rings(rng, [300, 500, 900])
    hints = torch.tensor([0, 301, 1699])
    for known, options in ((ClassShares((0.2, 0.3, 0.5)), {}), (ClassHints(hints), {"map": "hints"})):
        answer = scores(x, known, rows=700, **options).argmax(1)
        assert (answer == y).double().mean() > 0.99, options


@KINDS
def test_shift_and_units_do_not_matter(rng, kind):
    x, y = blobs(rng, [100, 50, 200])
    for unit in (1e-25, 1e25):
        assert (scores((x + 50) * unit, ClassShares((0.3, 0.1, 0.6)), kind).argmax(1) == y).all(), unit


def test_clusters_are_paired_one_to_one():
    sizes = torch.tensor([5, 9, 2])
    labels = torch.arange(3).repeat_interleave(sizes).numpy()
    assert by_ratios(labels, (0.2, 0.3, 0.5)).tolist() == [2, 0, 1]
    both_near_the_first = torch.tensor([[0.0, 10.0], [1.0, 3.0]]).numpy()
    assert by_hints(both_near_the_first).tolist() == [0, 1]
