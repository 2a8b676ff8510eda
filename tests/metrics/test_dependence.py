import math

import pytest
import torch

from vflbench.metrics.utility import DependenceTable
from vflbench.numerics.distance_correlation import distance_correlation

PLACE = ("a", "f5", True)


def test_the_mean_over_batches_of_their_first_rows(rng):
    table, values = DependenceTable(), []
    for n in (50, 1500):
        x, y = torch.randn(n, 4, generator=rng), torch.randint(2, (n,), generator=rng)
        table.add(PLACE, x, y)
        values.append(distance_correlation(x[:1024], y[:1024]).item())
    (dependence,) = table.entries()
    assert (dependence.party, dependence.layer, dependence.visible) == PLACE
    assert dependence.dcor.mean == pytest.approx(sum(values) / 2)


def test_a_batch_of_one_class_is_left_out(rng):
    table, x = DependenceTable(), torch.randn(20, 3, generator=rng)
    table.add(PLACE, x, torch.zeros(20, dtype=torch.long))
    assert math.isnan(table.entries()[0].dcor.mean)
    table.add(PLACE, x, torch.arange(20) % 2)
    assert table.entries()[0].dcor.mean > 0
