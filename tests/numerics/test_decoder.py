import pytest
import torch

from vflbench.numerics.decoder import fit_decoder


@pytest.mark.slow
def test_an_invertible_function_is_inverted(rng):
    """h = x A + one-hot(id) B: both x and id are recovered for unseen pairs."""
    a, b = torch.randn(3, 12, generator=rng), torch.randn(4, 12, generator=rng)
    numeric, ids = torch.rand(1200, 3, generator=rng), torch.randint(4, (1200, 1), generator=rng) + 5
    h = numeric @ a + b[ids[:, 0] - 5]
    decoder = fit_decoder(h[:1000], numeric[:1000], ids[:1000], rng, width=64, steps=400)
    answer, categories = decoder(h[1000:])
    assert (answer - numeric[1000:]).square().mean() < 0.005  # the mean has 1/12
    assert (categories == ids[1000:]).float().mean() > 0.95
    assert ((answer >= 0) & (answer <= 1)).all()


def test_an_uninformative_message_gives_the_mean(rng):
    numeric = torch.rand(500, 2, generator=rng)
    decoder = fit_decoder(torch.zeros(500, 4), numeric, torch.empty(500, 0), rng, width=8, steps=300)
    answer, categories = decoder(torch.zeros(3, 4))
    torch.testing.assert_close(answer, numeric.mean(0).expand(3, -1), atol=0.03, rtol=0)
    assert categories.shape == (3, 0)
