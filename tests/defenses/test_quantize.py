import pytest
import torch
from defenses.contexts import drawing

from vflbench.cli.components import construct
from vflbench.defenses.quantize import Quantize
from vflbench.errors import NonFiniteError, UserError
from vflbench.messages.facts import copied


def test_error_is_half_a_step_at_most_and_every_number_takes_so_many_bits(rng):
    for levels, bits in ((2, 1), (4, 2), (5, 3), (16, 4), (256, 8), (257, 9)):
        h = torch.rand(64, 24, generator=rng) * 4 - 1
        encoded = Quantize(levels=levels, range=[-1.0, 3.0]).embedding(h, drawing(rng))
        assert encoded.nbytes == 64 * 24 * bits // 8, levels
        assert (encoded.values - h).abs().max() <= 2 / (levels - 1) + 1e-6, levels
        assert len(encoded.values.unique()) <= levels, levels
        again = Quantize(levels=levels, range=[-1.0, 3.0]).embedding(encoded.values, drawing(rng))
        assert torch.equal(again.values, encoded.values), levels


def test_uniform_error_is_that_of_bennett(rng):
    """Mean square step^2 / 12."""
    h = torch.rand(500, 400, generator=rng)
    error = Quantize(levels=17, range=[0.0, 1.0]).embedding(h, drawing(rng)).values - h
    assert error.square().mean().item() == pytest.approx((1 / 16) ** 2 / 12, rel=0.01)
    assert error.mean().abs() < 1e-4


def test_a_learned_range_is_fixed_after_the_first_batches_and_crosses_until_then(rng):
    quantize = Quantize(levels=4, learn_batches=3, quantile=0.25)
    ends = []
    for batch in range(6):
        encoded = quantize.embedding(torch.arange(8.0)[None] * (batch + 1), drawing(rng))
        ends.append((encoded.values.min().item(), encoded.values.max().item()))
        assert encoded.nbytes == 2 + (8 if batch < 3 else 0)
    assert ends[0] == (2.0, 5.0)  # a quarter lies outside at either end
    assert ends[1] == (3.0, 7.5)  # the mean of (2, 5) and (4, 10)
    assert ends[2:] == [(4.0, 10.0)] * 4


def test_the_extremes_of_a_batch_are_announced_only_where_that_is_asked_for(rng):
    batches = [torch.randn(40, 8, generator=rng) * scale for scale in (1, 5, 25)]
    announcing = Quantize(levels=9, range="batch")
    for h in batches:
        encoded = announcing.embedding(h, drawing(rng))
        assert encoded.announced.tolist() == [h.min().item(), h.max().item()]
    declared = Quantize(levels=9, range=[-1.0, 1.0])
    assert all(declared.embedding(h, drawing(rng)).announced is None for h in batches)


def test_what_is_no_number_has_no_level(rng):
    for value in (float("nan"), float("inf")):
        with pytest.raises(NonFiniteError):
            Quantize().embedding(torch.tensor([[1.0, value]]), drawing(rng))


def test_bad_options_are_refused():
    for options, message in (
        ({"range": [2.0, 1.0]}, "low < high"),
        ({"range": [0.0, float("inf")]}, "low < high"),
        ({"range": "guess"}, "learned"),
        ({"range": "row"}, "it is for message=gradients"),
        ({"rounding": "stochastic"}, "it is for message=gradients"),
    ):
        with pytest.raises(UserError, match=message):
            construct(Quantize, options, "defense.quantize")


def test_stochastic_rounding_is_right_in_the_mean_and_has_the_variance_of_a_coin(rng):
    """Between two levels, at the share f of the step: mean f, variance f (1 - f) step^2."""
    g = torch.tensor([[0.0, 0.1, 0.25, 0.5, 1.0]]).expand(40_000, 5)
    for levels, step in ((2, 1.0), (3, 0.5)):
        quantize = Quantize(levels=levels, range=[0.0, 1.0], rounding="stochastic", message="gradients")
        sent = quantize.gradient(g, None, drawing(rng)).values.double()
        f = (g[0] / step) % 1
        assert torch.allclose(sent.mean(dim=0), g[0].double(), atol=0.01), levels
        assert torch.allclose(sent.var(dim=0), (f * (1 - f) * step**2).double(), atol=0.01), levels


def test_a_range_for_each_row(rng):
    g = torch.randn(30, 12, generator=rng) * torch.logspace(-6, 3, 30)[:, None]
    g[4] = 0.25  # a row without a range
    encoded = Quantize(levels=5, range="row", message="gradients").gradient(g, None, drawing(rng))
    step = (g.amax(dim=1) - g.amin(dim=1)) / 4
    assert ((encoded.values - g).abs().amax(dim=1) <= step * (0.5 + 1e-5)).all()
    assert torch.allclose(encoded.values.amax(dim=1), g.amax(dim=1))
    assert torch.equal(encoded.values.amin(dim=1), g.amin(dim=1))
    assert encoded.nbytes == 30 * 12 * 3 // 8 + 30 * 8
    places = torch.tensor([3, 20])
    assert torch.equal(encoded.rows(places).values, encoded.values[places])
    assert torch.equal(copied(encoded).values, encoded.values)
