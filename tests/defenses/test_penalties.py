"""What is trained beside cross-entropy: `dcor`, `nopeek`, `pe_loss`, and the bottleneck of `mid`."""

import math
from collections import Counter

import pytest
import torch
from attacks.views import gradients, scores_of, shares
from numerics.test_dcor import by_definition
from support.builders import session, table
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from vflbench.attacks.direct import Direct
from vflbench.defenses.base import Context
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.mid import Mid
from vflbench.defenses.nopeek import Nopeek
from vflbench.defenses.pe_loss import PeLoss
from vflbench.messages.facts import Gradients, PartyFeatures
from vflbench.models.base import evaluating
from vflbench.models.networks import WideDeep
from vflbench.numerics.auc import auc
from vflbench.numerics.distance_correlation import distance_correlation

DISTANCES = ("angular", "euclidean")


def labelled(rng):
    y = (torch.rand(100, generator=rng) < 0.3).long()
    return (torch.randn(100, 6, generator=rng) + y[:, None]).requires_grad_(), y


def test_penalty_is_the_weighted_logarithm_one_a_party(rng):
    h, y = labelled(rng)
    other = torch.randn(100, 3, generator=rng, requires_grad=True)
    expected = sum(math.log(distance_correlation(x.detach(), y)) for x in (h, other))
    assert Dcor(alpha_d=0.5).penalty([h, other], y).item() == pytest.approx(0.5 * expected)
    assert Dcor(alpha_d=0.5, statistic="root").penalty([h, other], y).item() == pytest.approx(0.25 * expected)


def test_where_there_is_nothing_to_correlate_there_is_no_penalty_and_it_is_counted(rng):
    h, y = labelled(rng)
    defense = Dcor()
    assert float(defense.penalty([h], torch.zeros_like(y))) == 0
    assert float(defense.penalty([torch.ones(100, 6, requires_grad=True)], y)) == 0
    assert defense.figures() == {"constant_batches": 2}
    defense.penalty([h], y)
    assert defense.figures()["constant_batches"] == 0


def test_weight_rises_over_the_warm_up(rng):
    h, y = labelled(rng)
    full, defense = Dcor().penalty([h], y).item(), Dcor(warmup=4)
    assert [defense.penalty([h], y).item() / full for _ in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_a_round_trains_on_loss_plus_penalty_at_both_ends_of_the_wire(rng):
    rows = table(rng, parties=("a", "b"), rows=100)
    plain, defended = session(rows), session(rows, defenses=(Dcor(alpha_d=10.0),))
    first = [split.round(rows.ids).training.loss for split in (plain, defended)]
    assert first[0] == first[1]  # the same network, before either has learned
    embeddings = [split.parties[0].predict(rows.ids).tensors["f2"] for split in (plain, defended)]
    assert not torch.equal(*embeddings)
    penalties = [defended.round(rows.ids).training.penalty for _ in range(15)]
    assert penalties[-1] < penalties[0] < 0


def mixed(rng, n=40):
    numeric = torch.rand(n, 3, generator=rng, dtype=torch.float64)
    categorical = torch.randint(4, (n, 2), generator=rng, dtype=torch.int32)
    one_hot = F.one_hot(categorical.long(), 4).flatten(1).double() / 2**0.5
    context = Context(torch.arange(n), PartyFeatures(numeric, categorical), 0, rng)
    return torch.cat([numeric, one_hot], dim=1), context


@pytest.mark.parametrize("statistic", ["root", "squared"])
def test_weights_follow_the_gradient_of_the_mean_loss_and_the_penalty(rng, statistic):
    """Of a network trained on g = d mean loss / dh, as the label party sends it, against autograd of the whole objective."""
    columns, context = mixed(rng)
    y = (torch.rand(len(columns), generator=rng, dtype=torch.float64) < 0.3).double()
    weights = torch.randn(columns.shape[1], 5, generator=rng, dtype=torch.float64, requires_grad=True)
    top = torch.randn(5, generator=rng, dtype=torch.float64)

    def loss(h):
        return F.binary_cross_entropy_with_logits(h @ top, y)

    h = (columns @ weights).tanh()
    squared = by_definition(h, (columns[:, None] - columns).norm(dim=2))  # with one-hot vectors over sqrt(2)
    dcor = squared if statistic == "squared" else squared.sqrt()
    (expected,) = torch.autograd.grad(loss(h) + 0.7 * dcor, weights, retain_graph=True)
    sent = h.detach().requires_grad_()
    (g,) = torch.autograd.grad(loss(sent), sent)
    defense = Nopeek(alpha=0.7, statistic=statistic)
    (gradient,) = torch.autograd.grad(h, weights, defense.received(g, h.detach(), context))
    assert (gradient - expected).norm() <= 1e-10 * expected.norm()
    assert defense.figures() == {"constant_batches": 0, "dcor": pytest.approx(dcor.item(), rel=1e-9)}


def test_constant_embeddings_are_counted_and_without_a_weight_nothing_is_added(rng):
    _, context = mixed(rng)
    defense, h = Nopeek(), torch.ones(40, 4)
    assert torch.equal(defense.received(h, h, context), h)
    assert defense.figures() == {"constant_batches": 1}
    assert not defense.figures()
    assert torch.equal(Nopeek(alpha=0.0).received(h, torch.randn(40, 4, generator=rng), context), h)


def energy(h, y, distance):
    """Pair by pair, in float64."""
    h, size = h.detach().double(), Counter(y.tolist())
    pairs = [(i, j) for i in range(len(y)) for j in range(len(y)) if i != j and y[i] == y[j]]
    return sum(1 / between(h[i], h[j], distance) / size[int(y[i])] for i, j in pairs)


def between(a, b, distance):
    if distance == "euclidean":
        return (a - b).norm().item()
    a, b = a - a.mean(), b - b.mean()
    return math.acos((a @ b / (a.norm() * b.norm())).item())


def charges(rng, n=40, d=6, classes=3):
    return torch.randn(n, d, generator=rng, dtype=torch.float64).requires_grad_(), torch.arange(n) % classes


@pytest.mark.parametrize("distance", DISTANCES)
def test_penalty_is_the_weighted_energy_of_each_class_and_party(rng, distance):
    h, y = charges(rng)
    other = torch.randn(40, 5, generator=rng)
    defense = PeLoss(alpha=0.5, distance=distance)
    of_parties = energy(h, y, distance) + energy(other, y, distance)
    assert defense.penalty([h, other], y).item() == pytest.approx(0.5 * of_parties, rel=1e-6)
    assert defense.figures()["coinciding_pairs"] == 0
    defense.penalty([h[:39]], y[:39])  # each of three classes adds n_k - 1 = 12 times the mean over its pairs
    assert defense.figures()["energy"] == pytest.approx(energy(h[:39], y[:39], distance) / (3 * 12))


def test_closed_forms():
    """A regular simplex, two opposite rows, and rows at right angles, beside rows that are alone in their class."""
    d = 5
    row, right = torch.tensor([[3.0, -1.0, -2.0, 0.0]]), torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    opposite = torch.cat([row, -row, torch.tensor([[0.0, 1.0, -1.0, 5.0]])])
    for rows, y, distance, expected in (
        (torch.eye(d), [0] * d, "angular", (d - 1) / math.acos(-1 / (d - 1))),
        (torch.eye(d), [0] * d, "euclidean", (d - 1) / math.sqrt(2)),
        (opposite, [0, 0, 1], "angular", 1 / math.pi),
        (right, [1, 1], "angular", 2 / math.pi),
        (right, [0, 1], "angular", 0),
    ):
        h = rows.clone().requires_grad_()
        value = PeLoss(alpha=1.0, distance=distance).penalty([h], torch.tensor(y))
        value.backward()
        assert value.item() == pytest.approx(expected), y
        assert bool(h.grad.isfinite().all()), y


@pytest.mark.parametrize(("distance", "left_out"), [("angular", 30 - 10), ("euclidean", 2 + 2)])
def test_rows_that_coincide_or_have_no_angle_are_left_out_and_counted(rng, distance, left_out):
    h, y = charges(rng, n=6, classes=1)
    with torch.no_grad():
        h[1] = h[0]
        h[2:4] = 0.0
    defense = PeLoss(alpha=1.0, distance=distance)
    value = defense.penalty([h], y)
    value.backward()
    assert bool(h.grad.isfinite().all())
    assert defense.figures()["coinciding_pairs"] == left_out
    assert defense.figures() == {}
    if distance == "angular":
        pairs = [(i, j) for i in (0, 1, 4, 5) for j in (0, 1, 4, 5) if i != j and {i, j} != {0, 1}]
        expected = sum(1 / between(h[i].detach(), h[j].detach(), distance) for i, j in pairs) / 6
        assert value.item() == pytest.approx(expected)
        assert h.grad[2:4].abs().max() == 0


def test_descending_it_spreads_a_class_to_the_corners_of_a_regular_simplex(rng):
    """Four charges on a sphere, which layer normalization makes of four coordinates: a tetrahedron."""
    h = (torch.randn(4, 4, generator=rng) * 0.1 + torch.tensor([1.0, 0.0, 0.0, 0.0])).requires_grad_()
    y, defense = torch.zeros(4, dtype=torch.long), PeLoss(alpha=1.0)
    before, tetrahedron = defense.penalty([h], y).item(), 3 / math.acos(-1 / 3)
    for step in range(300):
        (force,) = torch.autograd.grad(defense.penalty([h], y), h)
        with torch.no_grad():
            h -= 0.1 / (1 + step / 10) * force / force.norm()
    assert defense.penalty([h], y).item() == pytest.approx(tetrahedron, rel=0.01)
    assert before > 2 * tetrahedron


def built(widths=(6,), **options):
    """A defense and its bottlenecks, whose decoders are left out: what they give is z."""
    defense = Mid(**options)
    network = defense.entrance(widths, torch.Generator().manual_seed(0))
    network.decoders = nn.ModuleList(nn.Identity() for _ in widths)
    return defense, network


def moments(network, party, h):
    """m and s of the docstring, in float64."""
    encoder = network.encoders[party]
    m, r = (h.double() @ encoder.weight.double().T + encoder.bias.double()).relu().chunk(2, dim=1)
    return m, (1 + (r - 0.5).exp()).log()


def test_what_the_top_gets_has_the_mean_and_the_deviation_of_the_formula(rng):
    _, network = built()
    h = torch.randn(3, 6, generator=rng)
    drawn = network([h.repeat(4000, 1)])[0].view(4000, 3, 6).double()
    m, s = moments(network, 0, h)
    assert torch.allclose(drawn.mean(dim=0), m, atol=0.1)
    assert torch.allclose(drawn.std(dim=0), s, rtol=0.1)
    product = ((drawn - m) / s)[:, 0].T.corrcoef() - torch.eye(6)
    assert product.abs().max() < 0.1  # each coordinate has noise of its own


def test_penalty_is_the_weighted_divergence_of_the_pass_before_it_and_then_none(rng):
    defense, network = built(widths=(6, 3), beta=0.5, width=4)
    embeddings = [torch.randn(20, d, generator=rng) for d in (6, 3)]
    assert [z.shape[1] for z in network(embeddings)] == [4, 4]
    of_parties = [Normal(*moments(network, party, h)) for party, h in enumerate(embeddings)]
    expected = sum(kl_divergence(one, Normal(0.0, 1.0)).sum(dim=1).mean().item() for one in of_parties)
    assert defense.penalty([], torch.zeros(20)).item() == pytest.approx(0.5 * expected, rel=1e-5)
    assert defense.penalty([], torch.zeros(20)) == 0.0
    assert defense.figures() == {"kl": pytest.approx(expected, rel=1e-5)}
    assert defense.figures() == {}


def test_where_rows_are_predicted_there_is_no_noise_and_none_is_drawn(rng):
    defense, network = built()
    h = torch.randn(5, 6, generator=rng)
    before = network.noise.get_state()
    with evaluating(network):
        predicted = network([h])[0]
    assert torch.allclose(predicted.double(), moments(network, 0, h)[0], atol=1e-5)
    assert torch.equal(network.noise.get_state(), before)
    assert defense.penalty([], torch.zeros(5)) == 0.0
    assert not torch.equal(network([h])[0], network([h])[0])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_closed_bottleneck_leaves_the_linear_part_and_the_own_columns(rng, classes):
    """No embedding of a non-label party reaches the logits, so nothing but the linear part has a gradient."""
    rows = table(rng, parties=("a", "b", "label"), rows=40, classes=classes)
    split = session(rows, model=WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True), defenses=(Mid(),))
    (entrance,) = split.label_party.entrance
    with torch.no_grad():
        for layer in (*entrance.encoders, *(decoder[2] for decoder in entrance.decoders)):
            layer.weight.zero_()
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
    later = [defended.round(rows.ids).training for _ in range(30)]
    assert later[-1].loss < first[1].loss
    assert later[-1].penalty < first[1].penalty


@pytest.mark.parametrize(("defense", "least"), [(PeLoss(alpha=0.001), 0.9), (Mid(beta=0.001), 0.8)])
def test_why_they_fall(rng, defense, least):
    """Charges push alike for both signs of p - y, little beside it where the model still learns. The gradient of the
    bottleneck's input is p - y times a noisy derivative: its sign survives.
    """
    y = (torch.rand(400, generator=rng) < 0.25).long()
    h = torch.randn(400, 16, generator=rng).abs().requires_grad_()
    entrance = defense.entrance([16], torch.Generator().manual_seed(1))
    (passed,) = entrance([h]) if entrance else [F.relu(h @ torch.randn(16, 32, generator=rng) + 1)]
    logits = passed @ torch.rand(passed.shape[1], generator=rng) / 8 - 2
    (F.binary_cross_entropy_with_logits(logits, y.float()) + defense.penalty([h], y)).backward()
    assert auc(scores_of(Direct(), gradients(h.grad), shares(0.25)), y) > least
