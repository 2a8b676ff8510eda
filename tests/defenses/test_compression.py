"""Embeddings and gradients in fewer bits: `quantize`, `top_k`, `sign`, `vector_quantize`, and `batch_average`."""

import math

import pytest
import torch
from attacks.views import gradients, scores_of, shares
from defenses.contexts import drawing
from support.builders import session, table

from vflbench.attacks.direct import Direct
from vflbench.cli.components import construct
from vflbench.defenses.batch_average import BatchAverage
from vflbench.defenses.chain import Chain
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.errors import NonFiniteError, UserError
from vflbench.messages.facts import copied
from vflbench.models.networks import WideDeep
from vflbench.numerics.auc import auc


def test_error_is_half_a_step_at_most_and_every_number_takes_so_many_bits(rng):
    for levels, bits in ((2, 1), (5, 3), (256, 8), (257, 9)):
        quantize = Quantize(levels=levels, range=[-1.0, 3.0])
        h = torch.rand(64, 24, generator=rng) * 4 - 1
        encoded = quantize.embedding(h, drawing(rng))
        assert encoded.nbytes == 64 * 24 * bits // 8, levels
        assert (encoded.values - h).abs().max() <= 2 / (levels - 1) + 1e-6, levels
        assert len(encoded.values.unique()) <= levels, levels
        assert torch.equal(quantize.embedding(encoded.values, drawing(rng)).values, encoded.values), levels


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
    announcing, declared = Quantize(levels=9, range="batch"), Quantize(levels=9, range=[-1.0, 1.0])
    for scale in (1, 5):
        h = torch.randn(40, 8, generator=rng) * scale
        assert announcing.embedding(h, drawing(rng)).announced.tolist() == [h.min().item(), h.max().item()]
        assert declared.embedding(h, drawing(rng)).announced is None


def test_what_is_no_number_has_no_level(rng):
    for defense in (Quantize(), VectorQuantize()):
        with pytest.raises(NonFiniteError):
            defense.embedding(torch.tensor([[1.0, float("inf")]]), drawing(rng))


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
    low, high = g.aminmax(dim=1)
    assert ((encoded.values - g).abs().amax(dim=1) <= (high - low) / 4 * (0.5 + 1e-5)).all()
    assert torch.allclose(encoded.values.amax(dim=1), high)
    assert torch.equal(encoded.values.amin(dim=1), low)
    assert encoded.nbytes == 30 * 12 * 3 // 8 + 30 * 8
    assert torch.equal(encoded.rows(torch.tensor([3, 20])).values, encoded.values[[3, 20]])
    assert torch.equal(copied(encoded).values, encoded.values)


def test_no_other_choice_of_so_many_coordinates_is_nearer(rng):
    h = torch.randn(50, 32, generator=rng)
    for fraction, count in ((0.01, 1), (0.12, 4), (1.0, 32)):
        sent = TopK(fraction=fraction).embedding(h, drawing(rng)).values
        assert (sent != 0).sum(dim=1).tolist() == [count] * 50, fraction
        rest = h.square().sort(dim=1).values[:, : 32 - count].sum(dim=1)
        assert torch.allclose((sent - h).square().sum(dim=1), rest, atol=1e-5), fraction
        assert torch.equal(sent[sent != 0], h[sent != 0]), fraction


def test_after_top_k_only_what_is_kept_is_quantized_or_has_a_sign(rng):
    x, kept = torch.randn(30, 16, generator=rng), 30 * 16 // 8  # a bit a coordinate is as short as four indices
    for message, defense, nbytes in (
        ("embeddings", Quantize(levels=4, range=[-3.0, 3.0]), 30 * 4 * 2 // 8),
        ("gradients", Sign(), 30 * 4 // 8 + 30 * 4),
        ("gradients", Sign(scale="batch"), 30 * 4 // 8 + 4),
    ):
        chain, top_k = Chain({"top_k": TopK(fraction=0.25, message=message), "it": defense}), TopK(fraction=0.25)
        context = drawing(rng)
        encoded = chain.embedding(x, context) if message == "embeddings" else chain.gradient(x, None, context)
        assert encoded.nbytes == kept + nbytes
        assert torch.equal(encoded.values.sign(), top_k.embedding(x, context).values.sign())
        if message == "embeddings":
            values = encoded.values[encoded.values != 0]
            assert set(values.tolist()) <= {-3.0, -1.0, 1.0, 3.0}
            assert (values - x[encoded.values != 0].clamp(-3, 3)).abs().max() <= 1.0 + 1e-6


def test_gradients_pass_straight_through(rng):
    """Also to coordinates that were not sent: the party learns as if it had sent all."""
    rows = table(rng, rows=40)
    split = session(rows, model=WideDeep(bottom_layers=1, width=16), defenses=[TopK(fraction=0.125)])
    party = split.parties[0]
    sent = party.embed(rows.ids, watched=True)
    answer = split.label_party.respond([sent]).messages[0]
    assert (sent.nbytes, answer.nbytes) == (40 * 2 * (32 + 4) // 8, 40 * 16 * 4)
    party.learn(answer)
    assert torch.equal(party.layer_gradients["f1"], answer.tensors["f1"])


def test_no_other_length_of_the_signs_is_nearer_and_zero_counts_as_positive(rng):
    """mean |g| is the s with the least |g - s sign g|^2, for the batch or for each row."""
    g, zeros = torch.randn(20, 7, generator=rng), torch.tensor([[0.0, -2.0], [0.0, 0.0]])
    for scale, dims, of_zeros in (("batch", (0, 1), [[0.5, -0.5], [0.5, 0.5]]), ("row", (1,), [[1.0, -1.0], [0.0, 0.0]])):
        signs, defense = g.sign().double(), Sign(scale=scale)
        best = (g.double() * signs).sum(dims, keepdim=True) / signs.square().sum(dims, keepdim=True)
        assert torch.allclose(defense.gradient(g, None, drawing(rng)).values, (best * signs).float(), rtol=1e-6), scale
        assert defense.gradient(zeros, None, drawing(rng)).values.tolist() == of_zeros


def test_planted_words_are_learned(rng):
    """Runs of two coordinates that lie near four corners."""
    corners = torch.tensor([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0], [5.0, 5.0]])
    truth = corners[torch.randint(4, (200, 3), generator=rng)].view(200, 6)
    h = truth + 0.01 * torch.randn(200, 6, generator=rng)
    encoded = VectorQuantize(words=4, size=2).embedding(h, drawing(rng))
    assert (encoded.values - truth).abs().max() < 0.01
    assert encoded.nbytes == 200 * 3 * 2 // 8 + 4 * 2 * 4  # two bits a run, and the codebook


def test_the_codebook_is_fixed_after_the_first_batches_and_crosses_until_then(rng):
    defense = VectorQuantize(words=16, size=4, learn_batches=2)
    batches = [torch.randn(64, 10, generator=rng) for _ in range(4)]
    sent = [defense.embedding(h, drawing(rng)) for h in batches]
    codes = 64 * 3 * 4 // 8  # ten coordinates are three runs, the last one filled up
    assert [encoded.nbytes for encoded in sent] == [codes + 16 * 4 * 4] * 2 + [codes] * 2
    books = [encoded.code.words for encoded in sent]
    assert not torch.equal(books[0], books[1])
    assert torch.equal(books[1], books[3])
    assert sent[3].values.shape == (64, 10)
    assert len(defense._parts) == 0


def averaged(g, rng, group=None, ids=None, epoch=0):
    ids = torch.arange(len(g)) if ids is None else ids
    return BatchAverage(group=group).gradient(g, None, drawing(rng, ids, epoch)).values


def members(sent):
    return sent.unique(dim=0, return_inverse=True)[1]


def test_each_row_gets_the_mean_of_its_group(rng):
    for rows, group, groups in ((48, 8, 6), (50, 8, 6), (7, 8, 1), (9, 1, 9)):
        g = torch.randn(rows, 5, generator=rng)
        sent = averaged(g, rng, group)
        member = members(sent)
        sizes = member.bincount()
        assert (len(sizes), int(sizes.min())) == (groups, min(rows, rows // groups)), rows
        assert int(sizes.max()) <= int(sizes.min()) + 1, rows
        for one in range(groups):
            expected = g[member == one].double().mean(dim=0).float()
            assert torch.allclose(sent[member == one], expected.expand(int(sizes[one]), 5), rtol=1e-5, atol=1e-7), rows


def test_a_mean_crosses_for_each_group_and_the_number_of_its_group_for_each_row(rng):
    encoded = BatchAverage(group=8).gradient(torch.randn(40, 16, generator=rng), None, drawing(rng, torch.arange(40)))
    assert encoded.nbytes == 5 * 16 * 4 + 40 * 3 // 8


def test_groups_are_the_same_for_all_layers_and_others_in_each_epoch(rng):
    ids = torch.randperm(1000, generator=rng)[:60]
    sent = [averaged(torch.randn(60, d, generator=rng), rng, 4, ids, epoch) for d, epoch in ((5, 0), (3, 0), (5, 1))]
    first, second, later = (members(values)[:, None] == members(values) for values in sent)
    assert torch.equal(first, second)
    assert (first & later).sum().item() - 60 < 0.3 * (first.sum().item() - 60)  # 3 of 59 others are in a group by chance


def test_neighbours_in_id_are_scattered(rng):
    """Rows in the order of time have labels that go together; groups don't follow it."""
    ids = torch.arange(4000)
    member = members(averaged(torch.randn(4000, 2, generator=rng), rng, 40, ids))
    late = torch.zeros(100).index_add_(0, member, (ids >= 2000).float())
    assert late.mean().item() == 20
    assert late.var().item() == pytest.approx(40 * 0.25, rel=0.6)


def test_one_message_tells_of_a_row_what_a_count_tells(rng):
    """Groups of two, a share p of positives: AUC = 1 - p (1 - p) / 2 of the better of the two classes' counts; a whole batch
    tells nothing."""
    n, p = 20_000, 0.25
    y = (torch.rand(n, generator=rng) < p).long()
    g = (p - y)[:, None] * torch.nn.functional.normalize(torch.randn(16, generator=rng), dim=0)
    read = scores_of(Direct(), gradients(averaged(g, rng, 2)), shares(p))
    assert auc(read.double().round(decimals=5), y) == pytest.approx(1 - p * (1 - p) / 2, abs=0.01)
    whole = scores_of(Direct(), gradients(averaged(g, rng)), shares(p))
    assert math.isclose(auc(whole.double().round(decimals=9), y), 0.5)
