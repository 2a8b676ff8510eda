"""alpha and beta of as many columns as the updates determine, and a named refusal wherever rounding would be a guess."""

from itertools import product

import numpy as np
import pytest
from support.reconstruction_rounds import batch, batches, compose, gradient, honest_run, is_recovered, rounds

from vflbench.attacks.batch_reconstruction import BatchReconstruction
from vflbench.attacks.batch_reconstruction.attack import recover_gram, search
from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.recover import fit_affine, least_squares
from vflbench.messages.facts import Rules, Schema


@pytest.fixture
def draw():
    return np.random.default_rng(3)


def sums_of(thetas, updates, *, rows):
    """By least squares: of columns that are all binary, from sums of gradients."""
    return least_squares(thetas, updates, rate=0.1, rows=rows, schema=Schema(tuple(range(thetas.shape[1]))))


def recover(thetas, updates, **changes):
    """Of columns that are all binary, unless a schema is given."""
    usual = {"parties": 2, "whole": True, "rate": 0.1, "reduction": "sum", "batches": 1, "batch_size": 6}
    schema = Schema(tuple(range(thetas.shape[1])))
    return recover_gram(thetas, updates, Rules(**{**usual, "schema": schema, **changes}))


def answers(x, y, thetas):
    """The updates of one batch at these models."""
    return np.array([-0.1 * gradient(x, y, theta) for theta in thetas])


def holds(recovered, x, y, columns):
    """Whether these columns, and no others, are recovered."""
    part = x[:, columns]
    assert recovered.kept.tolist() == columns
    return np.array_equal(recovered.gram.alpha, part.T @ part) and np.array_equal(recovered.gram.beta, part.T @ y)


def test_one_more_pair_than_coordinates_is_enough():
    for (m, d), dtype in product(((1, 1), (1, 4), (3, 1), (8, 5), (11, 20), (32, 64)), (np.float64, np.float32)):
        rng = np.random.default_rng(m * d)
        x, y = batch(m, d, rng)
        recovered = sums_of(*rounds(x, y, d + 1, rng, dtype=dtype), rows=m)
        assert is_recovered(recovered, x, y), (m, d, dtype, recovered.refusal)
        assert recovered.rounds == d + 1


def test_as_many_pairs_as_coordinates_leave_a_rank_one_freedom(draw):
    x, y = batch(8, 6, draw)
    thetas, updates = rounds(x, y, 6, draw)
    v = np.linalg.solve(thetas, np.ones(6))  # the hyperplane v.theta = 1 that holds all thetas
    other_alpha, other_beta = x.T @ x + np.outer(v, v), x.T @ y + v / 2
    assert np.allclose(-0.1 * (thetas @ other_alpha / 4 - other_beta / 2), updates, atol=1e-12)
    recovered = sums_of(thetas, updates, rows=8)
    assert recovered.alpha is None
    assert recovered.refusal == "too few rounds: 6 coordinates need 7 pairs, there are 6"


def test_thetas_in_a_hyperplane_are_refused_however_many(draw):
    x, y = batch(8, 5, draw)
    thetas = draw.normal(size=(30, 5))
    thetas[:, 4] = 1 - thetas[:, :4].sum(1)
    assert "not affinely independent" in sums_of(thetas, answers(x, y, thetas), rows=8).refusal
    assert "all 30 rounds are the same" in sums_of(np.ones((30, 5)), answers(x, y, thetas), rows=8).refusal


def test_an_honest_run_of_full_batches_is_refused_until_it_is_long():
    """Krylov: the first thetas lie on a line for float64. A result without a refusal must be right."""
    right = dict.fromkeys((11, 21, 80, 1000), 0)
    for n, seed in product(right, range(3)):
        rng = np.random.default_rng(seed)
        theirs, mine = batch(11, 20, rng), batch(11, 20, rng)
        recovered = sums_of(*honest_run(theirs, mine, n, rng), rows=11)
        assert recovered.refusal is not None or is_recovered(recovered, *theirs)
        right[n] += recovered.refusal is None
    assert right == {11: 0, 21: 0, 80: 0, 1000: 3}


def test_float32_parties_are_recognised_by_their_parameters():
    """Their step, 2 dtheta - own step in float64, is no float32 number, but as coarse as theta."""
    right = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        theirs = batch(11, 20, rng)
        recovered = sums_of(*honest_run(theirs, None, 40, rng, fresh=8, dtype=np.float32), rows=11)
        assert recovered.refusal is not None or is_recovered(recovered, *theirs)
        right += recovered.refusal is None
    assert right >= 3


def test_ill_conditioned_thetas_are_refused_with_the_condition_and_never_rounded_wrongly(draw):
    x, y = batch(8, 6, draw)
    base, direction, reasons = draw.normal(size=(12, 6)), np.ones(6) / np.sqrt(6), []  # which hardly changes
    for dtype, spread in product((np.float64, np.float32), 10.0 ** -np.arange(0, 16, 1.5)):
        thetas = base - (1 - spread) * np.outer(base @ direction, direction)
        recovered = sums_of(thetas, answers(x, y, thetas).astype(dtype), rows=8)
        assert recovered.refusal is not None or is_recovered(recovered, x, y)
        reasons.append(recovered.refusal)
    assert reasons[0] is None
    assert any(r and "condition of the design" in r for r in reasons)
    assert "not affinely independent" in reasons[-1]


def test_little_noise_is_averaged_out_and_much_is_refused():
    rng = np.random.default_rng(4)
    x, y = batch(8, 10, rng)
    for noise, n, is_enough in ((1e-3, 60, True), (0.02, 60, False), (0.02, 4_000, True)):
        thetas, updates = rounds(x, y, n, rng)
        recovered = sums_of(thetas, updates + noise * rng.normal(size=updates.shape), rows=8)
        assert is_recovered(recovered, x, y) == is_enough, (noise, n)
        if not is_enough:
            assert "too uncertain to be rounded" in recovered.refusal
            assert recovered.residual == pytest.approx(40 * noise, rel=0.3)  # 4 g = -4 update / rate


def test_small_real_numbers_in_a_sparse_batch_are_no_zeros_but_reported_unrounded():
    rng = np.random.default_rng(17)
    x, y = batch(8, 12, rng, density=0.1)
    x = x.astype(float)
    x[:, 2] = 0.05 * rng.random(8)
    recovered = sums_of(*rounds(x, y, 30, rng), rows=8)
    assert "not integral" in recovered.refusal
    assert np.allclose(recovered.real_alpha, x.T @ x, atol=1e-9)
    assert np.allclose(recovered.real_beta, x.T @ y, atol=1e-9)


def test_standard_errors_are_the_spread_over_repeated_noise():
    rng = np.random.default_rng(1)
    points, linear = rng.normal(size=(300, 3)) + 5, rng.normal(size=(3, 3))
    values = points @ linear + rng.normal(size=3)
    fits = [fit_affine(points, values + 0.1 * rng.normal(size=values.shape), floor=0.0) for _ in range(400)]
    assert np.std([fit.linear for fit in fits], axis=0) == pytest.approx(fits[0].linear_error, rel=0.2)
    assert np.std([fit.constant for fit in fits], axis=0) == pytest.approx(fits[0].constant_error, rel=0.2)
    assert np.mean([fit.residual for fit in fits]) == pytest.approx(0.1, rel=0.02)
    assert np.abs(np.mean([fit.linear for fit in fits], axis=0) - linear).max() < 0.01


def test_means_of_several_participants_are_means_of_each_batch(draw):
    (x_1, y_1), (x_2, y_2) = batches(3, 8, 2, draw)
    thetas, first = rounds(x_1, y_1, 12, draw, mean=True)
    recovered = recover(thetas, first + answers(x_2, y_2, thetas) / 3, parties=3, reduction="mean", batch_size=3)
    assert np.array_equal(recovered.gram.alpha, Gram.of(np.concatenate([x_1, x_2])).alpha)
    assert recovered.gram.rows == 6


@pytest.mark.parametrize("intercept", [False, True])
def test_columns_that_never_move_are_left_out_unless_the_intercept_counts_their_ones(draw, intercept):
    """From theta = 0, two columns that the attacker lacks: a batch that is symmetric in them moves neither."""
    x, y = batch(6, 8, draw)
    x[:, 0] |= intercept
    x[:, [2, 5]] = 0
    thetas = draw.normal(size=(14, 8))
    thetas[:, [2, 5]] = 0
    recovered = recover(thetas, answers(x, y, thetas), schema=Schema(tuple(range(8)), intercept))
    assert holds(recovered, x, y, list(range(8)) if intercept else [0, 1, 3, 4, 6, 7])
    assert recovered.note == ("" if intercept else "not determined by these rounds: column 2, 5")
    assert recovered.assumption == ""


@pytest.mark.parametrize(("moves", "columns"), [([0, 1, 2, 2, 3, 4], [0, 1, 4, 5]), ([0, 0, 1, 2, 2, 3], [2, 5])])
def test_columns_that_move_together_are_left_out_and_spoil_no_other(draw, moves, columns):
    """The intercept counts the ones of each, and one lies within the other: its part across the span seems to be none."""
    x, y = batch(6, 6, draw)
    x[:, 0], x[:, 2] = 1, x[:, 2] & x[:, 3]
    thetas = draw.normal(size=(14, 6))[:, moves]
    assert holds(recover(thetas, answers(x, y, thetas), schema=Schema(tuple(range(6)), True)), x, y, columns)


@pytest.mark.parametrize("first", [0.0, 0.7])  # of the model: theta_1 = theta_2 stays so
def test_a_batch_that_is_symmetric_in_columns_that_the_attacker_lacks_is_not_missed(first):
    """Rows 110, 101 and 001, 010 in the last two columns: both are 0 in every update from theta = 0."""
    x, y = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]]), np.array([1, 1, -1, -1])
    thetas = np.column_stack([first + np.linspace(0, 2, 9), *np.zeros((2, 9))])
    updates = answers(x, y, thetas)
    recovered = recover(thetas, updates, batch_size=4)
    assert holds(recovered, x, y, [0])
    assert np.allclose(recovered.real_alpha[0], [2, 1, 1])
    assert np.isnan(recovered.real_alpha[1:, 1:]).all()
    its_rules = Rules(2, 0.1, "sum", 1, 4, Schema((0, 1, 2)), whole=True)
    assert not np.isfinite(search(thetas, updates, its_rules, BatchReconstruction(time_limit=1e6)).rows[:, 1:]).any()


def test_dependent_columns_are_known_where_the_schema_explains_the_dependence(draw):
    x, y = batch(6, 8, draw)
    x[:, [7, 5]] = 1 - x[:, [6, 4]]  # x4 + x5 - x6 - x7 = 0 in every row, and so in every step
    thetas = (draw.random((14, 20)) - 0.5) @ np.concatenate([x, x[::-1], x, x[:2]])
    updates = answers(x, y, thetas)
    recovered = recover(thetas, updates)
    assert set(recovered.kept.tolist()).isdisjoint({4, 5, 6, 7})
    assert holds(recovered, x, y, recovered.kept.tolist())
    explained = recover(thetas, updates, schema=Schema(tuple(range(8)), one_hot=((4, 2), (6, 2))))
    assert holds(explained, x, y, list(range(8)))


def test_columns_count_as_binary_by_the_schema(draw):
    """A column of -1 and +1 has as many squares as rows, like a column of ones: it was once taken for the intercept."""
    for _ in range(10):
        x, y = batch(5, 6, draw)
        x[:, 3] = draw.choice([-1, 1], 5)
        recovered = recover(*rounds(x, y, 12, draw), batch_size=5, schema=Schema((0, 1, 2, 4, 5)))
        assert holds(recovered, x, y, [0, 1, 2, 4, 5])
        assert "not binary by the schema: column 3" in recovered.note
        assert recovered.assumption == ""


def test_a_batch_size_that_a_column_of_ones_contradicts_is_refused(draw):
    x, y = batch(6, 5, draw)
    x[:, 0] = 1
    seen, schema = rounds(x, y, 12, draw), Schema(tuple(range(5)), intercept=True)
    assert recover(*seen, schema=schema).gram.rows == 6
    assert "do not have one 1 in each row" in recover(*seen, batch_size=7, schema=schema).note


def test_coordinates_that_are_shared_often_enough_are_recovered(draw):
    x, y = batch(6, 5, draw, density=0.9)
    thetas, updates = rounds(x, y, 40, draw)
    for round_number in range(40):  # four of five in each round, coordinate 4 only twice
        updates[round_number, round_number % 4 if round_number < 2 else 4] = 0
    recovered = recover(thetas, updates, whole=False)
    assert holds(recovered, x, y, [0, 1, 2, 3])
    assert "not determined by these rounds: column 4" in recovered.note


def test_partly_shared_updates_are_refused_without_enough_rounds_or_a_fixed_batch(draw):
    thetas, updates = rounds(*batch(6, 5, draw), 40, draw)
    hidden = np.arange(5) == np.arange(40)[:, None] % 5
    sent = np.where(hidden, 0, updates)
    assert "no coordinate was shared often enough" in recover(thetas[:6], sent[:6], whole=False).note
    noise = np.where(hidden, 0, 0.05 * draw.normal(size=updates.shape))
    assert recover(thetas, sent + noise, whole=False).gram is None


@pytest.mark.parametrize(("rate", "is_hidden"), [(0.003, False), (0.5, True)])
def test_sums_over_several_local_batches_follow_from_their_map_unless_the_rate_hides_them(draw, rate, is_hidden):
    parts, thetas = batches(6, 8, 3, draw), draw.normal(size=(12, 8))
    alphas, betas = [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]
    gamma, eta = compose(alphas, betas, rate)
    recovered = recover(thetas, eta - thetas @ gamma.T, rate=rate, batches=3)
    assert "too few rounds" in recover(thetas[:8], thetas[:8], batches=3).note
    if is_hidden:
        assert recovered.gram is None
        assert "hides the sum of 3 batches" in recovered.note
    else:
        assert np.array_equal(recovered.gram.alpha, sum(alphas))
        assert np.array_equal(recovered.gram.beta, sum(betas))
        assert recovered.gram.rows == 18


def test_models_that_hardly_move_are_not_rounded_to_wrong_sums():
    """Where labels cancel, models stay near 0, and the updates are rounded like the terms of single rows, which do not."""
    ones, y = np.ones((18, 1), dtype=np.int64), np.repeat([1, -1], 9)
    for scale in (1e-17, 1e-16, 1e-3):
        thetas = scale * np.array([[1.0], [-2.0]])
        updates = np.array([theta - 0.3 * gradient(ones, y, theta) - theta for theta in thetas])
        recovered = recover(thetas, updates, rate=0.3, batch_size=18)
        assert recovered.gram is None or recovered.gram.alpha.tolist() == [[18]], scale
        assert (recovered.gram is not None) == (scale == 1e-3), scale


@pytest.mark.parametrize("undetermined", [[], [2]])
def test_updates_that_a_grid_swallowed_are_no_proof_of_a_batch_of_zeros(draw, undetermined):
    """All are rounded to 0, or all but those of a column that is not determined."""
    thetas, updates = draw.normal(size=(12, 5)), np.zeros((12, 5))
    thetas[:, undetermined], updates[:, undetermined] = 0.0, 0.05
    recovered = recover(thetas, updates)
    assert recovered.gram is None
    assert "coarse grid" in recovered.note


@pytest.mark.parametrize("rate", [1e-3, 1e-6])
def test_a_column_that_was_never_sent_is_not_one_of_zeros(rate):
    """The rounding of large models, of which updates are differences, is not an update that was sent."""
    x = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    y, draw, updates = np.array([1, -1, 1, -1, 1]), np.random.default_rng(0), []
    thetas = draw.normal(size=(40, 3))
    for theta in thetas:
        sent, mine = -rate * gradient(x, y, theta) * [1, 1, 0], -rate * gradient(*batch(5, 3, draw), theta)
        updates.append(2 * ((theta + (sent + mine) / 2) - theta) - mine)
    assert holds(recover(thetas, np.array(updates), rate=rate, batch_size=5, whole=False), x, y, [0, 1])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"whole": False, "parties": 3, "batch_size": 3}, "do not show who sent"),
        ({"parties": 3, "batches": 2}, "no single map"),
        ({"whole": False, "batches": 2}, "no map of the models"),
        ({"batches": 2, "schema": Schema((0, 1))}, "binary columns only"),
    ],
)
def test_what_the_rounds_do_not_determine_is_refused_with_a_reason(draw, changes, why):
    recovered = recover(*rounds(*batch(6, 5, draw), 40, draw), **changes)
    assert recovered.gram is None
    assert why in recovered.note
