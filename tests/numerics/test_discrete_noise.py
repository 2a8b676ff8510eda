import math

import pytest
import torch
from scipy import stats

from vflbench.numerics import discrete_noise, gaussian_table
from vflbench.numerics.discrete_noise import DrawnBits, KeyedBits, discrete_gaussian, discrete_laplace
from vflbench.numerics.gaussian_table import tabled_gaussian


def laplace(x, s):
    return math.tanh(1 / (2 * s)) * math.exp(-abs(x) / s)


def gaussian(x, s):
    return math.exp(-x * x / (2 * s * s)) / sum(math.exp(-k * k / (2 * s * s)) for k in range(-20 * s, 20 * s + 1))


SAMPLERS = [(discrete_laplace, laplace), (discrete_gaussian, gaussian), (tabled_gaussian, gaussian)]


def sources(n, rng):
    return {"drawn": DrawnBits(n, rng), "keyed": KeyedBits(torch.arange(n // 10) * 7, 10, 12345)}


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "chance"), SAMPLERS)
@pytest.mark.parametrize("scale", [1, 3])
def test_draws_have_the_distribution(rng, sampler, chance, scale):
    n = 20_000
    for name, bits in sources(n, rng).items():
        x = sampler(bits, scale)
        reach = max(k for k in range(60) if n * chance(k, scale) > 10)
        inner = [int((x == k).sum()) for k in range(-reach, reach + 1)]
        expected = [n * chance(k, scale) for k in range(-reach, reach + 1)]
        counts, wanted = [*inner, n - sum(inner)], [*expected, n - sum(expected)]
        assert stats.chisquare(counts, wanted).pvalue > 1e-4, name


@pytest.mark.parametrize(("sampler", "chance"), SAMPLERS)
def test_draws_of_large_scale_have_the_distribution(rng, sampler, chance):
    scale = gaussian_table.LARGEST_SCALE if sampler is tabled_gaussian else discrete_noise.LARGEST_SCALE
    cdf = stats.laplace.cdf if chance is laplace else stats.norm.cdf
    for name, bits in sources(10_000, rng).items():
        assert stats.kstest((sampler(bits, scale).double() / scale).numpy(), cdf).pvalue > 1e-4, name


def test_noise_of_a_key_belongs_to_the_row_whatever_the_others_are():
    ids = torch.tensor([4, 9, 123_456_789, 0])
    for sampler, _ in SAMPLERS:
        whole = sampler(KeyedBits(ids, 5, 7), 100).view(4, 5)
        assert torch.equal(sampler(KeyedBits(ids[[2, 1]], 5, 7), 100).view(2, 5), whole[[2, 1]])
        assert len(whole.unique()) > 12
        assert not torch.equal(sampler(KeyedBits(ids, 5, 8), 100).view(4, 5), whole)


def test_numbers_of_rows_are_independent_of_neighbours_and_of_other_coordinates():
    x = tabled_gaussian(KeyedBits(torch.arange(20_000), 4, 99), 50).view(20_000, 4).double() / 50
    for one, other in ((x[:-1, 0], x[1:, 0]), (x[:, 0], x[:, 1]), (x[:, 1].abs(), x[:, 3].abs())):
        assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.03


class Given:
    """Bits that are given: the first word, and all others."""

    device = torch.device("cpu")

    def __init__(self, first, others):
        self.count, self._first, self._others = len(first), torch.tensor(first), others
        self._asked = 0

    def __call__(self, places):
        self._asked += 1
        return self._first[places] if self._asked == 1 else torch.full((len(places),), self._others)


def test_where_62_bits_do_not_decide_the_others_do():
    """The uniform number lies within 2^-62 of F_2: its other bits say on which side."""
    limits, _ = gaussian_table._limits(3)
    first = int(limits[2]) << 1
    assert tabled_gaussian(Given([first], 0), 3).tolist() == [2]
    assert tabled_gaussian(Given([first], 2**63 - 1), 3).tolist() == [3]
    assert tabled_gaussian(Given([first - 2, first + 2, first + 3], None), 3).tolist() == [2, 3, -3]


def test_the_table_has_all_digits_of_the_distribution():
    for scale in (1, 40):
        cumulated = list(gaussian_table._cumulated(scale))
        for k in (0, 1, 2 * scale, 9 * scale):
            mass = (cumulated[k] - (cumulated[k - 1] if k else 0)) / cumulated[-1]
            assert mass == pytest.approx(gaussian(k, scale) * (2 if k else 1), rel=1e-12)


@pytest.mark.parametrize("scale", [0, discrete_noise.LARGEST_SCALE + 1])
def test_other_scales_are_refused(rng, scale):
    for sampler, _ in SAMPLERS:
        with pytest.raises(ValueError, match="scale"):
            sampler(DrawnBits(1, rng), scale)
