import numpy as np
import pytest
import torch

from vflbench.defenses.dcor import explained_share, whitened


def rows(rng, n=200, d=5):
    mixing = torch.randn(d, d, generator=rng, dtype=torch.float64)
    return torch.randn(n, d, generator=rng, dtype=torch.float64) @ mixing + 3


def test_whitened_rows_have_unit_covariance_and_the_distances_of_zca(rng):
    x = rows(rng)
    w = whitened(x, 1e-12)
    assert torch.allclose(w.T.cov(correction=0), torch.eye(5, dtype=torch.float64), atol=1e-9)
    ridge = 0.3
    c = x.T.cov(correction=0)
    c = c + ridge * c.trace() / 5 * torch.eye(5, dtype=torch.float64)
    values, vectors = np.linalg.eigh(c.numpy())
    zca = torch.from_numpy((x - x.mean(0)).numpy() @ (vectors / np.sqrt(values)) @ vectors.T)
    assert torch.allclose(torch.cdist(whitened(x, ridge), whitened(x, ridge)), torch.cdist(zca, zca), atol=1e-6)


def test_the_explained_share_is_the_r_squared_of_least_squares(rng):
    x = rows(rng)
    y = x @ torch.randn(5, generator=rng, dtype=torch.float64) + torch.randn(200, generator=rng, dtype=torch.float64)
    design = np.column_stack([np.ones(200), x.numpy()])
    fitted = design @ np.linalg.lstsq(design, y.numpy(), rcond=None)[0]
    r_squared = 1 - ((y.numpy() - fitted) ** 2).sum() / ((y.numpy() - y.numpy().mean()) ** 2).sum()
    assert explained_share(x, y, 1e-12).item() == pytest.approx(r_squared, rel=1e-8)
    shares = [explained_share(x, y, ridge).item() for ridge in (0.01, 0.1, 1.0)]
    assert r_squared > shares[0] > shares[1] > shares[2] > 0


def test_more_columns_than_rows_stay_finite(rng):
    x = torch.randn(10, 40, generator=rng).requires_grad_()
    share = explained_share(x, torch.arange(10) % 2, 0.1)
    share.backward()
    assert 0 < share < 1
    assert x.grad.isfinite().all()
