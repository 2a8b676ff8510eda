import torch
from attacks.views import class_scores, rings
from sklearn.metrics import adjusted_mutual_info_score

from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.spectral_clustering import SpectralClustering
from vflbench.messages.facts import ClassHints, ClassShares


def test_rings_are_cut_apart_where_k_means_halves_them(rng):
    x, y = rings(rng, [60, 150, 250])
    shares = ClassShares((0.1, 0.3, 0.6))
    ours, theirs = (class_scores(x, shares, kind).argmax(1) for kind in (SpectralClustering, Kmeans))
    assert (ours == y).all()
    assert adjusted_mutual_info_score(y, theirs) < 0.5


def test_rows_that_were_not_drawn_are_scored_by_those_that_were(rng):
    x, y = rings(rng, [300, 500, 900])
    hints = torch.tensor([0, 301, 1699])
    for known, options in ((ClassShares((0.2, 0.3, 0.5)), {}), (ClassHints(hints), {"map": "hints"})):
        answer = class_scores(x, known, SpectralClustering, rows=700, **options).argmax(1)
        assert (answer == y).double().mean() > 0.99, options
