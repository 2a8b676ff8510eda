import torch

from vflbench.metrics.probe import probe
from vflbench.numerics.auc import auc

ROWS = 3000


def planted(rng, gap):
    """Classes `gap` deviations apart along one direction; another, without labels, has a hundred times the variance."""
    y = (torch.rand(ROWS, generator=rng) < 0.25).long()
    h = torch.randn(ROWS, 16, generator=rng)
    h[:, 0] *= 10
    h[:, 5] += gap * y
    return h, y, torch.arange(ROWS) // 500


def bayes(gap):
    """Phi(gap / sqrt 2), the AUC of the best attacker on two Gaussians."""
    return torch.special.ndtr(torch.tensor(gap / 2**0.5)).item()


def test_messages_alone_reach_the_bayes_optimal_attacker(rng):
    h, y, batch = planted(rng, gap=1.5)
    scores, half = probe([h], [], y, batch, 2, rng)
    reached = [auc(scores[half == which], y[half == which]) for which in (0, 1)]
    assert abs(sum(reached) / 2 - bayes(1.5)) < 0.02


def test_messages_that_say_nothing_read_a_coin(rng):
    h, y, batch = planted(rng, gap=0.0)
    scores, half = probe([h], [torch.randn(ROWS, generator=rng).double()], y, batch, 2, rng)
    for which in (0, 1):
        assert abs(auc(scores[half == which], y[half == which]) - 0.5) < 0.04


def test_it_reads_at_least_what_an_attack_reads_even_if_its_direction_flips_from_batch_to_batch(rng):
    h, y, batch = planted(rng, gap=0.0)
    flips = torch.where(batch % 2 == 0, 1.0, -1.0)
    attack = (flips * (3 * y + torch.randn(ROWS, generator=rng))).double()
    attack[:100] = torch.nan  # rows about which it was not asked
    scores, half = probe([h], [attack], y, batch, 2, rng)
    asked = torch.arange(ROWS) >= 100
    for which in (0, 1):
        for number in range(6):
            rows = (half == which) & (batch == number) & asked
            assert auc(scores[rows], y[rows]) > auc((flips * attack)[rows], y[rows]) - 0.01


def test_no_row_is_scored_by_a_probe_that_knew_its_label(rng):
    """Messages that name each row, and nothing else: a probe that had learned the rows by heart would be right."""
    y = torch.randint(2, (200,), generator=rng)
    scores, half = probe([torch.eye(200)], [], y, torch.zeros(200).long(), 2, rng)
    assert abs(auc(scores[half == 0], y[half == 0]) - 0.5) < 0.15
    assert abs(int((half == 0).sum()) - 100) <= 1


def test_several_classes_and_messages_that_are_missing_or_constant(rng):
    y = torch.randint(3, (900,), generator=rng)
    h = torch.nn.functional.one_hot(y, 3).float() + 0.3 * torch.randn(900, 3, generator=rng)
    h[:50] = torch.nan
    scores, _ = probe([h, torch.zeros(900, 4)], [torch.rand(900, 3, generator=rng)], y, torch.zeros(900).long(), 3, rng)
    assert scores.shape == (900, 3)
    assert (scores.argmax(1) == y)[50:].double().mean() > 0.9
    assert bool(scores.isfinite().all())
