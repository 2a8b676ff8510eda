import math

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from sklearn.metrics import r2_score

from vflbench.data.pictures import Digits
from vflbench.metrics import inversion as recogniser
from vflbench.metrics.inversion import CANDIDATES, LineUp, Recogniser, TableColumns, compare_pictures, compare_tables, ssim


def numbers(truth, answer, whole=None):
    """Of a table of numeric columns alone, named 0, 1, ...; whole: by whose spread errors are measured."""
    none = torch.zeros(len(truth), 0)
    columns = TableColumns(
        tuple(map(str, range(truth.shape[1]))), (), (truth if whole is None else whole).std(dim=0, correction=0)
    )
    return compare_tables((truth, none), (answer, none), columns)


def test_structural_similarity(rng):
    truth, answer = torch.rand(3, 9, 8, generator=rng), torch.rand(3, 9, 8, generator=rng)
    by_hand = [structural_similarity(a, b, data_range=1) for a, b in zip(truth.numpy(), answer.numpy(), strict=True)]
    np.testing.assert_allclose(ssim(truth, answer), by_hand, rtol=1e-5)
    assert ssim(truth, truth).tolist() == pytest.approx([1] * 3)
    small = truth[:, :4, :6]
    assert ssim(small, small).tolist() == pytest.approx([1] * 3)  # window 3
    assert ssim(truth[:, :2], truth[:, :2]).isnan().all()
    colour = torch.rand(2, 8, 8, 3, generator=rng)
    assert ssim(colour, colour).tolist() == pytest.approx([1, 1])


def test_r_squared_is_that_of_scikit_learn(rng):
    truth, answer = torch.rand(20, 3, generator=rng), torch.rand(20, 3, generator=rng)
    truth[:, 2] = 0.5
    figures = numbers(truth, answer).figures
    expected = r2_score(truth[:, :2].numpy(), answer[:, :2].numpy(), multioutput="raw_values")
    assert [figures["r2:0"], figures["r2:1"], figures["r2"]] == pytest.approx([*expected, expected.mean()], rel=1e-5)
    assert math.isnan(figures["r2:2"])


def test_figures_of_a_table():
    numeric, ids = torch.tensor([[0.0], [1.0]]), torch.tensor([[1, 2], [1, 3]])
    answer = torch.tensor([[1, 2], [0, 3]])
    columns = TableColumns(("I1",), ("C1", "C2"), torch.tensor([0.5]))
    compared = compare_tables((numeric, ids), (numeric, answer), columns)
    perfect = dict.fromkeys(("mse", "error_over_spread", "error_over_spread:I1"), 0.0)
    perfect |= dict.fromkeys(("r2", "r2:I1", "within_tolerance", "id_accuracy:C2"), 1.0)
    assert compared.figures == {**perfect, "id_accuracy": 0.75, "rows_right": 0.5, "id_accuracy:C1": 0.5}
    assert compared.error.tolist() == [0, pytest.approx(1 / 3)]


def test_the_mean_of_a_normal_column_errs_by_its_spread_and_is_within_tolerance_for_a_quarter(rng):
    truth = torch.randn(20_000, 2, generator=rng) / 10 + 0.5
    figures = numbers(truth, truth.mean(dim=0).expand_as(truth)).figures
    assert figures["error_over_spread"] == pytest.approx(1, abs=1e-4)
    assert figures["within_tolerance"] == pytest.approx(0.25, abs=0.01)


def test_values_of_rows_have_the_figure_as_their_mean_and_the_right_spread(rng):
    """The linear values of r2 and error_over_spread: their interval is that of a bootstrap."""
    truth = torch.randn(400, 3, generator=rng) * torch.tensor([1.0, 0.5, 0.2])
    answer = truth + 0.4 * torch.randn(400, 3, generator=rng) * truth.abs()
    compared = numbers(truth, answer)
    drawn = [torch.randint(400, (400,), generator=rng) for _ in range(300)]
    again = [numbers(truth[rows], answer[rows], truth).figures for rows in drawn]
    for name in ("r2", "error_over_spread"):
        values = compared.rows[name]
        assert values.mean().item() == pytest.approx(compared.figures[name], rel=1e-9)
        spread = np.std([figures[name] for figures in again])
        assert values.std().item() / 20 == pytest.approx(spread, rel=0.2)


def test_figures_of_pictures(rng):
    truth = torch.rand(2, 8, 8, generator=rng)
    assert compare_pictures(truth, truth).figures == {"mse": 0, "psnr": 100, "ssim": pytest.approx(1)}
    assert compare_pictures(truth, truth + 0.1).figures["mse"] == pytest.approx(0.01)
    assert compare_pictures(truth, truth + 0.1).figures["psnr"] == pytest.approx(20)
    assert math.isnan(compare_pictures(truth[:0], truth[:0]).figures["mse"])


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
    others = {"class mean": means[labels[:300]], "far": far[labels[:300]], "swapped": x[:300].roll(3, 0)}
    assert line_up.identified(squared(x, x, x, line_up)).mean() == 1
    for name, answer in others.items():
        identified = line_up.identified(squared(answer, x, x, line_up)).mean().item()
        assert identified == pytest.approx(1 / CANDIDATES, abs=0.04), name


def test_equal_rows_share_the_place(rng):
    """Nobody is identified among copies, and a constant judge identifies by chance exactly."""
    ids, labels = torch.arange(40), torch.zeros(40).long()
    line_up = LineUp((ids[:10], labels[:10]), (ids, labels), rng)
    assert line_up.identified(lambda _: torch.zeros(CANDIDATES)).eq(1 / CANDIDATES).all()


@pytest.mark.slow
def test_true_pictures_are_recognised_and_noise_is_not():
    data = Digits().load(torch.Generator().manual_seed(0))
    (pictures, labels), (unseen, classes) = (
        (rows.features["a"].numeric.view(-1, 8, 8), rows.labels) for rows in (data.train.all(), data.test.all())
    )
    trained = Recogniser(pictures, labels, 10, torch.Generator().manual_seed(0))
    assert trained.hits(unseen, classes).mean() > 0.93
    noise = torch.rand(2000, 8, 8, generator=torch.Generator().manual_seed(1))
    assert trained.hits(noise, torch.arange(2000) % 10).mean() < 0.14


def test_the_same_generator_gives_the_same_network_for_colours_too(rng, monkeypatch):
    monkeypatch.setattr(recogniser, "_STEPS", 20)
    colours, labels = torch.rand(200, 8, 8, 3, generator=rng), torch.arange(200) % 10
    one, other = (Recogniser(colours, labels, 10, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(map(torch.equal, one.network.parameters(), other.network.parameters()))
