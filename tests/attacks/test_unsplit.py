import pytest
import torch
from attacks.views import digits
from support.builders import session

from vflbench.attacks.unsplit import Unsplit
from vflbench.data.pictures import Digits
from vflbench.data.table import VerticalTable
from vflbench.messages.threat import View
from vflbench.models.networks import Cnn, Mlp, WideDeep


def view_of(rows, attack, *, model, seed=0, **options):
    started = session(rows, model=model, **options)
    facts = started.round(rows.ids, watch=attack.threat.knows).facts["label"]
    return View("label", 0, 0, rows.ids, torch.Generator().manual_seed(seed), attack.threat, facts)


def pictures(count=24, parties=1):
    rows = digits(Digits(parties=parties, rows=300).load(torch.Generator().manual_seed(0)).train).rows(slice(0, count))
    return VerticalTable(torch.arange(count), rows.features, rows.labels, rows.classes)


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / (a.norm() * b.norm()).clamp_min(1e-9))


@pytest.mark.slow
def test_one_convolution_gives_pictures_away_and_a_dense_layer_does_not():
    """Up to contrast, which nothing fixes: the size of the correlation with the picture counts."""
    rows, found = pictures(), {}
    truth = rows.features["a"].numeric
    for name, model in (("cnn", Cnn(bottom_layers=1)), ("mlp", Mlp(bottom_layers=1, width=128))):
        attack = Unsplit(rows=24, rounds=8)
        rebuilt = attack.batch(view_of(rows, attack, model=model)).features["a"].numeric
        found[name] = sum(abs(correlation(a, b)) for a, b in zip(rebuilt, truth, strict=True)) / len(truth)
    assert found["cnn"] > found["mlp"] + 0.2
    assert found["mlp"] < 0.3


def test_every_party_and_categories_get_an_answer(rng):
    from support.builders import table

    rows = table(rng, parties=("a", "b"))
    attack = Unsplit(rows=5, rounds=2)
    answer = attack.batch(view_of(rows, attack, model=WideDeep(bottom_layers=1, width=8)))
    for columns in answer.features.values():
        assert (columns.numeric.shape, columns.categorical.shape) == ((5, 2), (5, 2))
        assert bool((columns.categorical < torch.tensor([5, 7])).all())
