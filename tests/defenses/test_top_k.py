import torch
from defenses.contexts import drawing
from support.builders import session, table

from vflbench.defenses.chain import Chain
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.top_k import TopK
from vflbench.models.networks import WideDeep


def test_no_other_choice_of_so_many_coordinates_is_nearer(rng):
    for fraction in (0.12, 0.5, 1.0):
        h = torch.randn(50, 32, generator=rng)
        sent = TopK(fraction=fraction).embedding(h, drawing(rng)).values
        count = max(1, round(fraction * 32))
        assert (sent != 0).sum(dim=1).tolist() == [count] * 50, fraction
        rest = h.square().sort(dim=1).values[:, : 32 - count].sum(dim=1)
        assert torch.allclose((sent - h).square().sum(dim=1), rest, atol=1e-5), fraction
        assert torch.equal(sent[sent != 0], h[sent != 0]), fraction


def test_before_a_quantizer_only_what_is_kept_is_quantized(rng):
    h = torch.randn(30, 16, generator=rng)
    chain = Chain({"top_k": TopK(fraction=0.25), "quantize": Quantize(levels=4, range=[-3.0, 3.0])})
    encoded = chain.embedding(h, drawing(rng))
    assert encoded.nbytes == (30 * 16 + 30 * 4 * 2) // 8  # a bit a coordinate is as short as four indices
    assert torch.equal(encoded.values != 0, TopK(fraction=0.25).embedding(h, drawing(rng)).values != 0)
    kept = encoded.values[encoded.values != 0]
    assert set(kept.tolist()) <= {-3.0, -1.0, 1.0, 3.0}
    assert (kept - h[encoded.values != 0].clamp(-3, 3)).abs().max() <= 1.0 + 1e-6


def test_gradients_pass_straight_through(rng):
    """Also to coordinates that were not sent: the party learns as if it had sent all."""
    rows = table(rng, rows=40)
    split = session(rows, model=WideDeep(bottom_layers=1, width=16), defenses=[TopK(fraction=0.125)])
    party = split.parties[0]
    message = party.embed(rows.ids, watched=True)
    answer = split.label_party.respond([message]).messages[0]
    party.learn(answer)
    assert torch.equal(party.layer_gradients["f1"], answer.tensors["f1"])
