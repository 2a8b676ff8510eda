import pytest
import torch
from attacks.views import view_of

from vflbench.attacks.no_message import NoMessage, likeness
from vflbench.messages.transcript import Knowledge, OwnFeatures, UndeclaredKnowledgeError
from vflbench.numerics.auc import auc


def scores(numeric, categorical, hints, **options):
    attack = NoMessage(k=len(hints), **options)
    return attack.infer(view_of(attack.knows, numeric=numeric, categorical=categorical, hints=hints))["features"]


def test_products_are_those_of_the_matrix_of_likeness(rng):
    numeric, categorical = torch.rand(40, 3, generator=rng), torch.randint(4, (40, 2), generator=rng)
    z = (numeric.double() - numeric.double().mean(0)) / numeric.double().std(0, correction=0)
    matrix = z @ z.T + (categorical[:, None] == categorical[None]).sum(2)
    weights = torch.rand(40, generator=rng, dtype=torch.float64)
    centre = torch.eye(40, dtype=torch.float64) - 1 / 40
    for steps in (1, 2, 3):
        expected = torch.linalg.matrix_power(centre @ matrix @ centre, steps) @ weights
        found = likeness(OwnFeatures(numeric, categorical), weights, steps)
        assert torch.allclose(found, expected / expected.abs().max(), atol=1e-10)


@pytest.mark.parametrize("kind", ["numeric", "categorical", "both"])
def test_a_planted_class_is_found_from_five_rows(rng, kind):
    y = torch.rand(2000, generator=rng) < 0.25
    numeric = torch.rand(2000, 4, generator=rng) + 0.5 * y[:, None] * torch.ones(4)
    flips = torch.rand(2000, 6, generator=rng) < 0.3
    categorical = torch.where(flips, torch.randint(4, (2000, 6), generator=rng), y[:, None].int() + 1)
    hints = y.nonzero()[:5, 0].tolist()
    found = scores(None if kind == "categorical" else numeric, None if kind == "numeric" else categorical, hints)
    assert auc(found, y) > 0.9


def test_columns_that_say_nothing_give_a_coin(rng):
    y = torch.rand(4000, generator=rng) < 0.25
    numeric, categorical = torch.rand(4000, 5, generator=rng), torch.randint(9, (4000, 5), generator=rng)
    hints = y.nonzero()[:5, 0]
    found = scores(numeric, categorical, hints.tolist())
    others = torch.ones(4000, dtype=torch.bool).index_fill_(0, hints, False)
    assert abs(auc(found[others], y[others]) - 0.5) < 0.05


def test_constant_columns_say_nothing_and_raise_nothing():
    found = scores(torch.full((50, 2), 0.1), torch.zeros(50, 2, dtype=torch.int32), [0, 3])
    assert auc(found, torch.arange(50) < 20) == 0.5


def test_it_can_read_no_message():
    view = view_of(NoMessage.knows, numeric=torch.rand(5, 2), embeddings={"f1": torch.ones(5, 2)}, hints=[0])
    for name in ("embeddings", "gradients", "prior"):
        with pytest.raises(UndeclaredKnowledgeError, match=name):
            getattr(view, name)
    assert NoMessage.scores is None
    assert NoMessage.knows == {Knowledge.FEATURES, Knowledge.HINTS}
    assert NoMessage(k=7).hints == 7
