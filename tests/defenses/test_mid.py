import math

import pytest
import torch
from attacks.views import scores_of, shares
from support.builders import session, table, whole_network
from torch import nn
from torch.distributions import Normal, kl_divergence

from vflbench.attacks.direct import Direct
from vflbench.defenses.mid import Mid, divergence
from vflbench.messages.facts import Gradients
from vflbench.models.base import evaluating
from vflbench.models.networks import WideDeep
from vflbench.numerics.auc import auc


def built(widths=(6,), seed=0, **options):
    """A defense and its bottlenecks, whose decoders are left out: what they give is z."""
    defense = Mid(**options)
    network = defense.entrance(widths, torch.Generator().manual_seed(seed))
    network.decoders = nn.ModuleList(nn.Identity() for _ in widths)
    return defense, network


def moments(network, party, h):
    """m and s of the docstring, in float64."""
    encoder = network.encoders[party]
    m, r = (h.double() @ encoder.weight.double().T + encoder.bias.double()).relu().chunk(2, dim=1)
    return m, (1 + (r - 0.5).exp()).log()


def test_the_divergence_is_that_of_torch_and_zero_for_the_prior(rng):
    mean, deviation = torch.randn(50, 4, generator=rng), torch.rand(50, 4, generator=rng) + 0.1
    expected = kl_divergence(Normal(mean, deviation), Normal(0.0, 1.0)).sum(dim=1)
    assert torch.allclose(divergence(mean, deviation), expected, rtol=1e-5)
    assert torch.equal(divergence(torch.zeros(3, 4), torch.ones(3, 4)), torch.zeros(3))
    assert divergence(torch.full((1, 2), 3.0), torch.ones(1, 2)).item() == pytest.approx(9)


def test_what_the_top_gets_has_the_mean_and_the_deviation_of_the_formula(rng):
    _, network = built()
    h = torch.randn(3, 6, generator=rng)
    drawn = network([h.repeat(4000, 1)])[0].view(4000, 3, 6).double()
    m, s = moments(network, 0, h)
    assert torch.allclose(drawn.mean(dim=0), m, atol=0.1)
    assert torch.allclose(drawn.std(dim=0), s, rtol=0.1)
    assert s.min() > math.log(1 + math.exp(-0.5)) - 1e-6
    product = ((drawn - m) / s)[:, 0].T.corrcoef() - torch.eye(6)
    assert product.abs().max() < 0.1  # each coordinate has noise of its own


def test_penalty_is_the_weighted_divergence_of_the_pass_before_it_and_then_none(rng):
    defense, network = built(widths=(6, 3), beta=0.5, width=4)
    embeddings = [torch.randn(20, d, generator=rng) for d in (6, 3)]
    assert [z.shape[1] for z in network(embeddings)] == [4, 4]
    of_parties = []
    for party, h in enumerate(embeddings):
        m, s = moments(network, party, h)
        of_parties.append((m.square() + s.square() - 1 - 2 * s.log()).sum(dim=1).mean().item() / 2)
    penalty = defense.penalty([], torch.zeros(20))
    assert penalty.item() == pytest.approx(0.5 * sum(of_parties), rel=1e-5)
    assert defense.penalty([], torch.zeros(20)) == 0.0
    assert defense.figures() == {"kl": pytest.approx(sum(of_parties), rel=1e-5)}
    assert defense.figures() == {}


def test_where_rows_are_predicted_there_is_no_noise_and_none_is_drawn(rng):
    defense, network = built()
    h = torch.randn(5, 6, generator=rng)
    before = network.noise.get_state()
    with evaluating(network):
        first, second = network([h])[0], network([h])[0]
    assert torch.equal(first, second)
    assert torch.allclose(first.double(), moments(network, 0, h)[0], atol=1e-5)
    assert torch.equal(network.noise.get_state(), before)
    assert defense.penalty([], torch.zeros(5)) == 0.0
    assert not torch.equal(network([h])[0], network([h])[0])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_closed_bottleneck_leaves_the_linear_part_and_the_own_columns(rng, classes):
    """No embedding of a non-label party reaches the logits, so nothing but the linear part has a gradient."""
    rows = table(rng, parties=("a", "b", "label"), rows=40, classes=classes)
    model = WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True)
    split = session(rows, model=model, defenses=(Mid(),))
    entrance = split.label_party.entrance[0]
    with torch.no_grad():
        for encoder in entrance.encoders:
            encoder.weight.zero_()
        for decoder in entrance.decoders:
            decoder[2].weight.zero_()
    top_saw = []
    split.label_party.top.register_forward_pre_hook(lambda _, inputs: top_saw.append([h.detach() for h in inputs[0]]))
    outcome = split.round(rows.ids, watch=frozenset({Gradients}))
    for party in ("a", "b"):
        layers = outcome.facts[party][Gradients].layers
        assert layers["f2"].abs().max() == 0
        assert layers["wide"].abs().min() > 0
        assert layers["wide"].shape == (40, 1 if classes == 2 else classes)
    assert [float(h.std(dim=0).max()) > 0 for h in top_saw[0]] == [False, False, True]


def test_parties_have_bottlenecks_of_their_own_and_learn_through_them(rng):
    rows = table(rng, parties=("a", "b", "label"), rows=100)
    plain, defended = session(rows), session(rows, defenses=(Mid(beta=0.01),))
    first = [split.round(rows.ids).training for split in (plain, defended)]
    assert first[0].penalty == 0 < first[1].penalty
    logits = whole_network(plain, rows)[1]
    embedded = [[party.predict(rows.ids) for party in split.parties] for split in (plain, defended)]
    assert not torch.equal(defended.label_party.predict(embedded[1]), logits)
    later = [defended.round(rows.ids).training for _ in range(30)]
    assert later[-1].loss < first[1].loss
    assert later[-1].penalty < first[1].penalty


def test_why_it_falls(rng):
    """The gradient of the bottleneck's input is p - y times a noisy derivative: its sign survives."""
    y = (torch.rand(400, generator=rng) < 0.25).long()
    h = torch.randn(400, 16, generator=rng).abs().requires_grad_()
    defense = Mid(beta=0.001)
    (passed,) = defense.entrance([16], torch.Generator().manual_seed(1))([h])
    logits = (passed @ torch.rand(16, generator=rng) / 8 - 2).squeeze()
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y.float())
    (loss + defense.penalty([h], y)).backward()
    assert auc(scores_of(Direct(), Gradients({"f1": h.grad}), shares(0.25)), y) > 0.8
