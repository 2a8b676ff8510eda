import pytest
import torch

from vflbench.numerics.gram import gram


@pytest.mark.parametrize(("n", "d"), [(4096, 128), (5000, 97), (4100, 100), (4096, 256), (300, 128), (4096, 5), (0, 4)])
def test_it_is_as_exact_as_the_product_in_one_piece(rng, n, d):
    x = torch.randn(n, d, generator=rng) + 3
    exact = x.double().T @ x.double()
    largest = exact.abs().max() if n else 1
    ours, plain = gram(x), x.T @ x
    assert ours.shape == (d, d)
    assert (ours.double() - exact).abs().max() <= 2 * (plain.double() - exact).abs().max() + 1e-6 * largest
    assert torch.allclose(gram(x.double()), exact, rtol=1e-12)
