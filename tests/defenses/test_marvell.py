import math

import pytest
import torch
from attacks.views import view_of
from defenses.contexts import drawing
from scipy import stats

from vflbench.attacks.cosine import Cosine
from vflbench.attacks.norm import Norm
from vflbench.attacks.remainder import Remainder
from vflbench.cli.components import construct
from vflbench.defenses.base import WithheldError
from vflbench.defenses.marvell import Marvell, class_moments, leak_auc_bound
from vflbench.defenses.marvell_noise import equalising_noise, full_moments, shared_noise, solve_target
from vflbench.errors import NonFiniteError, UserError
from vflbench.messages.facts import BatchHints, ClassShares, Gradients
from vflbench.messages.threat import View
from vflbench.metrics.privacy import Exposure, holds
from vflbench.numerics.auc import auc


def gradients(rng, n=4096, d=128, positive=0.25, spread=(0.02, 0.05)):
    """As a logistic loss gives them: positives opposite to negatives and longer, along one direction."""
    y = (torch.rand(n, generator=rng) < positive).long()
    e = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    length = torch.where(y == 1, -(1 - positive), positive)
    deviation = torch.tensor(spread)[y] / math.sqrt(d)
    return length[:, None] * e + deviation[:, None] * torch.randn(n, d, generator=rng), y


def leak(attack, g, y, rng):
    """Leak AUC of an attack with at most one known positive, which is not scored."""
    positives = (y == 1).nonzero()[:, 0]
    known = positives[torch.randperm(len(positives), generator=rng)[:1]]
    facts = {Gradients: Gradients({"f1": g}), BatchHints: BatchHints(known)}
    view = View("a", 0, 0, torch.arange(len(y)), rng, attack.threat, facts)
    asked = torch.ones(len(y), dtype=torch.bool)
    asked[known] = attack.threat.hints == 0
    return auc(attack.batch(view).layers["f1"][asked], y[asked])


def test_noise_has_the_covariance_that_was_solved_for(rng):
    g, y = gradients(rng, n=200_000, d=4, spread=(0.3, 0.9))
    ours, moments = Marvell(), class_moments(g, y == 1)
    noise = (ours.gradient(g, y, drawing(rng)) - g).double()
    solved = solve_target(moments.u, moments.v, 4, moments.gap, (y == 1).double().mean().item(), 0.16)
    e = moments.direction
    projector = torch.outer(e, e)
    for which, along, across in ((0, solved.l10, solved.l20), (1, solved.l11, solved.l21)):
        expected = along * projector + across * (torch.eye(4, dtype=torch.float64) - projector)
        assert torch.allclose(noise[y == which].T.cov(correction=0), expected, atol=0.01 * along)
        assert noise[y == which].mean(0).abs().max() < 0.01 * math.sqrt(along)
    assert solved.l20 > 0
    assert solved.l21 == 0


def test_leaks_fall_as_published_figures_say(rng):
    """n = 4096, d = 128, a quarter positive, error bound 0.4: norm 1.00 -> 0.52, cosine 1.00 -> 0.61."""
    norm, cosine = [], []
    for _ in range(4):
        g, y = gradients(rng)
        assert leak(Norm(), g, y, rng) > 0.999
        assert leak(Cosine(), g, y, rng) > 0.999
        noisy = Marvell(error_bound=0.4).gradient(g, y, drawing(rng))
        norm.append(leak(Norm(), noisy, y, rng))
        of_cosine = leak(Cosine(), noisy, y, rng)  # the noise of the one hint decides which way it points
        cosine.append(max(of_cosine, 1 - of_cosine))
    assert sum(norm) / 4 == pytest.approx(0.52, abs=0.015)
    assert sum(cosine) / 4 == pytest.approx(0.61, abs=0.015)


def test_three_ways_to_say_how_much(rng):
    assert Marvell().target == 0.16
    assert Marvell(error_bound=0.4).target == pytest.approx(0.16)
    g, y = gradients(rng)
    gap = class_moments(g, y == 1).gap
    powered = Marvell(power=8.0)
    noise = powered.gradient(g, y, drawing(rng)) - g
    mean_power = noise.double().square().sum(1).mean().item()
    assert mean_power == pytest.approx(8 * gap, rel=0.1)
    assert powered.figures()["power_ratio"] == pytest.approx(8)
    with pytest.raises(UserError, match=r"defense.marvell.power=8.0: it can't be given beside error_bound"):
        construct(Marvell, {"power": 8.0, "error_bound": 0.4}, "defense.marvell")


def test_infinite_sumkl_is_no_defense(rng):
    g, y = gradients(rng)
    assert torch.equal(Marvell(sumkl=math.inf).gradient(g, y, drawing(rng)), g)
    assert Marvell(sumkl=math.inf).guarantee() is None


def test_a_batch_of_one_class_gets_the_last_noise_or_is_withheld(rng):
    g, y = gradients(rng, n=64, d=4)
    only = torch.zeros_like(y)
    defense = Marvell()
    with pytest.raises(WithheldError, match="one class only, and no batch before it had both"):
        defense.gradient(g, only, drawing(rng))
    defense.gradient(g, y, drawing(rng))
    noise = torch.stack([defense.gradient(g, only, drawing(rng)) - g for _ in range(200)])
    expected = defense._last["along"][0] ** 2 + 4 * defense._last["everywhere"][0] ** 2
    assert noise.square().sum(2).mean().item() == pytest.approx(expected, rel=0.05)
    assert {k: v for k, v in defense.figures().items() if isinstance(v, int)} == {
        "one_class_batches": 201,
        "withheld_batches": 1,
    }
    strict = Marvell(one_class="withhold")
    strict.gradient(g, y, drawing(rng))
    with pytest.raises(WithheldError, match="one_class=withhold"):
        strict.gradient(g, torch.ones_like(y), drawing(rng))


def test_a_logits_sign_is_hidden(rng):
    """The linear part's gradient, (p - y) / n: one number, whose sign is the label."""
    y = (torch.rand(4096, generator=rng) < 0.25).long()
    g = ((torch.rand(4096, generator=rng) * 0.5 - y) / 4096)[:, None]
    assert auc(-g[:, 0], y) > 0.99
    noisy = Marvell().gradient(g, y, drawing(rng))
    assert 0.55 < auc(-noisy[:, 0], y) < leak_auc_bound(0.16)


def test_promise_is_the_bound_and_composes():
    promise = Marvell().guarantee()
    assert promise.error_after(Exposure(messages=1)) == pytest.approx(0.4)
    assert promise.leak_auc_after(Exposure(messages=1)) == pytest.approx(0.68)
    assert promise.leak_auc_after(Exposure(messages=4)) == pytest.approx(leak_auc_bound(0.64))
    assert (promise.leak_auc_after(Exposure(messages=25)), promise.error_after(Exposure(messages=25))) == (1.0, 0.0)
    assert Marvell(power=8.0).guarantee() is None
    for s in (0.01, 0.16, 1.0, 3.9):  # above what equal Gaussians reach
        assert stats.norm.cdf(math.sqrt(s / 2)) < leak_auc_bound(s) < 1


def test_isotropic_gaussians_pass_the_test_of_the_assumption_and_low_rank_fails(rng):
    """At more rows than coordinates and at fewer; the level is a few per cent."""
    assert Marvell().guarantee().tested_by[0] == "anisotropy"
    for n, d in ((2000, 16), (100, 64)):
        passed = 0
        for _ in range(30):
            defense = Marvell()
            defense.gradient(*gradients(rng, n=n, d=d), drawing(rng))
            passed += holds([defense.figures()["anisotropy"]])
        assert passed >= 30 - 5, (n, d)
        g, y = gradients(rng, n=n, d=d)
        basis = torch.linalg.qr(torch.randn(d, 4, generator=rng)).Q
        low_rank, defense = g @ basis @ basis.T, Marvell()
        defense.gradient(low_rank, y, drawing(rng))
        figures = defense.figures()
        assert not holds([figures["anisotropy"]]), (n, d)
        assert figures["effective_dimension_0"] < 6, (n, d)


def network_gradients(rng, n=512, d=32, rank=9, patterns=30):
    """(p - y) J of a network: one of a few J a row, which share a direction."""
    y = (torch.rand(n, generator=rng) < 0.25).long()
    basis = torch.linalg.qr(torch.randn(d, rank, generator=rng)).Q
    j = torch.cat([torch.ones(patterns, 1), 0.3 * torch.randn(patterns, rank - 1, generator=rng)], dim=1) @ basis.T
    return (torch.rand(n, generator=rng) * 0.5 - y)[:, None] * j[torch.randint(patterns, (n,), generator=rng)], y


def mean_remainder(noise, rng):
    """What `remainder` reads, over six batches, from noise of the power that is asked for by sumkl 0.16."""
    attack, defense, found = Remainder(), Marvell(noise=noise), []
    for _ in range(6):
        g, y = network_gradients(rng)
        view = view_of(attack.threat, Gradients({"f1": defense.gradient(g, y, drawing(rng))}), ClassShares((0.75, 0.25)))
        found.append(auc(attack.batch(view).layers["f1"], y))
    return sum(found) / 6


def test_the_remainder_reads_published_noise_of_low_rank_and_neither_of_the_others(rng):
    assert mean_remainder("published", rng) > 0.99
    for noise in ("full", "shared"):
        assert 0.32 < mean_remainder(noise, rng) < leak_auc_bound(0.16), noise


@pytest.mark.parametrize("noise", ["full", "shared"])
def test_noise_of_any_rank_has_the_covariance_that_was_solved_for(rng, noise):
    g, y = network_gradients(rng, n=200_000, d=6, rank=3)
    solve = {"full": equalising_noise, "shared": shared_noise}[noise]
    solved = solve(full_moments(g, y == 1), sumkl=0.16)
    defense = Marvell(noise=noise)
    added = (defense.gradient(g, y, drawing(rng)) - g).double()
    for k, factor in enumerate(solved.roots):
        expected = factor @ factor.T
        assert torch.allclose(added[y == k].T.cov(correction=0), expected, atol=0.02 * float(expected.diagonal().max()))
    figures = defense.figures()
    assert figures["sumkl"] == pytest.approx(0.16)
    assert figures["power_ratio"] == pytest.approx(
        added.square().sum(1).mean().item() / class_moments(g, y == 1).gap, rel=0.02
    )
    assert "anisotropy" not in figures


@pytest.mark.parametrize("noise", ["full", "shared"])
def test_noise_of_any_rank_takes_a_power_and_stays_off_dead_units(rng, noise):
    g, y = network_gradients(rng)
    g[:, 3] = 0
    powered = Marvell(noise=noise, power=8.0)
    assert not powered.gradient(g, y, drawing(rng))[:, 3].any()
    assert powered.figures()["power_ratio"] == pytest.approx(8)
    same = torch.ones_like(g)
    assert torch.equal(Marvell(noise=noise).gradient(same, y, drawing(rng)), same)
    with pytest.raises(NonFiniteError):
        Marvell(noise=noise).gradient(g / 0, y, drawing(rng))


def test_only_noise_that_both_classes_share_promises_without_an_assumption():
    assert Marvell(noise="full").guarantee() is None
    assert Marvell(noise="shared", power=8.0).guarantee() is None
    promise = Marvell(noise="shared").guarantee()
    assert (promise.assumption, promise.tested_by, promise.message) == ("", (), "gradient")
    assert promise.leak_auc_after(Exposure(messages=1)) == pytest.approx(0.68)
    assert promise.leak_auc_after(Exposure(2, messages=2)) == 1  # the next test reads it
    assert Marvell().guarantee().assumption


def test_two_messages_under_shared_noise_give_a_row_away_where_batches_are_small(rng):
    """The noise lies in the affine hull of a batch's gradients, and a row's own is where the hulls of its batches meet.

    Fair coins, g = (1/2 - y) J with the same J in both epochs, batches of 8 at a width of 128: by the leading direction of
    these points. A ceiling of twice the sumkl would be 0.743.
    """
    n, size, d, found = 256, 8, 128, []
    jacobians = torch.randn(d, generator=rng) + torch.randn(n, d, generator=rng)
    y = torch.randint(2, (n,), generator=rng)
    g = (0.5 - y.float())[:, None] * jacobians
    hulls: dict[int, list] = {row: [] for row in range(n)}
    for _ in range(2):
        defense = Marvell(noise="shared")
        for rows in torch.randperm(n, generator=rng).split(size):
            if 0 < int(y[rows].sum()) < size:
                sent = defense.gradient(g[rows], y[rows], drawing(rng)).double()
                for row in rows.tolist():
                    hulls[row].append((sent[0], (sent[1:] - sent[0]).T))
    both = [row for row in range(n) if len(hulls[row]) == 2]
    for row in both:
        (a, of_a), (b, of_b) = hulls[row]
        weights = torch.linalg.lstsq(torch.cat([of_a, -of_b], dim=1), b - a).solution
        found.append(a + of_a @ weights[: of_a.shape[1]])
    points = torch.stack(found)
    read = auc(points @ torch.linalg.svd(points, full_matrices=False).Vh[0], y[both])
    assert max(read, 1 - read) > 0.85


def best_reading(rng, g, y, rows):
    """Of these rows, by who knows the distributions of both of their classes, points and noise; a mean over 10 batches."""
    defense, found = Marvell(noise="shared"), []
    for _ in range(10):
        noisy = defense.gradient(g, y, drawing(rng))[rows].double()
        root = defense._last["roots"][0]
        distances = torch.cdist(torch.linalg.solve(root, noisy.T).T, torch.linalg.solve(root, g[rows].double().T).T)
        likelihood = -0.5 * distances.square()
        ratio = likelihood[:, y[rows] == 1].logsumexp(1) - likelihood[:, y[rows] == 0].logsumexp(1)
        found.append(auc(ratio, y[rows]))
    return sum(found) / 10


def test_shared_noise_keeps_its_bound_on_average_and_not_for_rows_with_long_gradients(rng):
    """As its promise says: a party that makes a tenth of its rows' Jacobians long reads more of these."""
    g, y = network_gradients(rng, n=1000, d=8, rank=4)
    long = torch.arange(1000) < 100
    g[long] *= 4
    assert best_reading(rng, g, y, torch.arange(1000)) < leak_auc_bound(0.16) < best_reading(rng, g, y, long.nonzero()[:, 0])
    assert "on average over pairs of rows" in Marvell(noise="shared").guarantee().claim
