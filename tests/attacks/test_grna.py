import pytest
import torch
from attacks.test_esa import rows_of, started_with, view_of
from support.builders import session

from vflbench.attacks.grna import Grna
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, PartyFeatures
from vflbench.messages.threat import View
from vflbench.models.networks import Mlp, WideDeep
from vflbench.options import restore_state, state_of


def error(rows, rebuilt, party="a"):
    return float((rebuilt.features[party].numeric - rows.features[party].numeric).square().mean())


@pytest.mark.slow
def test_predictions_give_columns_away_also_through_a_network(rng):
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=5, n=64)
    started = session(rows, model=Mlp(bottom_layers=2, top_layers=1, width=16))
    attack = Grna(rows=64, width=64, steps=300, lr=0.01, message="logits", variance=0.0)
    rebuilt = attack.batch(view_of(rows, attack, started))
    assert rebuilt.layer == "logits"
    assert error(rows, rebuilt) < 1 / 12 / 3  # a third of the variance of the columns


@pytest.mark.slow
def test_with_a_large_weight_of_the_variance_one_row_is_made_up_for_all(rng):
    """The regulariser is a price: it holds the answer near one row, and the predictions are then not met."""
    rows = rows_of(rng, {"a": 3, "label": 2}, classes=5, n=64)
    started = started_with(rows, rng, scale=2.0)
    spread, residual = {}, {}
    for variance in (0.0, 1e4):
        attack = Grna(rows=64, width=32, steps=100, lr=0.01, variance=variance)
        rebuilt = attack.batch(view_of(rows, attack, started))
        spread[variance] = float(rebuilt.features["a"].numeric.var(dim=0).sum())
        residual[variance] = rebuilt.figures["residual"]
    assert spread[1e4] < 0.01 < spread[0.0]
    assert residual[0.0] < residual[1e4]


def test_it_goes_on_from_what_it_learned_and_a_copy_goes_on_alike(rng):
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=5, n=32)
    started = started_with(rows, rng, scale=2.0)
    attack = Grna(rows=32, width=32, steps=20, lr=0.01)
    first = error(rows, attack.batch(view_of(rows, attack, started)))
    view = view_of(rows, attack, started, seed=1)
    copy = Grna(rows=32, width=32, steps=20, lr=0.01)
    restore_state(copy, state_of(attack))
    again = attack.batch(view)
    facts = {kind: view[kind] for kind in attack.threat.knows}
    same = View("label", 0, 0, rows.ids, torch.Generator().manual_seed(1), copy.threat, facts)
    assert torch.equal(copy.batch(same).features["a"].numeric, again.features["a"].numeric)
    assert error(rows, again) < first


@pytest.mark.slow
def test_auxiliary_rows_help(rng):
    rows, others = (rows_of(rng, {"a": 6, "label": 2}, classes=3, n=n) for n in (40, 300))
    for table in (rows, others):
        table.features["a"].numeric.mul_(0.2).add_(0.7 * table.features["label"].numeric[:, :1])
    known = Auxiliary({p: PartyFeatures(f.numeric, f.categorical) for p, f in others.features.items()}, others.labels)
    started = started_with(rows, rng)
    errors = {}
    for auxiliary, sees_labels in ((0, False), (300, True)):
        attack = Grna(rows=40, width=48, steps=150, lr=0.005, auxiliary=auxiliary, sees_labels=sees_labels)
        errors[auxiliary, sees_labels] = error(rows, attack.batch(view_of(rows, attack, started, known)))
    assert errors[300, True] < errors[0, False] / 2


@pytest.mark.slow
def test_ids_are_made_up_as_shares_and_answered_as_ids(rng):
    rows = rows_of(rng, {"a": 1, "b": 1, "label": 1}, sizes={"a": (3,), "label": (4,)}, classes=4, n=64)
    started = started_with(rows, rng, scale=3.0)
    attack = Grna(rows=64, width=64, steps=250, lr=0.01, message="logits", variance=0.0)
    rebuilt = attack.batch(view_of(rows, attack, started))
    ids = rebuilt.features["a"].categorical
    assert (ids.dtype, tuple(ids.shape)) == (torch.int32, (64, 1))
    assert (ids == rows.features["a"].categorical).double().mean() > 0.6
    assert tuple(rebuilt.features["b"].categorical.shape) == (64, 0)


def test_a_linear_part_of_categories_cannot_be_mixed(rng):
    rows = rows_of(rng, {"a": 1}, sizes={"a": (3,)})
    for wide in (True, False):
        started = session(rows, model=WideDeep(bottom_layers=1, top_layers=0, width=8, wide=wide))
        attack = Grna(width=8, steps=1)
        if wide:
            with pytest.raises(UserError, match="without wide"):
                attack.batch(view_of(rows, attack, started))
        else:
            attack.batch(view_of(rows, attack, started))


def test_published_settings_read_neither_predictions_nor_labels_of_a_row(rng):
    """Rows with the same own columns then get the same answer, up to the draws that are averaged."""
    rows = rows_of(rng, {"a": 2, "label": 2}, classes=4, n=40)
    rows.features["label"].numeric.fill_(0.5)
    started = started_with(rows, rng, scale=3.0)
    spread = {}
    for sees_predictions in (True, False):
        attack = Grna(rows=40, width=16, steps=40, lr=0.01, samples=200, sees_predictions=sees_predictions)
        rebuilt = attack.batch(view_of(rows, attack, started))
        spread[sees_predictions] = float(rebuilt.features["a"].numeric.var(dim=0).sum())
    assert spread[False] < spread[True] / 5
