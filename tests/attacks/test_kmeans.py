"""Classes as clusters: what k-means and the clusters of the graph of neighbours have in common, and pairs of clusters."""

import pytest
import torch
from attacks.views import blobs, class_scores, rings

from vflbench.attacks.kmeans import Kmeans, by_hints, by_ratios
from vflbench.attacks.spectral_clustering import SpectralClustering
from vflbench.messages.facts import ClassHints, ClassShares

KINDS = pytest.mark.parametrize("kind", [Kmeans, SpectralClustering])


@KINDS
def test_classes_of_different_sizes_are_recognised_by_their_shares(rng, kind):
    for message in ("embeddings", "gradients"):
        x, y = blobs(rng, [100, 50, 200])
        answer = class_scores(x, ClassShares((0.3, 0.1, 0.6)), kind, message=message)
        assert answer.shape == (350, 3)
        assert (answer.argmax(1) == y).all(), message


def test_one_known_row_of_each_class_names_the_clusters(rng):
    for kind, (x, y) in ((Kmeans, blobs(rng, [120, 120, 121])), (SpectralClustering, rings(rng, [120, 120, 121]))):
        assert (class_scores(x, ClassHints(torch.tensor([3, 130, 350])), kind, map="hints").argmax(1) == y).all(), kind


@KINDS
def test_shift_and_units_do_not_matter(rng, kind):
    x, y = blobs(rng, [100, 50, 200])
    for unit in (1e-25, 1e25):
        assert (class_scores((x + 50) * unit, ClassShares((0.3, 0.1, 0.6)), kind).argmax(1) == y).all(), unit


def test_clusters_are_paired_one_to_one():
    labels = torch.arange(3).repeat_interleave(torch.tensor([5, 9, 2])).numpy()
    assert by_ratios(labels, (0.2, 0.3, 0.5)).tolist() == [2, 0, 1]
    assert by_hints(torch.tensor([[0.0, 10.0], [1.0, 3.0]]).numpy()).tolist() == [0, 1]  # both near the first
