import math

import mpmath
import numpy as np
import pytest
import torch
from attacks.views import gradients, positives, scores_of, shares
from defenses.contexts import drawing
from mpmath import mpf

from vflbench.attacks.cosine import Cosine
from vflbench.attacks.norm import Norm
from vflbench.attacks.remainder import Remainder
from vflbench.cli.components import construct
from vflbench.defenses.base import WithheldError
from vflbench.defenses.marvell import (
    ClassMoments,
    Marvell,
    class_moments,
    equalising_noise,
    full_moments,
    leak_auc_bound,
    shared_noise,
    solve_power,
    solve_target,
    sphericity,
    sumkl_without_noise,
)
from vflbench.errors import NonFiniteError, UserError
from vflbench.metrics.privacy import Exposure, holds
from vflbench.numerics.auc import auc


def logistic_gradients(rng, n=4096, d=128, positive=0.25, spread=(0.02, 0.05)):
    """As a logistic loss gives them: positives opposite to negatives and longer, along one direction."""
    y = (torch.rand(n, generator=rng) < positive).long()
    e = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    length = torch.where(y == 1, -(1 - positive), positive)
    deviation = torch.tensor(spread)[y] / math.sqrt(d)
    return length[:, None] * e + deviation[:, None] * torch.randn(n, d, generator=rng), y


def leak(attack, g, y, rng):
    """Leak AUC of an attack with at most one known positive, which is not scored."""
    of_positives = (y == 1).nonzero()[:, 0]
    known = of_positives[torch.randint(len(of_positives), (1,), generator=rng)]
    asked = (torch.arange(len(y)) != known) | (attack.threat.hints == 0)
    return auc(scores_of(attack, gradients(g), positives(known.tolist()))[asked], y[asked])


def test_leaks_fall_as_published_figures_say(rng):
    """n = 4096, d = 128, a quarter positive, error bound 0.4: norm 1.00 -> 0.52, cosine 1.00 -> 0.61."""
    norm, cosine = [], []
    for _ in range(4):
        g, y = logistic_gradients(rng)
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
    g, y = logistic_gradients(rng)
    gap = class_moments(g, y == 1).gap
    powered = Marvell(power=8.0)
    noise = powered.gradient(g, y, drawing(rng)) - g
    mean_power = noise.double().square().sum(1).mean().item()
    assert mean_power == pytest.approx(8 * gap, rel=0.1)
    assert powered.figures()["power_ratio"] == pytest.approx(8)
    for others in ({"error_bound": 0.4}, {"noise": "full"}, {"noise": "shared"}):
        with pytest.raises(UserError, match=r"marvell.power=8.0: it is for noise=published and not given beside error"):
            construct(Marvell, {"power": 8.0, **others}, "defense.marvell")


def test_infinite_sumkl_is_no_defense(rng):
    g, y = logistic_gradients(rng)
    assert torch.equal(Marvell(sumkl=math.inf).gradient(g, y, drawing(rng)), g)
    assert Marvell(sumkl=math.inf).guarantee() is None


def test_a_batch_of_one_class_gets_the_last_noise_or_is_withheld(rng):
    g, y = logistic_gradients(rng, n=64, d=4)
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


def test_promise_is_the_bound_and_composes():
    promise = Marvell().guarantee()
    assert promise.error_after(Exposure(messages=1)) == pytest.approx(0.4)
    assert promise.leak_auc_after(Exposure(messages=1)) == pytest.approx(0.68)
    assert promise.leak_auc_after(Exposure(messages=4)) == pytest.approx(leak_auc_bound(0.64))
    assert (promise.leak_auc_after(Exposure(messages=25)), promise.error_after(Exposure(messages=25))) == (1.0, 0.0)
    assert Marvell(power=8.0).guarantee() is None


def test_isotropic_gaussians_pass_the_test_of_the_assumption_and_low_rank_fails(rng):
    """The level is a few per cent."""
    assert Marvell().guarantee().tested_by[0] == "anisotropy"

    def tested(g, y):
        defense = Marvell()
        defense.gradient(g, y, drawing(rng))
        return defense.figures()

    drawn = [logistic_gradients(rng, n=100, d=64) for _ in range(30)]
    assert sum(holds([tested(g, y)["anisotropy"]]) for g, y in drawn) >= 25
    basis = torch.linalg.qr(torch.randn(64, 4, generator=rng)).Q
    low_rank = tested(drawn[0][0] @ basis @ basis.T, drawn[0][1])
    assert not holds([low_rank["anisotropy"]])
    assert low_rank["effective_dimension_0"] < 6


def network_gradients(rng, n=512, d=32, rank=9, patterns=30):
    """(p - y) J of a network: one of a few J a row, which share a direction."""
    y = (torch.rand(n, generator=rng) < 0.25).long()
    basis = torch.linalg.qr(torch.randn(d, rank, generator=rng)).Q
    j = torch.cat([torch.ones(patterns, 1), 0.3 * torch.randn(patterns, rank - 1, generator=rng)], dim=1) @ basis.T
    return (torch.rand(n, generator=rng) * 0.5 - y)[:, None] * j[torch.randint(patterns, (n,), generator=rng)], y


def mean_remainder(noise, rng):
    """What `remainder` reads, over six batches, from noise of the power that is asked for by sumkl 0.16."""
    defense, readings = Marvell(noise=noise), []
    for _ in range(6):
        g, y = network_gradients(rng)
        readings.append(auc(scores_of(Remainder(), gradients(defense.gradient(g, y, drawing(rng))), shares(0.25)), y))
    return sum(readings) / 6


def test_the_remainder_reads_published_noise_of_low_rank_and_neither_of_the_others(rng):
    assert mean_remainder("published", rng) > 0.99
    for noise in ("full", "shared"):
        assert 0.32 < mean_remainder(noise, rng) < leak_auc_bound(0.16), noise


def solved_covariances(noise, g, positive):
    """(2, d, d), of the noise that either class needs."""
    if noise != "published":
        solve = {"full": equalising_noise, "shared": shared_noise}[noise]
        roots = solve(full_moments(g, positive), sumkl=0.16).roots
        return roots @ roots.mT
    u, v, gap, e = class_moments(g, positive)
    solved = solve_target(u, v, len(e), gap, positive.double().mean().item(), 0.16)
    assert solved.l20 > 0 == solved.l21
    along, across = torch.tensor([[solved.l10, solved.l11], [solved.l20, solved.l21]]).double()[:, :, None, None]
    return along * torch.outer(e, e) + across * (torch.eye(len(e)) - torch.outer(e, e))


@pytest.mark.parametrize("noise", ["published", "full", "shared"])
def test_noise_has_the_covariance_that_was_solved_for(rng, noise):
    published = noise == "published"
    made = (
        logistic_gradients(rng, 200_000, 4, spread=(0.3, 0.9)) if published else network_gradients(rng, 200_000, 6, rank=3)
    )
    (g, y), defense = made, Marvell(noise=noise)
    added = (defense.gradient(g, y, drawing(rng)) - g).double()
    for k, expected in enumerate(solved_covariances(noise, g, y == 1)):
        largest = float(expected.diagonal().max())
        assert torch.allclose(added[y == k].T.cov(correction=0), expected, atol=0.02 * largest)
        assert added[y == k].mean(0).abs().max() < 0.01 * math.sqrt(largest)
    figures, power = defense.figures(), added.square().sum(1).mean().item()
    assert figures["sumkl"] == pytest.approx(0.16)
    assert figures["power_ratio"] == pytest.approx(power / class_moments(g, y == 1).gap, rel=0.02)
    assert ("anisotropy" in figures) == published


@pytest.mark.parametrize("noise", ["full", "shared"])
def test_noise_of_any_rank_stays_off_dead_units(rng, noise):
    g, y = network_gradients(rng)
    g[:, 3] = 0
    assert not Marvell(noise=noise).gradient(g, y, drawing(rng))[:, 3].any()
    same = torch.ones_like(g)
    assert torch.equal(Marvell(noise=noise).gradient(same, y, drawing(rng)), same)
    with pytest.raises(NonFiniteError):
        Marvell(noise=noise).gradient(g / 0, y, drawing(rng))


def test_only_noise_that_both_classes_share_promises_without_an_assumption():
    assert Marvell(noise="full").guarantee() is None
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
    n, size, d, common = 256, 8, 128, []
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
        common.append(a + of_a @ weights[: of_a.shape[1]])
    points = torch.stack(common)
    read = auc(points @ torch.linalg.svd(points, full_matrices=False).Vh[0], y[both])
    assert max(read, 1 - read) > 0.85


def best_reading(rng, g, y, rows):
    """Of these rows, by who knows the distributions of both of their classes, points and noise; a mean over 10 batches."""
    defense, readings = Marvell(noise="shared"), []
    for _ in range(10):
        noisy = defense.gradient(g, y, drawing(rng))[rows].double()
        root = defense._last["roots"][0]
        distances = torch.cdist(torch.linalg.solve(root, noisy.T).T, torch.linalg.solve(root, g[rows].double().T).T)
        likelihood = -0.5 * distances.square()
        ratio = likelihood[:, y[rows] == 1].logsumexp(1) - likelihood[:, y[rows] == 0].logsumexp(1)
        readings.append(auc(ratio, y[rows]))
    return sum(readings) / 10


def test_shared_noise_keeps_its_bound_on_average_and_not_for_rows_with_long_gradients(rng):
    """As its promise says: a party that makes a tenth of its rows' Jacobians long reads more of these."""
    g, y = network_gradients(rng, n=1000, d=8, rank=4)
    long = torch.arange(1000) < 100
    g[long] *= 4
    assert best_reading(rng, g, y, torch.arange(1000)) < leak_auc_bound(0.16) < best_reading(rng, g, y, long.nonzero()[:, 0])
    assert "on average over pairs of rows" in Marvell(noise="shared").guarantee().claim


def box(count, seed=0):
    """Problems over the whole range of arguments: u, v, d, g, p, sumkl; only those that need noise."""
    rng = np.random.default_rng(seed)
    g = 10.0 ** rng.uniform(-30, 10, count)
    u = g * 10.0 ** rng.uniform(-5, 5, count)
    v = u * 10.0 ** (rng.uniform(-10, 10, count) * rng.choice([0, 0.05, 1], count))
    d = rng.choice([1, 2, 3, 8, 32, 128, 512], count)
    p = rng.choice([0.001, 0.25, 0.5, 0.999, *rng.uniform(0.001, 0.999, 20)], count)
    target = 10.0 ** rng.uniform(-2, math.log10(3.6), count)
    problems = zip(*(column.tolist() for column in (u, v, d, g, p, target)), strict=True)
    return [problem for problem in problems if sumkl_without_noise(*problem[:4]) > problem[5]]


def multipliers(u, v, d, g, p, solved):
    """-d sumKL / d power by each variance (u + l10, u + l20, v + l11, v + l21); None where there is none."""
    u, v, d, g, p = map(mpf, (u, v, d, g, p))
    a, a2, b, b2 = (x + mpf(noise) for x, noise in zip((u, u, v, v), solved, strict=False))
    slopes = (a / b - b / a - g / a, (d - 1) * (a2 / b2 - b2 / a2), b / a - a / b - g / b, (d - 1) * (b2 / a2 - a2 / b2))
    powers = (2 * (1 - p) * a, 2 * (1 - p) * (d - 1) * a2, 2 * p * b, 2 * p * (d - 1) * b2)
    return [-slope / power if power else None for slope, power in zip(slopes, powers, strict=True)]


def test_no_noise_of_less_power_leaves_as_little():
    """In the logarithms of the variances the problem is convex: a point is the least where all noise has one multiplier, and
    where what has no noise would have no larger one (Karush, Kuhn and Tucker). In 40 digits.
    """
    with mpmath.workdps(40):
        for *arguments, target in box(300):
            case, solved = (*arguments, target), solve_target(*arguments, target)
            assert min(solved) >= 0, case
            assert solved.sumkl == pytest.approx(target, rel=1e-12), case
            again = solve_power(*arguments, solved.power)
            assert (again.sumkl, again.power) == pytest.approx((target, solved.power), rel=1e-10), case
            pairs = [(m, noise) for m, noise in zip(multipliers(*arguments, solved), solved, strict=False) if m is not None]
            free = [m for m, noise in pairs if noise > 1e-7 * solved.power]
            assert max(free) == pytest.approx(min(free), rel=1e-6), case
            assert max(m for m, _ in pairs) <= max(free) * (1 + 1e-6), case


def test_where_nothing_is_needed_nothing_is_added():
    before = sumkl_without_noise(1.0, 1.1, 8, 0.01)
    for solved in (
        solve_target(1.0, 1.1, 8, 0.01, 0.25, 2 * before),
        solve_target(1.0, 1.1, 8, 0.01, 0.25, math.inf),
        solve_power(1.0, 1.1, 8, 0.01, 0.25, 0),
    ):
        assert tuple(solved) == (0, 0, 0, 0, before, 0)
    assert tuple(solve_target(0.0, 0.0, 8, 0.0, 0.25, 0.16)) == (0, 0, 0, 0, 0, 0)


def test_equal_means_take_isotropic_noise_on_the_tighter_class():
    solved = solve_target(4.0, 1.0, 10, 0.0, 0.25, 0.16)
    assert solved.l11 == solved.l21 > 0
    assert solved.l10 == solved.l20 == 0
    assert solved.sumkl == pytest.approx(0.16, rel=1e-12)
    assert solved.power == pytest.approx(0.25 * 10 * solved.l11)
    assert solve_power(4.0, 1.0, 10, 0.0, 0.25, 1e6).sumkl < 1e-30  # more than it takes to make them alike
    assert solve_power(4.0, 1.0, 10, 0.0, 0.25, solved.power).sumkl == pytest.approx(0.16, rel=1e-12)


def test_points_get_noise_along_their_difference_only():
    """u = v = 0: one free variance a class; for p = 1/2 both are D, and sumKL = g / D."""
    solved = solve_target(0.0, 0.0, 100, 8.0, 0.5, 0.16)
    assert (solved.l10, solved.l11) == pytest.approx((50.0, 50.0), rel=1e-12)
    assert solved.l20 == solved.l21 == 0


def moments_of(rng, d=5, rank=5, share=0.25, inside=True):
    """Covariances of any rank; the gap inside their range or not."""
    basis = torch.randn(d, rank, generator=rng, dtype=torch.float64)
    factors = [torch.randn(rank, rank, generator=rng, dtype=torch.float64) for _ in range(2)]
    covariances = torch.stack([basis @ f @ f.T @ basis.T for f in factors])
    gap = basis @ torch.randn(rank, generator=rng, dtype=torch.float64)
    if not inside:
        gap = gap + torch.randn(d, generator=rng, dtype=torch.float64)
    return ClassMoments(20 * gap, covariances, share)


def with_noise(moments, noise):
    return moments.covariances + noise.roots @ noise.roots.transpose(1, 2)


def gaussian_sumkl(gap, a, b):
    """KL(0 || 1) + KL(1 || 0) of N(0, a) and N(gap, b); singular matrices on their common range."""
    a_inverse, b_inverse = (torch.linalg.pinv(m, hermitian=True, rtol=1e-9) for m in (a, b))
    mismatch = (a_inverse @ b + b_inverse @ a).trace() - 2 * torch.linalg.matrix_rank(a, hermitian=True, rtol=1e-9)
    return 0.5 * (mismatch + gap @ (a_inverse + b_inverse) @ gap).item()


def test_moments_are_the_population_moments_of_the_classes(rng):
    g, positive = torch.randn(60, 4, generator=rng), torch.arange(60) % 3 == 0
    moments = full_moments(g, positive)
    for k, rows in enumerate((g[~positive], g[positive])):
        assert torch.allclose(moments.covariances[k], torch.from_numpy(np.cov(rows.double().numpy().T, bias=True)))
    assert torch.allclose(moments.gap, (g[positive].double().mean(0) - g[~positive].double().mean(0)))
    assert moments.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(("d", "rank", "inside"), [(5, 5, True), (12, 4, True), (12, 4, False), (1, 1, True)])
def test_full_noise_makes_covariances_equal_with_the_least_power_that_leaves_the_sumkl(rng, d, rank, inside):
    """Above what makes them equal, the power l is least: it is an eigenvalue of d d^T / s - S, which T may not be below."""
    for target in (0.01, 0.16, 2.0):
        moments = moments_of(rng, d, rank, inside=inside)
        gap, (s0, s1) = moments.gap, moments.covariances
        noise = equalising_noise(moments, sumkl=target)
        a, b = with_noise(moments, noise)
        assert torch.allclose(a, b, atol=1e-9 * float(a.trace()))
        assert noise.sumkl == pytest.approx(target)
        assert gaussian_sumkl(gap, a, b) == pytest.approx(target, rel=1e-6)
        assert noise.power == pytest.approx(0.75 * (a - s0).trace().item() + 0.25 * (b - s1).trace().item())
        values, vectors = torch.linalg.eigh(s1 - s0)
        lifted = s0 + vectors * values.clamp_min(0) @ vectors.T
        above = noise.power - 0.75 * values.clamp_min(0).sum() + 0.25 * values.clamp_max(0).sum()
        assert (gap @ torch.linalg.solve(lifted + above * torch.eye(d), gap)).item() == pytest.approx(target, rel=1e-5)


def test_shared_noise_is_the_same_for_both_bounds_the_gaussian_sumkl_and_has_the_least_power(rng):
    """tr(M^1/2)^2 / s: by Cauchy and Schwarz no noise with tr N^-1 M = s has less."""
    for rank, inside in ((5, True), (3, False)):
        moments = moments_of(rng, 5, rank, inside=inside)
        noise = shared_noise(moments, sumkl=0.16)
        assert torch.equal(*noise.roots)
        m = moments.covariances.sum(0) + torch.outer(moments.gap, moments.gap)
        n = noise.roots[0] @ noise.roots[0].T
        assert torch.linalg.solve(n, m).trace().item() == pytest.approx(0.16, rel=1e-5)
        assert gaussian_sumkl(moments.gap, *with_noise(moments, noise)) < 0.16
        least = torch.linalg.eigvalsh(m).clamp_min(0).sqrt().sum().item() ** 2 / 0.16
        assert (n.trace().item(), noise.power) == pytest.approx((least, least), rel=1e-5)


def test_shared_noise_bounds_the_sumkl_of_classes_that_are_no_gaussians():
    """Few points on a line, and the exact densities of their mixtures with noise, integrated."""
    zero = torch.tensor([-1.0, 0.2, 0.3], dtype=torch.float64)
    one = torch.tensor([-0.5, 4.0, 4.1], dtype=torch.float64)
    g, positive = torch.cat([zero, one])[:, None], torch.arange(6) >= 3
    for target in (0.16, 1.0, 3.0):
        spread = float(shared_noise(full_moments(g, positive), sumkl=target).roots[0][0, 0])
        x = torch.linspace(-60, 65, 200_001, dtype=torch.float64)
        p, q = (
            torch.exp(-0.5 * ((x[:, None] - c) / spread) ** 2).mean(1) / spread / math.sqrt(2 * math.pi) for c in (zero, one)
        )
        sumkl = torch.trapezoid((p - q) * (p.clamp_min(1e-300) / q.clamp_min(1e-300)).log(), x).item()
        assert 0.1 * target < sumkl <= target


@pytest.mark.parametrize("unit", [1e-20, 1e12])
def test_units_do_not_matter(rng, unit):
    moments = moments_of(rng, d=8, rank=3)
    scaled = ClassMoments(unit * moments.gap, unit**2 * moments.covariances, moments.share)
    for solve in (equalising_noise, shared_noise):
        expected = with_noise(moments, solve(moments, sumkl=0.16))
        assert torch.allclose(with_noise(scaled, solve(scaled, sumkl=0.16)) / unit**2, expected, rtol=1e-6, atol=1e-6)


def test_the_statistic_has_mean_0_and_variance_1_on_isotropic_gaussians(rng):
    for n, d in ((8, 4), (40, 128)):
        values = torch.tensor([sphericity(torch.randn(n, d, generator=rng)).deviation for _ in range(600)])
        assert values.mean().item() == pytest.approx(0, abs=0.15), (n, d)
        assert values.std().item() == pytest.approx(1, abs=0.15), (n, d)
        assert (values > 2.33).double().mean().item() < 0.04, (n, d)


def test_the_mean_and_the_unit_of_the_rows_do_not_matter(rng):
    x = torch.randn(60, 8, generator=rng)
    plain = sphericity(x)
    for other in (x * 1e-30, x * 1e30, x.double() * 1e-200 + 0, x + 5):
        moved = sphericity(other)
        assert moved.deviation == pytest.approx(plain.deviation, abs=1e-3)
        assert moved.dimension == pytest.approx(plain.dimension, rel=1e-3)


def test_low_rank_and_unequal_rows_are_rejected_and_the_dimension_counts_directions(rng):
    for n, d, rank in ((400, 128, 6), (40, 128, 3)):
        low = torch.randn(n, rank, generator=rng) @ torch.linalg.qr(torch.randn(d, rank, generator=rng)).Q.T
        result = sphericity(low + 1e-3 * torch.randn(n, d, generator=rng))
        assert result.deviation > 20, (n, d)
        assert result.dimension == pytest.approx(rank, rel=0.25)
        lengths = torch.randn(n, 1, generator=rng).exp()  # the same directions, rows of unequal length
        assert sphericity(lengths * torch.randn(n, d, generator=rng)).deviation > 3, (n, d)
    assert sphericity(torch.randn(400, 16, generator=rng)).dimension == pytest.approx(16, rel=0.1)
