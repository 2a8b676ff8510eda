import torch
from defenses.contexts import drawing

from vflbench.defenses.chain import Chain
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK


def sent(g, rng, **options):
    return Sign(**options).gradient(g, None, drawing(rng)).values


def test_no_other_length_of_the_signs_is_nearer(rng):
    """mean |g| is the s with the least |g - s sign g|^2, for the batch or for each row."""
    for unit in (1e-30, 1.0, 1e15):
        g = torch.randn(20, 7, generator=rng) * unit
        for scale, dims in (("batch", (0, 1)), ("row", (1,))):
            signs = g.sign().double()
            best = (g.double() * signs).sum(dims, keepdim=True) / signs.square().sum(dims, keepdim=True)
            expected = (best * signs).float()
            assert torch.allclose(sent(g, rng, scale=scale), expected, rtol=1e-6, atol=0), (unit, scale)


def test_zero_counts_as_positive(rng):
    g = torch.tensor([[0.0, -2.0], [0.0, 0.0]])
    assert sent(g, rng, scale="batch").tolist() == [[0.5, -0.5], [0.5, 0.5]]
    assert sent(g, rng, scale="row").tolist() == [[1.0, -1.0], [0.0, 0.0]]
    assert sent(torch.zeros(2, 3), rng, scale="batch").tolist() == [[0.0] * 3] * 2


def test_after_top_k_only_what_is_kept_has_a_sign(rng):
    g = torch.randn(30, 16, generator=rng)
    top_k = TopK(fraction=0.25, message="gradients")
    for scale in ("batch", "row"):
        encoded = Chain({"top_k": top_k, "sign": Sign(scale=scale)}).gradient(g, None, drawing(rng))
        kept = top_k.gradient(g, None, drawing(rng)).values
        assert torch.equal(encoded.values.sign(), kept.sign())
        assert encoded.nbytes == (30 * 16 + 30 * 4) // 8 + 4 * (30 if scale == "row" else 1)
