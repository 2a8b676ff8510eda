import pytest
import torch
from attacks.test_esa import correlated, rows_of, started_with
from attacks.views import auxiliary_of, label_view
from support.builders import session

from vflbench.attacks.grna import Grna
from vflbench.errors import UserError
from vflbench.models.networks import Mlp, WideDeep
from vflbench.options import restore_state, state_of


def error(rows, rebuilt, party="a"):
    return float((rebuilt.features[party].numeric - rows.features[party].numeric).square().mean())


@pytest.mark.slow
def test_predictions_give_columns_away_also_through_a_network(rng):
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=5, n=64)
    started = session(rows, model=Mlp(bottom_layers=2, top_layers=1, width=16))
    attack = Grna(rows=64, width=64, steps=300, lr=0.01, message="logits", variance=0.0)
    rebuilt = attack.batch(label_view(rows, attack, started))
    assert rebuilt.layer == "logits"
    assert error(rows, rebuilt) < 1 / 12 / 3  # a third of the variance of the columns


@pytest.mark.slow
def test_with_a_large_weight_of_the_variance_one_row_is_made_up_for_all(rng):
    """The regulariser is a price: it holds the answer near one row, and the predictions are then not met."""
    rows = rows_of(rng, {"a": 3, "label": 2}, classes=5, n=64)
    started = started_with(rows, rng, scale=2.0)
    attacks = (Grna(rows=64, width=32, steps=100, lr=0.01, variance=variance) for variance in (0.0, 1e4))
    free, held = (attack.batch(label_view(rows, attack, started)) for attack in attacks)
    spread, none = (float(rebuilt.features["a"].numeric.var(dim=0).sum()) for rebuilt in (free, held))
    assert none < 0.01 < spread
    assert free.figures["residual"] < held.figures["residual"]


def test_it_goes_on_from_what_it_learned_and_a_copy_goes_on_alike(rng):
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=5, n=32)
    started, attack, copy = started_with(rows, rng, scale=2.0), *(Grna(width=32, steps=20, lr=0.01) for _ in range(2))
    first = error(rows, attack.batch(label_view(rows, attack, started)))
    restore_state(copy, state_of(attack))
    view, answers = label_view(rows, attack, started), []
    for each in (attack, copy):
        view.rng.manual_seed(1)
        answers.append(each.batch(view))
    assert torch.equal(*(rebuilt.features["a"].numeric for rebuilt in answers))
    assert error(rows, answers[0]) < first


@pytest.mark.slow
def test_auxiliary_rows_help(rng):
    rows, known, errors = correlated(rng, 40), auxiliary_of(correlated(rng, 300)), []
    started = started_with(rows, rng)
    for options in ({}, {"auxiliary": 300, "sees_labels": True}):
        attack = Grna(rows=40, width=48, steps=150, lr=0.005, **options)
        errors.append(error(rows, attack.batch(label_view(rows, attack, started, known))))
    assert errors[1] < errors[0] / 2


@pytest.mark.slow
def test_ids_are_made_up_as_shares_and_answered_as_ids(rng):
    rows = rows_of(rng, {"a": 1, "b": 1, "label": 1}, sizes={"a": (3,), "label": (4,)}, classes=4, n=64)
    started = started_with(rows, rng, scale=3.0)
    attack = Grna(rows=64, width=64, steps=250, lr=0.01, message="logits", variance=0.0)
    rebuilt = attack.batch(label_view(rows, attack, started))
    ids = rebuilt.features["a"].categorical
    assert (ids.dtype, tuple(ids.shape)) == (torch.int32, (64, 1))
    assert (ids == rows.features["a"].categorical).double().mean() > 0.6
    assert tuple(rebuilt.features["b"].categorical.shape) == (64, 0)


def test_a_linear_part_of_categories_cannot_be_mixed(rng):
    rows, attack = rows_of(rng, {"a": 1}, sizes={"a": (3,)}), Grna(width=8, steps=1)
    narrow, wide = (
        session(rows, model=WideDeep(bottom_layers=1, top_layers=0, width=8, wide=wide)) for wide in (False, True)
    )
    attack.batch(label_view(rows, attack, narrow))
    with pytest.raises(UserError, match="without wide"):
        attack.batch(label_view(rows, attack, wide))


def test_published_settings_read_neither_predictions_nor_labels_of_a_row(rng):
    """Rows with the same own columns then get the same answer, up to the draws that are averaged."""
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=4, n=40)
    rows.features["label"].numeric.fill_(0.5)
    started = started_with(rows, rng, scale=3.0)
    spread = {}
    for sees_predictions in (True, False):
        attack = Grna(rows=40, width=16, steps=40, lr=0.01, samples=200, sees_predictions=sees_predictions)
        rebuilt = attack.batch(label_view(rows, attack, started))
        spread[sees_predictions] = float(rebuilt.features["a"].numeric.var(dim=0).sum())
    assert spread[False] < spread[True] / 5
