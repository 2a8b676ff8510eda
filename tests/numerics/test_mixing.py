import math

import pytest
import torch
from scipy import stats

from vflbench.numerics.mixing import mix, uniform

IDS = {
    "neighbours": torch.arange(300_000),
    "every 512th": torch.arange(300_000) * 512,
    "large": torch.arange(300_000) + (1 << 61),
    "negative": -torch.arange(300_000),
}


def test_mixing_is_a_bijection_and_agrees_with_integers_of_python():
    assert len(mix(torch.arange(300_000), 5).unique()) == 300_000

    def reference(x, key, mask=(1 << 64) - 1):
        x ^= key
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        x = (x ^ (x >> 31)) ^ key
        return x - (1 << 64) if x >= 1 << 63 else x

    for x in (0, 1, 12345, (1 << 62) + 7):
        assert mix(torch.tensor([x]), 987654321).item() == reference(x, 987654321)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("key", [0, 1, -1, 0x1234567890ABCDEF])
def test_numbers_of_rows_are_uniform_and_independent_of_the_next_rows(ids, key):
    u = uniform(ids, key)
    assert 0 <= u.min() < u.max() < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-4
    cells = (u[1:] * 8).long() * 8 + (u[:-1] * 8).long()  # of pairs of neighbours
    assert stats.chisquare(cells.bincount(minlength=64).numpy()).pvalue > 1e-4
    assert abs(torch.corrcoef(torch.stack([u, ids.double()]))[0, 1].item()) < 5 / math.sqrt(len(u))


def test_keys_that_are_alike_give_independent_numbers():
    ids = torch.arange(300_000)
    for key, other in ((1, 2), (1, -1), (7, 7 + (1 << 40)), (0, 1 << 63 >> 1)):
        cells = (uniform(ids, key) * 8).long() * 8 + (uniform(ids, other) * 8).long()
        assert stats.chisquare(cells.bincount(minlength=64).numpy()).pvalue > 1e-4
