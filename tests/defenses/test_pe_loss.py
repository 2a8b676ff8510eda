import math

import pytest
import torch
from attacks.views import scores_of, shares
from torch.nn import functional as F

from vflbench.attacks.direct import Direct
from vflbench.defenses.pe_loss import PeLoss
from vflbench.messages.facts import Gradients
from vflbench.numerics.auc import auc

DISTANCES = ("angular", "euclidean")


def energy(h, y, distance):
    """Pair by pair, in float64."""
    h, total = h.detach().double(), 0.0
    for k in set(y.tolist()):
        rows = h[y == k]
        pairs = [(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
        total += sum(1 / apart(a, b, distance) for a, b in pairs) / len(rows)
    return total


def apart(a, b, distance):
    if distance == "euclidean":
        return (a - b).norm().item()
    a, b = a - a.mean(), b - b.mean()
    return math.acos((a @ b / (a.norm() * b.norm())).item())


def batch(rng, n=40, d=6, classes=3):
    return torch.randn(n, d, generator=rng, dtype=torch.float64).requires_grad_(), torch.arange(n) % classes


@pytest.mark.parametrize("distance", DISTANCES)
def test_penalty_is_the_weighted_energy_of_each_class_and_party(rng, distance):
    h, y = batch(rng)
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
    corners, y = torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.long)
    assert PeLoss(alpha=1.0).penalty([corners], y).item() == pytest.approx((d - 1) / math.acos(-1 / (d - 1)))
    euclidean = PeLoss(alpha=1.0, distance="euclidean").penalty([corners], y).item()
    assert euclidean == pytest.approx((d - 1) / math.sqrt(2))
    row = torch.tensor([[3.0, -1.0, -2.0, 0.0]])
    opposite = torch.cat([row, -row, torch.tensor([[0.0, 1.0, -1.0, 5.0]])])
    assert PeLoss(alpha=1.0).penalty([opposite], torch.tensor([0, 0, 1])).item() == pytest.approx(1 / math.pi)
    right = torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])
    assert PeLoss(alpha=1.0).penalty([right], torch.tensor([1, 1])).item() == pytest.approx(2 / math.pi)
    assert float(PeLoss(alpha=1.0).penalty([right], torch.tensor([0, 1]))) == 0


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_is_that_of_finite_differences(rng, distance):
    h, y = batch(rng, n=12, classes=2)
    with torch.no_grad():
        h[2] = -h[0] + 1e-5  # nearly opposite
    defense = PeLoss(alpha=0.5, distance=distance)
    defense.penalty([h], y).backward()
    step = 1e-6
    for i, j in ((1, 0), (5, 3), (11, 5)):
        moved = [h.detach().clone() for _ in range(2)]
        moved[0][i, j] -= step
        moved[1][i, j] += step
        below, above = (defense.penalty([x], y).item() for x in moved)
        assert h.grad[i, j].item() == pytest.approx((above - below) / (2 * step), rel=1e-4)
    assert bool(h.grad.isfinite().all())


@pytest.mark.parametrize(("distance", "left_out"), [("angular", 30 - 10), ("euclidean", 2 + 2)])
def test_rows_that_coincide_or_have_no_angle_are_left_out_and_counted(rng, distance, left_out):
    h, y = batch(rng, n=6, classes=1)
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
        rows = h.detach()
        expected = sum(1 / apart(rows[i], rows[j], distance) for i, j in pairs) / 6
        assert value.item() == pytest.approx(expected)
        assert h.grad[2:4].abs().max() == 0


def test_descending_it_spreads_a_class_to_the_corners_of_a_regular_simplex(rng):
    """Four charges on a sphere, which layer normalization makes of four coordinates: a tetrahedron."""
    h = (torch.randn(4, 4, generator=rng) * 0.1 + torch.tensor([1.0, 0.0, 0.0, 0.0])).requires_grad_()
    y, defense = torch.zeros(4, dtype=torch.long), PeLoss(alpha=1.0)
    before = defense.penalty([h], y).item()
    for step in range(300):
        (force,) = torch.autograd.grad(defense.penalty([h], y), h)
        with torch.no_grad():
            h -= 0.1 / (1 + step / 10) * force / force.norm()
    tetrahedron = 3 / math.acos(-1 / 3)
    assert defense.penalty([h], y).item() == pytest.approx(tetrahedron, rel=0.01)
    assert before > 2 * tetrahedron


def test_why_it_falls(rng):
    """The force is the same for both signs of p - y, and small beside it where the model still learns."""
    y = (torch.rand(400, generator=rng) < 0.25).long()
    h = torch.randn(400, 16, generator=rng).abs().requires_grad_()
    logits = F.relu(h @ torch.randn(16, 32, generator=rng) + 1) @ torch.rand(32, generator=rng) / 8 - 2
    (F.binary_cross_entropy_with_logits(logits, y.float()) + PeLoss(alpha=0.001).penalty([h], y)).backward()
    assert auc(scores_of(Direct(), Gradients({"f1": h.grad}), shares(0.25)), y) > 0.9
