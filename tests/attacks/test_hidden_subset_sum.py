"""The attack from outside: whole runs in which no batch comes twice."""

import pytest
from attacks.test_batch_reconstruction import rebuilt

from vflbench.attacks.hidden_subset_sum import HiddenSubsetSum
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle

TWO_EPOCHS = {"features": 14, "epochs": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol",
    [{}, {"rows": 4, "reduction": "sum", "intercept": True}, {"rows": 4, "parties": 3, "aggregation": "plain"}],
)
def test_new_batches_in_every_round_hide_nothing(tmp_path, protocol):
    figures = rebuilt(tmp_path, HiddenSubsetSum(), defense=Shuffle(), **TWO_EPOCHS, **protocol)
    assert figures["exact"] == figures["columns_recovered"] >= 0.6, figures  # nothing wrong
    assert figures["matched_guess_right"] < 0.85 < figures["labels_right"]


@pytest.mark.parametrize(
    ("defense", "why", "protocol"),
    [
        (Gaussian(ratio=0.001), "", {}),
        (SelectiveUpdate(fraction=0.5), "in part", {}),
        (Shuffle(), "several local steps", {"rows": 3, "mode": "asynchronous", "batches": 2}),
    ],
)
def test_noise_partial_updates_and_several_steps_leave_a_guess(tmp_path, defense, why, protocol):
    figures = rebuilt(tmp_path, HiddenSubsetSum(), defense=defense, **TWO_EPOCHS, **protocol)
    assert figures["exact"] == figures["explained"] == figures["columns_recovered"] == 0
    assert abs(figures["entries_right"] - figures["matched_guess_right"]) < 0.1, figures
    assert why in (figures["notes"] or None)
