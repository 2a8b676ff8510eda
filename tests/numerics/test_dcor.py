import math
import subprocess
import sys

import dcor
import pytest
import torch

from vflbench.numerics.dcor import distance_correlation


def straightforward(x, y_distances):
    """The definition, doubly centred matrices and all, with torch's own derivative."""
    a = (x[:, None] - x[None, :]).square().sum(2)
    a = torch.where(a > 0, a.clamp_min(1e-300).sqrt(), 0.0)

    def centred(m):
        return m - m.mean(0) - m.mean(1, keepdim=True) + m.mean()

    big_a, big_b = centred(a), centred(y_distances)
    return (big_a * big_b).mean() / ((big_a * big_a).mean() * (big_b * big_b).mean()).sqrt()


def value_and_gradient(function, x):
    x = x.clone().requires_grad_()
    value = function(x)
    value.backward()
    return value.item(), x.grad


def labels_of(kind, n, rng):
    """y, and the distances between its values."""
    if kind == "two classes":
        y = (torch.rand(n, generator=rng) < 0.25).long()
    elif kind == "seven classes":
        y = torch.randint(7, (n,), generator=rng) * 3 - 4
    elif kind == "booleans":
        y = torch.rand(n, generator=rng) < 0.5
    elif kind == "numbers":
        y = torch.randn(n, generator=rng)
    else:
        y = torch.randn(n, 3, generator=rng)
    distances = (y[:, None] != y) if not y.is_floating_point() else torch.cdist(*[y.double().reshape(n, -1)] * 2)
    return y, distances.double()


KINDS = ["two classes", "seven classes", "booleans", "numbers", "vectors"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 50, 1300])  # 1300: several blocks
def test_value_and_gradient_are_those_of_the_definition(rng, kind, n):
    y, distances = labels_of(kind, n, rng)
    if n == 2 and y.dim() == 1:
        y = torch.tensor([0, 1]).to(y.dtype)
        distances = 1.0 - torch.eye(2, dtype=torch.float64)
    x = torch.randn(n, 6, generator=rng, dtype=torch.float64)
    x[:, 0] += (y if y.dim() == 1 else y[:, 0]).double()
    ours, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x)
    exact, expected = value_and_gradient(lambda t: straightforward(t, distances), x)
    assert ours == pytest.approx(exact, rel=1e-10)
    assert (gradient - expected).norm() <= 1e-8 * expected.norm() + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_as_good_as_it_must_be(rng, kind):
    y, _ = labels_of(kind, 2500, rng)
    x = torch.relu(torch.randn(2500, 128, generator=rng) + (y if y.dim() == 1 else y[:, 0]).float()[:, None] * 0.2)
    exact, expected = value_and_gradient(lambda t: distance_correlation(t, y), x.double())
    ours, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x)
    assert gradient.dtype == torch.float32
    assert ours == pytest.approx(exact, rel=1e-5)
    assert (gradient - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.parametrize("kind", ["tight clusters", "many copies", "far away", "tiny", "huge"])
def test_float32_where_lengths_say_little_about_distances(rng, kind):
    y = (torch.rand(1200, generator=rng) < 0.3).long()
    x = torch.randn(1200, 16, generator=rng)
    if kind == "tight clusters":
        x = 1e-4 * x + torch.randn(2, 16, generator=rng)[y]
    elif kind == "many copies":
        x = x[:40].repeat(30, 1)
    else:
        x = {"far away": x + 1000, "tiny": x * 1e-25, "huge": x * 1e25}[kind]
    exact, expected = value_and_gradient(lambda t: distance_correlation(t, y), x.double())
    ours, gradient = value_and_gradient(lambda t: distance_correlation(t, y), x)
    assert ours == pytest.approx(exact, rel=1e-5)
    assert (gradient - expected).norm() <= 2e-4 * expected.norm()
    reference = straightforward(x.double(), (y[:, None] != y).double())
    assert ours == pytest.approx(reference.item(), rel=1e-5)


@pytest.mark.parametrize("kind", ["two classes", "seven classes", "numbers", "vectors"])
def test_agrees_with_the_dcor_package(rng, kind):
    y, _ = labels_of(kind, 400, rng)
    x = torch.randn(400, 5, generator=rng, dtype=torch.float64)
    x[:, 1] *= 1 + 0.3 * (y if y.dim() == 1 else y[:, 0]).double()
    others = y.double().numpy()
    if kind == "seven classes":  # equally far apart
        others = torch.nn.functional.one_hot(y - y.min()).double().numpy()
    expected = dcor.distance_correlation_sqr(x.numpy(), others)
    assert distance_correlation(x, y).item() == pytest.approx(expected, rel=1e-6)
    root = distance_correlation(x, y, statistic="root")
    assert root.item() == pytest.approx(math.sqrt(expected), rel=1e-6)


def test_the_root_has_half_the_slope_under_the_logarithm(rng):
    x, y = torch.randn(60, 4, generator=rng, dtype=torch.float64), torch.arange(60) % 2
    _, squared = value_and_gradient(lambda t: distance_correlation(t, y).log(), x)
    _, root = value_and_gradient(lambda t: distance_correlation(t, y, "root").log(), x)
    assert torch.allclose(root, squared / 2)


def test_units_shifts_and_rotations_do_not_matter(rng):
    x, y = torch.randn(200, 5, generator=rng, dtype=torch.float64), torch.arange(200) % 3
    x[:, 0] += y
    reference = distance_correlation(x, y).item()
    turn = torch.linalg.qr(torch.randn(5, 5, generator=rng, dtype=torch.float64)).Q
    for changed in (x * 1e-12, x * 1e12, x + 5, x @ turn):
        assert distance_correlation(changed, y).item() == pytest.approx(reference, rel=1e-9)


def test_from_nothing_to_everything(rng):
    y = torch.arange(2000) % 2
    assert distance_correlation(y[:, None].double(), y).item() == pytest.approx(1.0)
    assert distance_correlation(torch.randn(2000, 3, generator=rng), y).item() < 0.01


def test_points_that_coincide_do_not_pull(rng):
    x = torch.randn(3, 4, generator=rng)[torch.arange(90) % 3]
    value, gradient = value_and_gradient(lambda t: distance_correlation(t, torch.arange(90) % 3 // 2), x)
    assert gradient.isfinite().all()
    assert 0.1 < value < 1


@pytest.mark.parametrize("statistic", ["squared", "root"])
def test_where_nothing_varies_there_is_nothing(rng, statistic):
    x, y = torch.randn(30, 4, generator=rng), torch.arange(30) % 2
    for nothing in ((x, torch.ones(30).long()), (x, torch.ones(30)), (torch.full((30, 4), 0.1), y), (x[:1], y[:1])):
        value, gradient = value_and_gradient(lambda t, y=nothing[1]: distance_correlation(t, y, statistic), nothing[0])
        assert value == 0
        assert gradient is None or (gradient == 0).all()


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4, 2), (3,)), ((0, 2), (0,)), ((4, 2), (4, 1))])
def test_other_shapes_are_refused(shapes):
    y = torch.zeros(shapes[1], dtype=torch.long)
    with pytest.raises(ValueError, match="must be"):
        distance_correlation(torch.zeros(shapes[0]), y)


def test_memory_stays_small_however_many_rows_there_are():
    """Peak resident memory of a process of its own, beyond what it held before; 32768^2 distances alone would be 4.3 GB."""
    program = """
import resource, torch
from vflbench.run.machine import tune
from vflbench.numerics.dcor import distance_correlation
tune()
y = torch.arange(32768) % 4 == 0
x = torch.randn(32768, 128, requires_grad=True)
distance_correlation(x[:2000], y[:2000]).backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
distance_correlation(x, y).backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(told) * (1 if sys.platform == "darwin" else 1024) < 100 * 2**20
