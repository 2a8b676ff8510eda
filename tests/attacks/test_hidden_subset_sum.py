"""The attack from outside: whole runs in which no batch comes twice."""

import pytest
import torch
from attacks.views import shares, view_of
from support.builders import run_in

from vflbench.attacks.hidden_subset_sum import HiddenSubsetSum
from vflbench.data.synthetic import Bernoulli
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
from vflbench.messages.facts import PartyFeatures, Rules, Schema, Updates
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


def rebuilt(folder, defense, *, rows=6, features=14, **protocol):
    """Figures of a run of two epochs, means over all its rounds."""
    summary = run_in(
        folder,
        dataset=Bernoulli(rows=rows, features=features, batches=12),
        protocol=FederatedLr(**protocol),
        attacks={"hidden_subset_sum": HiddenSubsetSum()},
        defenses={"it": defense},
        settings=Settings(epochs=2, seed=0, audit=Audit(batches="all")),
    )
    (reconstruction,) = summary["reconstructions"]
    figures = {name: value["mean"] for name, value in reconstruction["figures"].items()}
    return figures | {"notes": " ".join(reconstruction["notes"])}


@pytest.mark.slow
def test_new_batches_in_every_round_hide_nothing(tmp_path):
    for name, protocol in (
        ("mean", {}),
        ("sum", {"rows": 4, "reduction": "sum", "intercept": True}),
        ("each other", {"rows": 4, "parties": 3, "aggregation": "plain"}),
    ):
        figures = rebuilt(tmp_path / name.replace(" ", "_"), Shuffle(), **protocol)
        assert figures["exact"] == figures["columns_recovered"] >= 0.6, (
            name,
            figures,
        )  # nothing wrong
        assert figures["matched_guess_right"] < 0.85 < figures["labels_right"], name


def test_noise_and_partial_updates_leave_a_guess(tmp_path):
    for defense, why in ((Gaussian(ratio=0.001), ""), (SelectiveUpdate(fraction=0.5), "in part")):
        figures = rebuilt(tmp_path / type(defense).__name__, defense)
        assert figures["exact"] == figures["explained"] == figures["columns_recovered"] == 0, defense
        assert abs(figures["entries_right"] - figures["matched_guess_right"]) < 0.1, figures
        assert figures["notes"], defense
        assert why in figures["notes"], defense
    several = rebuilt(tmp_path / "steps", Shuffle(), rows=3, mode="asynchronous", batches=2)
    assert several["explained"] == 0
    assert "several local steps" in several["notes"]


def test_one_row_of_one_update_is_rebuilt():
    theta = torch.linspace(-0.4, 0.5, 6, dtype=torch.float64)
    x, y = torch.tensor([[1.0, 0, 1, 1, 0, 1]], dtype=torch.float64), 1.0
    step = 0.1 * x[0] * (y / 2 - x[0] @ theta / 4)
    sent = torch.zeros(6, dtype=torch.float64)
    updates = Updates(Rules(2, 0.1, "sum", 1, 1, Schema(tuple(range(6)))), theta, sent, theta + step / 2)
    attack = HiddenSubsetSum()
    answer = attack.batch(view_of(attack.threat, updates, PartyFeatures(torch.ones(1, 6), torch.empty(1, 0)), shares(0.5)))
    assert torch.equal(answer.rows.double(), x)
    assert answer.labels.tolist() == [y]
