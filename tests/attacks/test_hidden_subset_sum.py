"""The attack from outside: whole runs in which no batch comes twice."""

import pytest
from support.builders import run_in

from vflbench.attacks.hidden_subset_sum import HiddenSubsetSum
from vflbench.data.synthetic import Bernoulli
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
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
