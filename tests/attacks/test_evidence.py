import pytest
import torch

from vflbench.attacks.completion import _ridges, added_logits, averaged_ridge
from vflbench.numerics.auc import auc


def test_errors_of_left_out_rows_are_those_of_fits_without_them(rng):
    x, y = torch.randn(9, 4, generator=rng).double(), torch.randn(9, 2, generator=rng).double()
    y = y - y.mean(dim=0)
    total = float((x - x.mean(dim=0)).square().sum())
    for noise, left_out in zip([10.0 ** (e / 2) for e in range(-10, 5)], _ridges(x, torch.ones(4), y)[2], strict=True):
        for i in range(9):
            rest = torch.arange(9) != i
            a, b = x[rest] - x[rest].mean(dim=0), y[rest] - y[rest].mean(dim=0)
            w = torch.linalg.solve(a.T @ a + noise * total * torch.eye(4), a.T @ b)
            assert torch.allclose(left_out[i], y[rest].mean(dim=0) + (x[i] - x[rest].mean(dim=0)) @ w, atol=1e-8)


def test_the_evidence_is_that_of_a_gaussian_process(rng):
    """log N(y; 0, s (x x^T + ridge)) maximised over s, in the space of contrasts that a free mean leaves."""
    x, y = torch.randn(7, 3, generator=rng).double(), torch.randn(7, 1, generator=rng).double()
    y = y - y.mean()
    c = x - x.mean(dim=0)
    contrasts = torch.linalg.svd(torch.eye(7) - torch.full((7, 7), 1 / 7)).U[:, :6].double()
    expected = []
    for e in range(-10, 5):
        kernel = contrasts.T @ (c @ c.T + 10.0 ** (e / 2) * float(c.square().sum()) * torch.eye(7)) @ contrasts
        z = contrasts.T @ y
        expected.append(float(-0.5 * (6 * torch.log(z.T @ torch.linalg.solve(kernel, z)) + torch.logdet(kernel))))
    assert torch.allclose(_ridges(x, torch.ones(3), y)[0], torch.tensor(expected).double(), atol=1e-5)


def test_twenty_rows_are_enough_where_the_direction_of_largest_variance_says_nothing(rng):
    """A thousand unlabelled rows show the directions; the label is the second."""
    y = (torch.rand(4000, generator=rng) < 0.5).double()[:, None]
    reached = []
    for _ in range(10):
        order = torch.randperm(4000, generator=rng)
        h = torch.randn(4000, 64, generator=rng) * torch.linspace(0.5, 0.01, 64)
        h[:, 0] += 3 * y[:, 0]
        h[:, 1] = 30 * torch.randn(4000, generator=rng)
        known, rest = order[:20], order[20:]
        _, scores = averaged_ridge(h[known], y[known], h[rest])
        reached.append(float(auc(scores[:, 0], y[rest, 0] != 0)))
    assert sorted(reached)[2] > 0.97


@pytest.mark.slow
def test_logits_weigh_sources_by_what_they_say_and_meet_the_class_shares(rng):
    y = torch.arange(2).repeat(1000)
    good, poor, empty = (a * y + torch.randn(2000, generator=rng) for a in (2.0, 1.0, 0.0))
    sources = [s.double()[:, None] for s in (good, poor, empty)]
    logits = added_logits([s[:500] for s in sources], y[:500], [s[500:] for s in sources], (0.5, 0.5))[:, 0]
    optimum = 2.0 * good + 1.0 * poor
    assert auc(logits, y[500:]) > auc(optimum[500:], y[500:]) - 0.01
    for share in (0.5, 0.1):
        logits = added_logits([s[:500] for s in sources], y[:500], [s[500:] for s in sources], (1 - share, share))
        assert abs(float(logits.sigmoid().mean()) - share) < 0.01
