import math

import torch
from scipy import stats

from vflbench.numerics.hashing import laplace, mix, uniform, unmix

COUNT = 20_000
IDS = {
    "neighbours": torch.arange(COUNT),
    "every 512th": torch.arange(COUNT) * 512,
    "large": torch.arange(COUNT) + (1 << 61),
    "negative": -torch.arange(COUNT),
}


def test_mixing_is_a_bijection_and_agrees_with_python_integers():
    assert len(mix(torch.arange(COUNT), 5).unique()) == COUNT

    def reference(x, key, mask=(1 << 64) - 1):
        x ^= key
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        x = (x ^ (x >> 31)) ^ key
        return x - (1 << 64) if x >= 1 << 63 else x

    for x in (0, 1, 12345, (1 << 62) + 7):
        assert mix(torch.tensor([x]), 987654321).item() == reference(x, 987654321)


def test_unmix_inverts_mix():
    for name, ids in IDS.items():
        for key in (0, 1, -1, 0x1234567890ABCDEF):
            assert torch.equal(unmix(mix(ids, key), key), ids), f"{name}, key {key}"


def test_numbers_of_rows_are_uniform_and_independent_of_the_next_rows():
    for name, ids in IDS.items():
        for key in (0, 1, -1, 0x1234567890ABCDEF):
            u, case = uniform(ids, key), f"{name}, key {key}"
            assert 0 <= u.min() < u.max() < 1, case
            assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-4, case
            pairs = (u[1:] * 8).long() * 8 + (u[:-1] * 8).long()
            assert stats.chisquare(pairs.bincount(minlength=64).numpy()).pvalue > 1e-4, case
            assert abs(torch.corrcoef(torch.stack([u, ids.double()]))[0, 1].item()) < 5 / math.sqrt(len(u)), case


def test_similar_keys_give_independent_numbers():
    ids = torch.arange(COUNT)
    for key, other in ((1, 2), (1, -1), (7, 7 + (1 << 40)), (0, 1 << 63 >> 1)):
        pairs = (uniform(ids, key) * 8).long() * 8 + (uniform(ids, other) * 8).long()
        assert stats.chisquare(pairs.bincount(minlength=64).numpy()).pvalue > 1e-4, f"keys {key} and {other}"


def test_it_is_the_inverse_of_the_distribution_function():
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for scale in (0.1, 1.0, 4.0):
        assert torch.allclose(laplace(u, scale), torch.from_numpy(stats.laplace.ppf(u.numpy(), scale=scale)), atol=1e-12)


def test_the_ends_are_finite_and_as_far_out_as_53_bits_reach():
    ends = laplace(torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64), 1.0)
    assert ends.tolist() == [-53 * math.log(2), 53 * math.log(2)]
