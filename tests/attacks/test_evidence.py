import torch

from vflbench.attacks.completion import _ridges


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
