import pytest
import torch
from attacks.views import digits, label_view
from support.builders import session, table

from vflbench.attacks.unsplit import Unsplit
from vflbench.data.pictures import Digits
from vflbench.models.networks import Cnn, Mlp, WideDeep


@pytest.mark.slow
def test_one_convolution_gives_pictures_away_and_a_dense_layer_does_not():
    """Up to contrast, which nothing fixes: the size of the correlation with the picture counts."""
    rows, reached = digits(Digits(rows=300).load(torch.Generator().manual_seed(0)).train).rows(slice(0, 24)), []
    truth = rows.features["a"].numeric
    for model in (Cnn(bottom_layers=1), Mlp(bottom_layers=1, width=128)):
        attack = Unsplit(rows=24, rounds=8)
        rebuilt = attack.batch(label_view(rows, attack, session(rows, model=model))).features["a"].numeric
        pairs = zip(rebuilt, truth, strict=True)
        reached.append(float(torch.stack([torch.corrcoef(torch.stack(pair))[0, 1].abs() for pair in pairs]).mean()))
    assert reached[1] < min(reached[0] - 0.2, 0.3)


def test_every_party_and_categories_get_an_answer(rng):
    rows, attack = table(rng, parties=("a", "b")), Unsplit(rows=5, rounds=2)
    answer = attack.batch(label_view(rows, attack, session(rows, model=WideDeep(bottom_layers=1, width=8))))
    for columns in answer.features.values():
        assert (columns.numeric.shape, columns.categorical.shape) == ((5, 2), (5, 2))
        assert bool((columns.categorical < torch.tensor([5, 7])).all())
