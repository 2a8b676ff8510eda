import pytest
import torch

from vflbench.metrics.inversion import CANDIDATES, LineUp


def squared(answer, truth, pool, line_up):
    return lambda row: (torch.stack([truth[row], *pool[line_up.others[row]]]) - answer[row]).square().sum(dim=1)


@pytest.fixture
def people(rng):
    """600 rows of three classes; the first 300 are asked about."""
    labels = torch.arange(600) % 3
    x = torch.randn(600, 5, generator=rng) + labels[:, None]
    ids = torch.arange(600)
    return x, labels, LineUp((ids[:300], labels[:300]), (ids, labels), rng, most=300)


def test_others_are_of_the_class_and_never_the_row_itself(people):
    _, labels, line_up = people
    for row, others in enumerate(line_up.others):
        assert len(others.unique()) == CANDIDATES - 1
        assert row not in others
        assert (labels[others] == labels[row]).all()
    assert line_up.chance.eq(1 / CANDIDATES).all()


def test_the_truth_is_identified_and_what_knows_the_class_alone_is_not(people, rng):
    x, labels, line_up = people
    means = torch.stack([x[labels == k].mean(dim=0) for k in range(3)])
    far = 100 * torch.randn(3, 5, generator=rng)  # an answer out of all bounds is no better
    answers = {"truth": x[:300], "class mean": means[labels[:300]], "far": far[labels[:300]], "swapped": x[:300].roll(3, 0)}
    found = {name: line_up.identified(squared(a, x, x, line_up)).mean().item() for name, a in answers.items()}
    assert found["truth"] == 1
    for name in ("class mean", "far", "swapped"):
        assert found[name] == pytest.approx(1 / CANDIDATES, abs=0.04), name


def test_equal_rows_share_the_place(rng):
    """Nobody is identified among copies, and a constant judge identifies by chance exactly."""
    ids, labels = torch.arange(40), torch.zeros(40).long()
    line_up = LineUp((ids[:10], labels[:10]), (ids, labels), rng)
    assert line_up.identified(lambda _: torch.zeros(CANDIDATES)).eq(1 / CANDIDATES).all()
