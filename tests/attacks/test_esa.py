import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize
from support.builders import session

from vflbench.attacks.esa import Esa, log_odds, nearest_in_box, probabilities
from vflbench.attacks.grna import Grna
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, PartyFeatures, Predictions
from vflbench.messages.threat import View
from vflbench.models.networks import Logistic, Mlp


def rows_of(rng, numeric, *, sizes=None, classes=2, n=24):
    """numeric, sizes: party -> number of numeric columns, and of ids of each categorical one; columns are uniform."""
    features = {}
    for party, k in numeric.items():
        ids = [torch.randint(size, (n,), generator=rng) for size in (sizes or {}).get(party, ())]
        names = tuple(f"{party}{i}" for i in range(k)), tuple(f"{party}C{i}" for i in range(len(ids)))
        columns = Columns(*names, tuple((sizes or {}).get(party, ())))
        drawn = torch.stack(ids, 1).int() if ids else torch.empty(n, 0, dtype=torch.int32)
        features[party] = Features(columns, torch.rand(n, k, generator=rng), drawn)
    return VerticalTable(torch.arange(n), features, torch.arange(n) % classes, classes)


def started_with(rows, rng, *, weights=None, scale=1.0):
    """A session of logistic regression. weights: party -> (k, outputs) in place of random ones."""
    started = session(rows, model=Logistic())
    with torch.no_grad():
        for party in started.parties:
            party.bottom.numeric.copy_(scale * torch.randn(party.bottom.numeric.shape, generator=rng))
            party.bottom.categories.table.copy_(scale * torch.randn(party.bottom.categories.table.shape, generator=rng))
            if weights and party.name in weights:
                party.bottom.numeric.copy_(weights[party.name])
        started.label_party.top.bias.copy_(torch.randn(started.label_party.top.bias.shape, generator=rng))
    return started


def view_of(rows, attack, started, auxiliary=None, logits=None, seed=0):
    round_ = started.round(rows.ids, watch=attack.threat.knows)
    facts = {**round_.facts["label"], Auxiliary: auxiliary or Auxiliary({})}
    if logits is not None:
        facts[Predictions] = Predictions(logits)
    return View("label", 0, 0, rows.ids, torch.Generator().manual_seed(seed), attack.threat, facts)


def answer(rows, started, auxiliary=None, **options):
    """The answer about all rows, and the true and rebuilt numeric columns of all other parties side by side."""
    attack = Esa(rows=len(rows), **options)
    rebuilt = attack.batch(view_of(rows, attack, started, auxiliary))
    names = [party.name for party in started.parties]
    truth = torch.cat([rows.features[p].numeric for p in names], dim=1).double()
    return rebuilt, truth, torch.cat([rebuilt.features[p].numeric for p in names], dim=1).double()


def exact_logits(rows, started):
    """Of the present networks, in float64."""
    z = started.label_party.top.bias.double()
    for party in [*started.parties, *([started.label_party] if started.label_party.bottom is not None else [])]:
        block = rows.features[getattr(party, "name", "label")]
        z = z + block.numeric.double() @ party.bottom.numeric.double()
    return z.detach()


CASES = [
    ({"a": 1}, 2, "logits"),
    ({"a": 3, "label": 2}, 5, "logits"),
    ({"a": 4}, 5, "probabilities"),
    ({"a": 2, "b": 3, "label": 6}, 7, "logits"),
    ({"a": 2, "b": 1, "c": 3}, 7, "probabilities"),
]


@pytest.mark.parametrize(("numeric", "classes", "message"), CASES)
def test_no_more_columns_than_independent_logits_come_back_within_the_bound(rng, numeric, classes, message):
    rows = rows_of(rng, numeric, classes=classes)
    rebuilt, truth, found = answer(rows, started_with(rows, rng), message=message)
    assert rebuilt.layer == "logits"
    assert rebuilt.figures["directions_missing"] == 0
    assert 0 < (found - truth).norm(dim=1).max() <= rebuilt.figures["error_bound"] < 0.01
    assert "determine all" in rebuilt.note


def random_case(rng):
    classes = int(torch.randint(3, 9, (), generator=rng))
    columns = int(torch.randint(1, classes + 1, (), generator=rng))
    own = int(torch.randint(0, 5, (), generator=rng))
    first = int(torch.randint(1, columns + 1, (), generator=rng))
    numeric = {"a": first, "b": columns - first, "label": own}
    return rows_of(rng, {party: k for party, k in numeric.items() if k}, classes=classes, n=6)


@pytest.mark.slow
def test_the_bound_holds_for_many_random_models(rng):
    """Weights of every scale, some nearly collinear: the bound holds wherever the attack claims one."""
    claimed, draws = 0, 150
    for draw in range(draws):
        rows = random_case(rng)
        started = started_with(rows, rng, scale=10.0 ** float(torch.randint(-3, 4, (), generator=rng)))
        if draw % 3 == 0:
            weights = started.parties[0].bottom.numeric
            with torch.no_grad():
                weights[-1] = weights[0] * (1 + 10.0 ** -float(torch.randint(1, 8, (), generator=rng)) * (draw % 2))
        rebuilt, truth, found = answer(rows, started)
        if "error_bound" in rebuilt.figures:
            claimed += 1
            assert (found - truth).norm(dim=1).max() <= rebuilt.figures["error_bound"], draw
    assert claimed > draws / 3


@pytest.mark.parametrize(("columns", "classes", "rank"), [(6, 4, 2), (3, 8, 1), (4, 2, 1), (3, 5, 0)])
@pytest.mark.parametrize("message", ["logits", "probabilities"])
def test_missing_directions_are_the_columns_less_an_independent_rank(rng, columns, classes, rank, message):
    rows = rows_of(rng, {"a": columns}, classes=classes)
    outputs = 1 if classes == 2 else classes
    weights = torch.randint(-4, 5, (columns, rank), generator=rng) @ torch.randint(-4, 5, (rank, outputs), generator=rng)
    rebuilt, truth, found = answer(rows, started_with(rows, rng, weights={"a": weights.float()}), message=message)
    seen = weights.double()
    if message == "probabilities" and classes > 2:
        seen = seen[:, 1:] - seen[:, :1]
    independent = columns - int(torch.linalg.matrix_rank(seen, rtol=1e-9))
    assert rebuilt.figures["directions_missing"] == independent
    assert ("error_bound" in rebuilt.figures) == (independent == 0)
    assert ((found - truth).norm(dim=1) <= (0.5 - truth).norm(dim=1) + 1e-4).all()


def test_no_row_is_farther_from_the_truth_than_the_guess(rng):
    rows = rows_of(rng, {"a": 9, "b": 4}, classes=5, n=60)
    other = rows_of(rng, {"a": 9, "b": 4}, classes=5, n=80)
    known = {p: PartyFeatures(f.numeric.square(), f.categorical) for p, f in other.features.items()}
    started = started_with(rows, rng)
    mean = torch.cat([known[p].numeric for p in ("a", "b")], dim=1).double().mean(dim=0)
    guesses = {"zero": torch.zeros(13, dtype=torch.float64), "middle": torch.full((13,), 0.5).double(), "mean": mean}
    for prior, guess in guesses.items():
        _, truth, found = answer(rows, started, Auxiliary(known, other.labels), prior=prior)
        before, after = (guess - truth).norm(dim=1), (found - truth).norm(dim=1)
        assert (after <= before + 1e-5).all(), prior
        assert after.square().mean() < before.square().mean(), prior


def test_correlated_columns_follow_from_auxiliary_rows_and_own_columns(rng):
    def of(n):
        own = torch.rand(n, 1, generator=rng)
        other = 0.8 * own + 0.2 * torch.rand(n, 6, generator=rng)
        none = torch.empty(n, 0, dtype=torch.int32)
        columns = [Columns(tuple(f"{p}{i}" for i in range(k)), (), ()) for p, k in (("a", 6), ("l", 1))]
        features = {"a": Features(columns[0], other, none), "label": Features(columns[1], own, none)}
        return VerticalTable(torch.arange(n), features, torch.arange(n) % 3, 3)

    rows, others = of(40), of(300)
    started = started_with(rows, rng)
    known = {p: PartyFeatures(f.numeric, f.categorical) for p, f in others.features.items()}
    errors = {}
    for prior in ("mean", "class_mean", "normal"):
        _, truth, found = answer(rows, started, Auxiliary(known, others.labels), prior=prior)
        errors[prior] = float((found - truth).square().mean())
    assert errors["normal"] < errors["mean"] / 4
    assert errors["class_mean"] < 2 * errors["mean"]


@pytest.mark.parametrize(("classes", "decimals"), [(2, None), (4, 1)])
def test_probabilities_that_were_turned_into_0_or_1_are_inequalities(rng, classes, decimals):
    rows = rows_of(rng, {"a": 5}, classes=classes)
    started = started_with(rows, rng, scale=60.0)
    p = probabilities(exact_logits(rows, started), decimals)
    assert ((p == 0) | (p == 1)).any()
    rebuilt, truth, found = answer(rows, started, message="probabilities", decimals=decimals)
    assert found.isfinite().all()
    assert ((found - truth).norm(dim=1) <= (0.5 - truth).norm(dim=1) + 1e-3).all()
    assert rebuilt.figures["directions_missing"] > 5 - (classes - 1)


def test_rounding_to_fewer_decimals_hides_more(rng):
    rows = rows_of(rng, {"a": 3}, classes=5, n=60)
    started = started_with(rows, rng, scale=0.7)
    errors = []
    for decimals in (None, 6, 3, 2, 1):
        rebuilt, truth, found = answer(rows, started, message="probabilities", decimals=decimals)
        errors.append(float((found - truth).square().mean()))
        if "error_bound" in rebuilt.figures:
            assert (found - truth).norm(dim=1).max() <= rebuilt.figures["error_bound"]
    assert errors == sorted(errors)
    assert errors[0] < 1e-9 < 1e-4 < errors[-1]


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
    rebuilt, truth, found = answer(rows, started_with(rows, rng))
    for party in ("a", "b"):
        assert torch.equal(rebuilt.features[party].categorical, rows.features[party].categorical)
    torch.testing.assert_close(found, truth, atol=1e-4, rtol=0)
    assert rebuilt.figures["directions_missing"] == 0


def test_a_single_unit_that_opens_in_a_corner_is_noticed(rng):
    """Affine over all but a corner of the box: a Jacobian at some points of the inside would not tell."""
    rows = rows_of(rng, {"a": 4}, classes=3)
    started = session(rows, model=Mlp(bottom_layers=1, top_layers=0, width=5))
    with torch.no_grad():
        layer = started.parties[0].bottom.stack.layers["f1"]
        layer.weight.copy_(torch.cat([torch.eye(4), torch.ones(1, 4)]))
        layer.bias.copy_(torch.tensor([0.0, 0, 0, 0, -3.5]))
    with pytest.raises(UserError, match="not affine"):
        answer(rows, started)
    with torch.no_grad():
        layer.bias.fill_(0.1)  # now all are open everywhere
    rebuilt, _, _ = answer(rows, started)
    assert rebuilt.figures["directions_missing"] == 1


def test_who_knows_the_noise_is_nearer(rng):
    rows = rows_of(rng, {"a": 6}, classes=6, n=100)
    started = started_with(rows, rng)
    noisy = exact_logits(rows, started) + torch.randn(100, 6, generator=rng, dtype=torch.float64)
    errors = {}
    for noise in (0.0, 1.0):
        attack = Esa(rows=100, noise=noise)
        found = attack.batch(view_of(rows, attack, started, logits=noisy)).features["a"].numeric
        errors[noise] = float((found - rows.features["a"].numeric).square().mean())
    assert errors[1.0] < 0.8 * errors[0.0]


@pytest.mark.parametrize(
    "attack", [Esa(), Esa(prior="normal"), Grna(width=8, steps=2), Grna(width=8, steps=2, auxiliary=5, sees_labels=True)]
)
def test_it_reads_all_that_it_declares(rng, monkeypatch, attack):
    rows, read, original = rows_of(rng, {"a": 2, "label": 1}), set(), View.__getitem__
    monkeypatch.setattr(View, "__getitem__", lambda view, kind: (read.add(kind), original(view, kind))[1])
    known = {p: PartyFeatures(f.numeric, f.categorical) for p, f in rows.features.items()}
    attack.batch(view_of(rows, attack, started_with(rows, rng), Auxiliary(known, rows.labels)))
    assert read == attack.threat.knows


@pytest.mark.parametrize("attack", [Esa(prior="mean"), Grna(auxiliary=5, steps=1)])
def test_without_auxiliary_rows_a_prior_of_them_is_refused(rng, attack):
    rows = rows_of(rng, {"a": 2})
    empty = {"a": PartyFeatures(torch.empty(0, 2), torch.empty(0, 0, dtype=torch.int32))}
    with pytest.raises(UserError, match="no auxiliary rows"):
        attack.batch(view_of(rows, attack, started_with(rows, rng), Auxiliary(empty)))


def test_predictions_that_something_changed_have_no_bound(rng):
    """Three logits determine three columns, whatever was done to them: rows out of their range tell that something was."""
    rows = rows_of(rng, {"a": 3}, classes=3)
    started, attack = started_with(rows, rng), Esa(rows=len(rows))
    logits = exact_logits(rows, started).float()
    for change in (0.0, 0.5):
        rebuilt = attack.batch(
            view_of(rows, attack, started, logits=logits + change * torch.randn(logits.shape, generator=rng))
        )
        assert ("error_bound" in rebuilt.figures) == (change == 0)
        assert ("contradict" in rebuilt.note) == (change != 0)


def conditions(rng, n=6, unknowns=5, rows=2):
    truth = torch.rand(n, unknowns, generator=rng, dtype=torch.float64)
    c = torch.randn(rows, unknowns, generator=rng, dtype=torch.float64)
    return truth, c, truth @ c.T


def test_it_is_what_a_general_solver_finds(rng):
    truth, c, value = conditions(rng)
    start = truth + torch.randn(truth.shape, generator=rng, dtype=torch.float64)
    for width in (0.0, 0.1):
        found = nearest_in_box(start, c, value - width, value + width)
        for i in range(len(start)):
            between = LinearConstraint(c.numpy(), value[i].numpy() - width, value[i].numpy() + width)
            best = minimize(
                lambda x, s: 0.5 * np.square(x - s).sum(),
                np.full(5, 0.5),
                (start[i].numpy(),),
                jac=lambda x, s: x - s,
                bounds=[(0, 1)] * 5,
                constraints=between,
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            np.testing.assert_allclose(found[i].numpy(), best.x, atol=2e-5)
