"""The attack from outside: whole runs, whose summaries say what was rebuilt."""

import numpy as np
import pandas as pd
import pytest
import torch
from support.builders import run_in

from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction
from vflbench.data.binary import Binary
from vflbench.data.synthetic import Bernoulli
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
from vflbench.messages.facts import ClassShares, Fact, PartyFeatures, Rules, Schema, Updates
from vflbench.messages.threat import View
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings

UNHURRIED = {"time_limit": 1e6}  # seconds, so that no answer depends on the machine


def rebuilt(folder, attack=None, *, rows=6, features=8, dataset=None, defense=None, epochs="auto", **protocol):
    """Figures of a run, means over its batches."""
    dataset = dataset or Bernoulli(rows=rows, features=features, batches=12)
    parts = {"dataset": dataset, "protocol": FederatedLr(**protocol), "defenses": {"it": defense} if defense else {}}
    parts["settings"] = Settings(epochs=epochs, seed=0, audit=Audit(batches="all"))
    summary = run_in(folder, attacks={"it": attack or BatchReconstruction(**UNHURRIED)}, **parts)
    (reconstruction,) = summary["reconstructions"]
    figures = {name: value["mean"] for name, value in reconstruction["figures"].items()}
    return figures | {"notes": " ".join(reconstruction["notes"])}


@pytest.mark.slow
@pytest.mark.parametrize(("reduction", "intercept", "rate"), [("mean", True, 0.1), ("sum", False, 0.02)])
def test_every_batch_is_among_those_that_fit(tmp_path, reduction, intercept, rate):
    figures = rebuilt(tmp_path, reduction=reduction, intercept=intercept, rate=rate)
    assert figures["contained"] == figures["proved"] == figures["columns_recovered"] == 1
    assert figures["entries_right"] > 0.95 > 0.7 > figures["guess_entries_right"]
    assert figures["labels_right"] > 0.85


@pytest.mark.slow
def test_two_local_batches_are_told_apart_and_three_are_rebuilt_together(tmp_path):
    slow = {"rows": 4, "features": 14, "rate": 0.02, "mode": "asynchronous"}
    two = rebuilt(tmp_path / "2", batches=2, **slow)
    assert two["exact"] == two["labels_right"] == two["steps_right"] == two["batches_separated"] == 1
    three = rebuilt(tmp_path / "3", batches=3, **{**slow, "rows": 2, "rate": 0.005})
    assert three["exact"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("defense", [Shuffle(), Gaussian(ratio=0.1)])
def test_batches_that_change_and_noise_leave_a_guess(tmp_path, defense):
    figures = rebuilt(tmp_path, defense=defense)
    assert figures["exact"] == figures["columns_recovered"] == 0
    assert figures["guessed_share"] == 1
    assert figures["entries_right"] > figures["guess_entries_right"]  # its rows are matched, too
    assert figures["notes"]


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "figure", "value"), [(12, "columns_recovered", 0), (60, "exact", 1)])
def test_selective_updates_only_take_more_rounds(tmp_path, epochs, figure, value):
    defense = SelectiveUpdate(fraction=0.25, choose="random")
    assert rebuilt(tmp_path, rows=3, defense=defense, epochs=epochs)[figure] == value


@pytest.mark.slow
def test_real_columns_of_the_same_rows_are_solved_for(tmp_path):
    draw = np.random.default_rng(0)
    bits, real = (draw.random((60, 12)) < 0.5).astype(int), draw.random((60, 2)).round(6)
    table = pd.DataFrame(np.hstack([bits, real])).astype(dict.fromkeys(range(12), int))
    table.insert(0, "label", bits[:, 0] ^ bits[:, 1])
    table.to_csv(tmp_path / "mixed.csv", index=False)
    figures = rebuilt(tmp_path / "run", dataset=Binary(path=str(tmp_path / "mixed.csv")), batch_size=5)
    assert figures["exact"] >= 0.7  # the rest have binary rows that depend on each other
    assert "not binary by the schema: column 12" in figures["notes"]


@pytest.mark.slow
@pytest.mark.data
def test_real_tables_with_columns_that_depend_on_each_other(tmp_path, data_folder):
    mushroom = Binary(path=str(data_folder / "mushroom" / "agaricus.txt.gz"), columns=20, rows=100)
    figures = rebuilt(tmp_path, dataset=mushroom, batch_size=8)
    assert figures["contained"] == figures["proved"] == 1


def view_of(*facts: Fact) -> View:
    columns = PartyFeatures(torch.ones(4, 2), torch.ones(4, 0, dtype=torch.int32))
    known = {type(fact): fact for fact in (columns, ClassShares((0.5, 0.5)), *facts)}
    return View("b", 0, 3, torch.empty(0, dtype=torch.int64), torch.Generator(), BatchReconstruction.threat, known)


def test_it_goes_on_from_the_rounds_that_it_kept_and_says_what_they_lack(rng):
    attack, other = BatchReconstruction(), BatchReconstruction()
    for _ in range(2):
        values = torch.randn(3, 2, generator=rng, dtype=torch.float64)
        assert attack.batch(view_of(Updates(Rules(2, 0.1, "sum", 1, 4, Schema((0, 1))), *values))) is None
    other.restore(attack.state())
    (one,), (again,) = (each.epoch(view_of()) for each in (attack, other))
    assert one.figures == again.figures
    assert one.figures["rounds"] == 2
    assert (one.step, one.rows, one.guess.tolist()) == (3, None, [1, 1])
    assert "too few rounds" in one.note
