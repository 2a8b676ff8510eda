import pytest
import torch
from attacks.views import view_of
from sklearn.metrics import adjusted_mutual_info_score

from vflbench.attacks.kmeans import Kmeans, by_hints, by_ratios
from vflbench.messages.transcript import Knowledge
from vflbench.messages.wire import Kind


def blobs(rng, sizes, gap=8.0, d=6):
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return gap * torch.eye(len(sizes), d)[y] + torch.randn(len(y), d, generator=rng), y


def infer(x, **options):
    known = {name: options.pop(name) for name in ("ratios", "class_hints") if name in options}
    attack = Kmeans(**options)
    layers = {"embeddings" if attack.scores is Kind.EMBEDDING else "gradients": {"f1": x}}
    return attack.infer(view_of(attack.knows, **layers, **known)).get("f1")


@pytest.mark.parametrize("message", ["embeddings", "gradients"])
def test_classes_of_different_sizes_are_found_by_their_ratios(rng, message):
    x, y = blobs(rng, [100, 50, 200])
    scores = infer(x, message=message, ratios=(0.3, 0.1, 0.6))
    assert scores.shape == (350, 3)
    assert (scores.argmax(1) == y).all()


def test_one_known_row_of_each_class_names_the_clusters(rng):
    x, y = blobs(rng, [60, 60, 60, 60])
    scores = infer(x, map="hints", class_hints=[3, 70, 150, 239])
    assert (scores.argmax(1) == y).all()


def test_the_pairing_changes_accuracy_and_not_mutual_information(rng):
    x, y = blobs(rng, [60, 61, 62, 63], gap=5.0)
    right, wrong = (infer(x, ratios=ratios).argmax(1) for ratios in ((0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1)))
    assert (right == y).double().mean() > 0.9
    assert (wrong == y).double().mean() < 0.1
    ami = [adjusted_mutual_info_score(y, answer) for answer in (right, wrong)]
    assert ami[0] == pytest.approx(ami[1])


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_shift_and_units_do_not_matter(rng, unit):
    x, y = blobs(rng, [100, 50, 200])
    assert (infer((x + 50) * unit, ratios=(0.3, 0.1, 0.6)).argmax(1) == y).all()


def test_a_constant_layer_says_nothing_and_a_small_batch_is_not_scored(rng):
    scores = infer(torch.full((64, 8), 0.1), ratios=(0.5, 0.3, 0.2))
    assert (scores == scores[0]).all()
    assert infer(torch.randn(2, 8, generator=rng), ratios=(0.5, 0.3, 0.2)) is None


def test_clusters_are_paired_one_to_one():
    sizes = torch.tensor([5, 9, 2])
    labels = torch.arange(3).repeat_interleave(sizes).numpy()
    assert by_ratios(labels, (0.2, 0.3, 0.5)).tolist() == [2, 0, 1]
    both_near_the_first = torch.tensor([[0.0, 10.0], [1.0, 3.0]]).numpy()
    assert by_hints(both_near_the_first).tolist() == [0, 1]


def test_what_it_knows_follows_its_options():
    assert Kmeans.knows == Kmeans().knows == {Knowledge.EMBEDDINGS, Knowledge.PRIOR}
    assert Kmeans(message="gradients", map="hints").knows == {Knowledge.GRADIENTS, Knowledge.HINTS}
    assert [Kmeans(map=m).class_hints for m in ("ratios", "hints")] == [False, True]
    assert Kmeans().unmet(frozenset(Knowledge), classes=1000) is None
