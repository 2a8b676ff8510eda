import pytest
import torch

from vflbench.metrics.utility import DependenceTable
from vflbench.numerics.distance_correlation import distance_correlation

PLACE = ("a", "f5", True)


def test_the_mean_over_batches_of_both_classes_of_their_first_rows(rng):
    table, values = DependenceTable(), []
    for n in (50, 1500):
        x, y = torch.randn(n, 4, generator=rng), torch.randint(2, (n,), generator=rng)
        table.add(PLACE, x, y)
        values.append(distance_correlation(x[:1024], y[:1024]).item())
    table.add(PLACE, x, torch.zeros(1500, dtype=torch.long))  # a batch of one class is left out
    (dependence,) = table.entries()
    assert (dependence.party, dependence.layer, dependence.visible) == PLACE
    assert dependence.dcor.mean == pytest.approx(sum(values) / 2)
