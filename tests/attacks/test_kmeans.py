import torch
from attacks.views import blobs, view_of

from vflbench.attacks.base import MESSAGE_FACTS
from vflbench.attacks.kmeans import Kmeans, by_hints, by_ratios
from vflbench.messages.facts import ClassHints, ClassShares


def scores(x, known, **options):
    """known: class shares, or a row of each class."""
    attack = Kmeans(**options)
    return attack.batch(view_of(attack.threat, MESSAGE_FACTS[attack.message]({"f1": x}), known)).layers.get("f1")


def test_classes_of_different_sizes_are_recognised_by_their_shares(rng):
    for message in ("embeddings", "gradients"):
        x, y = blobs(rng, [100, 50, 200])
        answer = scores(x, ClassShares((0.3, 0.1, 0.6)), message=message)
        assert answer.shape == (350, 3)
        assert (answer.argmax(1) == y).all(), message


def test_one_known_row_of_each_class_names_the_clusters(rng):
    x, y = blobs(rng, [60, 60, 60, 60])
    assert (scores(x, ClassHints(torch.tensor([3, 70, 150, 239])), map="hints").argmax(1) == y).all()


def test_shift_and_units_do_not_matter(rng):
    x, y = blobs(rng, [100, 50, 200])
    for unit in (1e-25, 1e25):
        assert (scores((x + 50) * unit, ClassShares((0.3, 0.1, 0.6))).argmax(1) == y).all(), unit


def test_clusters_are_paired_one_to_one():
    sizes = torch.tensor([5, 9, 2])
    labels = torch.arange(3).repeat_interleave(sizes).numpy()
    assert by_ratios(labels, (0.2, 0.3, 0.5)).tolist() == [2, 0, 1]
    both_near_the_first = torch.tensor([[0.0, 10.0], [1.0, 3.0]]).numpy()
    assert by_hints(both_near_the_first).tolist() == [0, 1]
