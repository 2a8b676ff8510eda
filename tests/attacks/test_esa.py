import math

import numpy as np
import pytest
import torch
from attacks.views import auxiliary_of, label_view
from scipy.optimize import LinearConstraint, minimize
from support.builders import session

from vflbench.attacks.esa import Esa, log_odds, nearest_in_box, probabilities
from vflbench.attacks.grna import Grna
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.errors import UserError
from vflbench.messages.facts import Predictions
from vflbench.models.networks import Logistic, Mlp


def rows_of(rng, numeric, *, sizes=None, classes=2, n=24):
    """numeric, sizes: party -> number of numeric columns, and of ids of each categorical one; columns are uniform."""
    features = {}
    for party, k in numeric.items():
        cardinalities = (sizes or {}).get(party, ())
        ids = [torch.randint(size, (n, 1), generator=rng) for size in cardinalities]
        names = tuple(f"{party}{i}" for i in range(k)), tuple(f"{party}C{i}" for i in range(len(ids)))
        drawn = torch.cat([torch.empty(n, 0), *ids], dim=1).int()
        features[party] = Features(Columns(*names, cardinalities), torch.rand(n, k, generator=rng), drawn)
    return VerticalTable(torch.arange(n), features, torch.arange(n) % classes, classes)


def started_with(rows, rng, *, scale=1.0):
    """A session of logistic regression with random weights."""
    started = session(rows, model=Logistic())
    with torch.no_grad():
        for party in started.parties:
            for weights in (party.bottom.numeric, party.bottom.categories.table):
                weights.copy_(scale * torch.randn(weights.shape, generator=rng))
        started.label_party.top.bias.copy_(torch.randn(started.label_party.top.bias.shape, generator=rng))
    return started


def answer(rows, started, auxiliary=None, **options):
    """The answer about all rows, and the true numeric columns of all other parties side by side, with their errors."""
    attack = Esa(rows=len(rows), **options)
    rebuilt = attack.batch(label_view(rows, attack, started, auxiliary))
    parts = [[of[party.name].numeric.double() for party in started.parties] for of in (rows.features, rebuilt.features)]
    truth, guessed = (torch.cat(columns, dim=1) for columns in parts)
    return rebuilt, truth, guessed - truth


def logits_of(rows, started):
    """Of the present networks."""
    return label_view(rows, Esa(), started)[Predictions].logits


@pytest.mark.parametrize(
    ("numeric", "classes", "message"),
    [({"a": 1}, 2, "logits"), ({"a": 2, "b": 3, "label": 6}, 7, "logits"), ({"a": 2, "b": 1, "c": 3}, 7, "probabilities")],
)
def test_no_more_columns_than_independent_logits_come_back_within_the_bound(rng, numeric, classes, message):
    rows = rows_of(rng, numeric, classes=classes)
    rebuilt, _, errors = answer(rows, started_with(rows, rng), message=message)
    assert rebuilt.layer == "logits"
    assert rebuilt.figures["directions_missing"] == 0
    assert 0 < errors.norm(dim=1).max() <= rebuilt.figures["error_bound"] < 0.01
    assert "determine all" in rebuilt.note


@pytest.mark.slow
def test_the_bound_holds_for_many_random_models(rng):
    """Weights of every scale, some nearly collinear: the bound holds wherever the attack claims one."""

    def drawn(least, most):
        return int(torch.randint(least, most, (), generator=rng))

    claimed, draws = 0, 150
    for draw in range(draws):
        classes, numeric = drawn(3, 9), {"a": drawn(1, 5), "b": drawn(0, 5), "label": drawn(0, 5)}
        rows = rows_of(rng, {party: k for party, k in numeric.items() if k}, classes=classes, n=6)
        started = started_with(rows, rng, scale=10.0 ** drawn(-3, 4))
        if draw % 3 == 0:
            weights = started.parties[0].bottom.numeric
            with torch.no_grad():
                weights[-1] = weights[0] * (1 + 10.0 ** -drawn(1, 8) * (draw % 2))
        rebuilt, _, errors = answer(rows, started)
        if "error_bound" in rebuilt.figures:
            claimed += 1
            assert errors.norm(dim=1).max() <= rebuilt.figures["error_bound"], draw
    assert claimed > draws / 3


@pytest.mark.parametrize(("columns", "classes", "rank"), [(6, 4, 2), (3, 8, 1), (4, 2, 1), (3, 5, 0)])
@pytest.mark.parametrize("message", ["logits", "probabilities"])
def test_missing_directions_are_the_columns_less_an_independent_rank(rng, columns, classes, rank, message):
    rows = rows_of(rng, {"a": columns}, classes=classes)
    outputs = 1 if classes == 2 else classes
    weights = torch.randint(-4, 5, (columns, rank), generator=rng) @ torch.randint(-4, 5, (rank, outputs), generator=rng)
    started = started_with(rows, rng)
    started.parties[0].bottom.numeric.data = weights.float()
    rebuilt, truth, errors = answer(rows, started, message=message)
    seen = weights.double()
    if message == "probabilities" and classes > 2:
        seen = seen[:, 1:] - seen[:, :1]
    independent = columns - int(torch.linalg.matrix_rank(seen, rtol=1e-9))
    assert rebuilt.figures["directions_missing"] == independent
    assert ("error_bound" in rebuilt.figures) == (independent == 0)
    assert (errors.norm(dim=1) <= (0.5 - truth).norm(dim=1) + 1e-4).all()


def correlated(rng, n):
    """Six columns of the party that follow from one of the label party, but for a little noise."""
    rows = rows_of(rng, {"a": 6, "label": 1}, classes=3, n=n)
    rows.features["a"].numeric.mul_(0.2).add_(0.8 * rows.features["label"].numeric)
    return rows


def test_no_row_is_farther_than_the_guess_and_correlated_columns_follow_from_own_columns(rng):
    rows, known = correlated(rng, 40), auxiliary_of(correlated(rng, 300))
    started, squares = started_with(rows, rng), {}
    guesses = {"zero": 0.0, "middle": 0.5, "mean": known.columns["a"].numeric.mean(dim=0)}
    for prior in ("zero", "middle", "mean", "class_mean", "normal"):
        _, truth, errors = answer(rows, started, known, prior=prior)
        squares[prior] = float(errors.square().mean())
        if prior in guesses:
            before, after = (guesses[prior] - truth).norm(dim=1), errors.norm(dim=1)
            assert (after <= before + 1e-5).all(), prior
            assert after.square().mean() < before.square().mean(), prior
    assert squares["normal"] < squares["mean"] / 4
    assert squares["class_mean"] < 2 * squares["mean"]


@pytest.mark.parametrize(("classes", "decimals"), [(2, None), (4, 1)])
def test_probabilities_that_were_turned_into_0_or_1_are_inequalities(rng, classes, decimals):
    rows = rows_of(rng, {"a": 5}, classes=classes)
    started = started_with(rows, rng, scale=60.0)
    p = probabilities(logits_of(rows, started), decimals)
    assert ((p == 0) | (p == 1)).any()
    rebuilt, truth, errors = answer(rows, started, message="probabilities", decimals=decimals)
    assert (errors.norm(dim=1) <= (0.5 - truth).norm(dim=1) + 1e-3).all()
    assert rebuilt.figures["directions_missing"] > 5 - (classes - 1)


def test_rounding_to_fewer_decimals_hides_more(rng):
    rows = rows_of(rng, {"a": 3}, classes=5, n=60)
    started = started_with(rows, rng, scale=0.7)
    squares = []
    for decimals in (None, 6, 3, 2, 1):
        rebuilt, _, errors = answer(rows, started, message="probabilities", decimals=decimals)
        squares.append(float(errors.square().mean()))
        assert errors.norm(dim=1).max() <= rebuilt.figures.get("error_bound", math.inf)
    assert squares == sorted(squares)
    assert squares[0] < 1e-9 < 1e-4 < squares[-1]


@pytest.mark.parametrize("shape", [(200, 1), (200, 6)])
@pytest.mark.parametrize("decimals", [None, 1, 4])
@pytest.mark.parametrize("scale", [0.1, 400.0])
def test_bounds_of_log_odds_hold_the_true_differences(rng, shape, decimals, scale):
    z = (scale * torch.randn(*shape, generator=rng)).float()
    r, low, high = log_odds(probabilities(z, decimals), decimals)
    true = z.double() if shape[1] == 1 else z.double() - z.double().gather(1, r[:, None])
    assert ((low <= true) & (true <= high)).all()
    assert not (low.isnan() | high.isnan()).any()


def test_ids_come_back_where_there_are_as_many_independent_logits(rng):
    rows = rows_of(rng, {"a": 1, "b": 0, "label": 1}, sizes={"a": (3, 4), "b": (5,), "label": (3,)}, classes=10)
    rebuilt, _, errors = answer(rows, started_with(rows, rng))
    for party in ("a", "b"):
        assert torch.equal(rebuilt.features[party].categorical, rows.features[party].categorical)
    assert errors.abs().max() <= 1e-4
    assert rebuilt.figures["directions_missing"] == 0


def test_a_single_unit_that_opens_in_a_corner_is_noticed(rng):
    """Affine over all but a corner of the box: a Jacobian at some points of the inside would not tell."""
    rows = rows_of(rng, {"a": 4}, classes=3)
    started = session(rows, model=Mlp(bottom_layers=1, top_layers=0, width=5))
    layer = started.parties[0].bottom.stack.layers["f1"]
    layer.weight.data = torch.cat([torch.eye(4), torch.ones(1, 4)])
    layer.bias.data = torch.tensor([0.0, 0, 0, 0, -3.5])
    with pytest.raises(UserError, match="not affine"):
        answer(rows, started)
    layer.bias.data.fill_(0.1)  # now all are open everywhere
    assert answer(rows, started)[0].figures["directions_missing"] == 1


def test_who_knows_the_noise_is_nearer(rng):
    rows = rows_of(rng, {"a": 6}, classes=6, n=100)
    started = started_with(rows, rng)
    noisy, errors = Predictions(logits_of(rows, started) + torch.randn(100, 6, generator=rng)), {}
    for noise in (0.0, 1.0):
        attack = Esa(rows=100, noise=noise)
        rebuilt = attack.batch(label_view(rows, attack, started, None, noisy)).features["a"].numeric
        errors[noise] = float((rebuilt - rows.features["a"].numeric).square().mean())
    assert errors[1.0] < 0.8 * errors[0.0]


@pytest.mark.parametrize("attack", [Esa(prior="mean"), Grna(auxiliary=5, steps=1)])
def test_without_auxiliary_rows_a_prior_of_them_is_refused(rng, attack):
    rows = rows_of(rng, {"a": 2})
    with pytest.raises(UserError, match="no auxiliary rows"):
        attack.batch(label_view(rows, attack, started_with(rows, rng), auxiliary_of(rows_of(rng, {"a": 2}, n=0))))


def test_predictions_that_something_changed_have_no_bound(rng):
    """Three logits determine three columns, whatever was done to them: rows out of their range tell that something was."""
    rows = rows_of(rng, {"a": 3}, classes=3)
    started, attack = started_with(rows, rng), Esa(rows=len(rows))
    logits = logits_of(rows, started)
    for change in (0.0, 0.5):
        changed = Predictions(logits + change * torch.randn(logits.shape, generator=rng))
        rebuilt = attack.batch(label_view(rows, attack, started, None, changed))
        assert ("error_bound" in rebuilt.figures) == (change == 0)
        assert ("contradict" in rebuilt.note) == (change != 0)


def test_the_nearest_point_of_the_box_is_what_a_general_solver_finds(rng):
    c, truth = torch.randn(2, 5, generator=rng).double(), torch.rand(6, 5, generator=rng).double()
    starts, value = truth + torch.randn(6, 5, generator=rng), truth @ c.T
    for width in (0.0, 0.1):
        low, high = value - width, value + width
        for i, nearest in enumerate(nearest_in_box(starts, c, low, high)):
            between, box = LinearConstraint(c.numpy(), low[i].numpy(), high[i].numpy()), [(0, 1)] * 5
            start = starts[i].numpy()
            best = minimize(lambda x, s=start: np.square(x - s).sum(), start, bounds=box, constraints=between, tol=1e-14)
            np.testing.assert_allclose(nearest.numpy(), best.x, atol=2e-5)
