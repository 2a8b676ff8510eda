import pytest
import torch
from attacks.views import positives, view_of

from vflbench.attacks.no_message import NoMessage, likeness
from vflbench.messages.facts import PartyFeatures
from vflbench.numerics.auc import auc


def test_products_are_those_of_the_matrix_of_likeness(rng):
    numeric, categorical = torch.rand(40, 3, generator=rng), torch.randint(4, (40, 2), generator=rng)
    z = (numeric.double() - numeric.double().mean(0)) / numeric.double().std(0, correction=0)
    matrix = z @ z.T + (categorical[:, None] == categorical[None]).sum(2)
    weights = torch.rand(40, generator=rng, dtype=torch.float64)
    centre = torch.eye(40, dtype=torch.float64) - 1 / 40
    for steps in (1, 2, 3):
        expected = torch.linalg.matrix_power(centre @ matrix @ centre, steps) @ weights
        product = likeness(PartyFeatures(numeric, categorical), weights, steps)
        assert torch.allclose(product, expected / expected.abs().max(), atol=1e-10), steps


@pytest.mark.parametrize(("numbers", "ids"), [(4, 0), (0, 6), (4, 6)])
def test_a_planted_class_is_recognised_from_five_rows(rng, numbers, ids):
    y = torch.rand(2000, generator=rng) < 0.25
    numeric = torch.rand(2000, numbers, generator=rng) + 0.5 * y[:, None]
    flips = torch.rand(2000, ids, generator=rng) < 0.3
    categorical = torch.where(flips, torch.randint(4, (2000, ids), generator=rng), y[:, None].int() + 1)
    attack, known = NoMessage(k=5), positives(y.nonzero()[:5, 0].tolist())
    assert auc(attack.batch(view_of(attack.threat, PartyFeatures(numeric, categorical), known)).layers, y) > 0.9
