import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vflbench.numerics import distance_correlation as module
from vflbench.numerics.distance_correlation import MixedColumns, distance_correlation


def by_definition(x, y_distances):
    """The definition with whole matrices, and torch's derivative, in float64."""
    unit = (x.detach() - x.detach().mean(dim=0)).abs().max()
    x = x / unit
    a = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")

    def centred(m):
        return m - m.mean(0) - m.mean(1, keepdim=True) + m.mean()

    big_a, big_b = centred(a), centred(y_distances)
    return (big_a * big_b).mean() / ((big_a * big_a).mean() * (big_b * big_b).mean()).sqrt()


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    value.backward()
    return value.item(), x.grad


KINDS = {
    "two classes": lambda n, rng: (torch.rand(n, generator=rng) < 0.25).long(),
    "seven classes": lambda n, rng: torch.randint(7, (n,), generator=rng) * 3 - 4,
    "booleans": lambda n, rng: torch.rand(n, generator=rng) < 0.5,
    "numbers": lambda n, rng: torch.randn(n, generator=rng),
    "vectors": lambda n, rng: torch.randn(n, 3, generator=rng),
}


@pytest.fixture(params=[0, 8192], ids=["again", "kept"])
def few_rows_a_block(request, monkeypatch):
    """Blocks of 32 rows, so that little data has several; distances are kept for the gradient, or computed again."""
    monkeypatch.setattr(module, "_BLOCK", 32)
    monkeypatch.setattr(module, "_KEPT_ROWS", request.param)


@pytest.mark.usefixtures("few_rows_a_block")
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_are_those_of_the_definition(rng, kind):
    for n in (2, 50, 104):  # 104 rows do not fill their last block
        y = KINDS[kind](n, rng)
        y = torch.tensor([0, 1]).to(y.dtype) if n == 2 and y.dim() == 1 else y
        distances = torch.cdist(*[y.double().reshape(n, -1)] * 2) if y.is_floating_point() else (y[:, None] != y).double()
        x = torch.randn(n, 6, generator=rng)
        x[:, 0] += y if y.dim() == 1 else y[:, 0]
        exact, expected = value_and_gradient(lambda t, distances=distances: by_definition(t, distances), x.double())
        for dtype, of_value, of_gradient in ((torch.float64, 1e-10, 1e-8), (torch.float32, 1e-5, 1e-4)):
            ours, gradient = value_and_gradient(lambda t, y=y: distance_correlation(t, y), x.to(dtype))
            assert gradient.dtype == dtype
            assert ours == pytest.approx(exact, rel=of_value), n
            floor = 1e-12 if dtype == torch.float64 else 1e-6 * (n == 2)  # of two rows the gradient is 0
            assert (gradient - expected).norm() <= of_gradient * expected.norm() + floor, n


def test_the_root_is_one_and_has_half_the_slope_under_the_logarithm(rng):
    x, y = torch.randn(60, 4, generator=rng, dtype=torch.float64), torch.arange(60) % 2
    value, squared = value_and_gradient(lambda t: distance_correlation(t, y).log(), x)
    half, root = value_and_gradient(lambda t: distance_correlation(t, y, "root").log(), x)
    assert half == pytest.approx(value / 2)
    assert torch.allclose(root, squared / 2)


@pytest.mark.parametrize("statistic", ["squared", "root"])
def test_constant_x_or_y_give_0_and_what_is_not_finite_has_no_value(rng, statistic):
    x, y = torch.randn(30, 4, generator=rng), torch.arange(30) % 2
    for of, by in ((x, torch.ones(30).long()), (x, torch.ones(30)), (torch.full((30, 4), 0.1), y), (x[:1], y[:1])):
        value, gradient = value_and_gradient(lambda t, by=by: distance_correlation(t, by, statistic), of)
        assert value == 0
        assert gradient is None or (gradient == 0).all()
    for bad in (math.nan, math.inf, -math.inf):
        spoiled = x.clone()
        spoiled[7, 1] = bad
        assert math.isnan(distance_correlation(spoiled, y, statistic).item())
        assert math.isnan(distance_correlation(x, spoiled, statistic).item())


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else [result]
        self.largest = max(self.largest, *(x.numel() for x in outputs if isinstance(x, torch.Tensor)), 0)
        return result


def test_no_tensor_is_larger_than_a_block_or_x(rng, monkeypatch):
    """Forward and backward; the matrix of all distances would have 200^2 entries."""
    monkeypatch.setattr(module, "_BLOCK", 32)
    monkeypatch.setattr(module, "_KEPT_ROWS", 0)
    for y in (torch.arange(200) % 3, torch.randn(200, generator=rng)):
        x = torch.randn(200, 8, generator=rng).requires_grad_()
        with LargestTensor() as forward:
            value = distance_correlation(x, y)
        with LargestTensor() as backward:
            value.backward()
        assert 0 < backward.largest <= 200 * 8
        assert 0 < forward.largest <= 200 * 8


def adversarial(n, rng):
    """Rows (n, d) float32 that lose digits, or tempt to."""
    x = torch.randn(n, 16, generator=rng)
    copies = x[: max(2, n // 8)].repeat(9, 1)[:n]
    return {
        "plain": x,
        "two tight clusters": 1e-4 * x + torch.randn(2, 16, generator=rng)[torch.arange(n) // 2 % 2],
        "tighter": 1e-6 * x + torch.randn(2, 16, generator=rng)[torch.arange(n) // 2 % 2],
        "copies": copies,
        "near copies": copies * (1 + 1e-6 * torch.randn(n, 1, generator=rng)),
        "half of them zero": x * (torch.arange(n) % 2)[:, None],
        "half of them all but zero": torch.where(torch.arange(n)[:, None] % 2 > 0, 1e-25 * x, x),
        "far from 0": x + 1000,
        "scale 1e-25": x * 1e-25,
        "scale 1e30": x * 1e30,
        "the largest numbers": x.clamp(-1, 1) * 3e38,
        "one outlier": torch.cat([x[:-1], 1e4 * x[-1:]]),
        "one column large and constant": torch.cat([torch.full((n, 1), 1e30), x], dim=1),
        "all at one distance": torch.eye(n),
        "a line": x[:, :1],
        "a grid": x[:, :1].round(),
    }


@pytest.mark.parametrize("n", [2, 100])
def test_value_and_gradient_keep_their_digits_whatever_the_rows(n, rng, monkeypatch):
    """Against the definition in float64, of the same rows."""
    monkeypatch.setattr(module, "_BLOCK", 64)
    y = torch.arange(n) % 2 if n == 2 else (torch.rand(n, generator=rng) < 0.3).long()
    for kind, x in adversarial(n, rng).items():
        exact, expected = value_and_gradient(lambda t: by_definition(t, (y[:, None] != y).double()), x.double())
        floor = 0.1 * (n == 2) / (x.double() - x.double().mean(dim=0)).norm()  # of two rows, dCor is 1, and its gradient 0
        for dtype, of_value, of_gradient in ((torch.float32, 1e-6, 1e-5), (torch.float64, 1e-12, 1e-8)):
            value, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x.to(dtype))
            if math.isnan(exact):  # both rows are the same
                assert value == 0
                continue
            assert value == pytest.approx(exact, rel=of_value), f"{kind}, {dtype}"
            if kind == "the largest numbers" and dtype == torch.float32:
                continue  # the derivative is among the smallest numbers, of few digits
            assert (gradient - expected).norm() <= of_gradient * (expected.norm() + floor), f"{kind}, {dtype}"


def test_bfloat16_and_autocast_compute_in_float32(rng):
    x, y = torch.randn(60, 8, generator=rng), torch.arange(60) % 2
    expected, by = value_and_gradient(lambda t: distance_correlation(t, y), x)
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x)
    assert value == expected
    assert torch.equal(gradient, by)
    value, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x.bfloat16())
    assert value == distance_correlation(x.bfloat16().float(), y).item()
    assert gradient.dtype == torch.bfloat16


def test_rows_of_a_table_are_the_vectors_with_unit_categories_over_the_root_of_two(rng):
    n = 70
    numeric, categorical = torch.rand(n, 2, generator=rng), torch.randint(5, (n, 3), generator=rng)
    one_hot = torch.nn.functional.one_hot(categorical, 5).flatten(1).double() / math.sqrt(2)
    x, vectors = torch.randn(n, 4, generator=rng).double(), torch.cat([numeric.double(), one_hot], dim=1)
    for table, y in (
        (MixedColumns(numeric, categorical), vectors),
        (MixedColumns(numeric, categorical[:, :0]), vectors[:, :2]),
        (MixedColumns(numeric[:, :0], categorical), vectors[:, 2:]),
    ):
        value, gradient = value_and_gradient(lambda x, table=table: distance_correlation(x, table), x)
        expected, by_torch = value_and_gradient(lambda x, y=y: by_definition(x, (y[:, None] - y).norm(dim=2)), x)
        assert value == pytest.approx(expected, rel=1e-9)
        assert torch.allclose(gradient, by_torch, rtol=1e-7, atol=1e-12)
