"""The attack from outside: whole runs, whose summaries say what was rebuilt."""

import numpy as np
import pytest
import torch
from builders import run_in
from vflbench.messages.transcript import Knowledge, OwnFeatures, Rules, Transcript, UndeclaredKnowledgeError, Updates

from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction
from vflbench.data.bernoulli import Bernoulli
from vflbench.data.binary import Binary
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


def rebuilt(folder, *, rows=6, features=8, attack=None, dataset=None, defenses=None, epochs="auto", seed=0, **protocol):
    """Figures of a run, means over its batches."""
    summary = run_in(
        folder,
        dataset=dataset or Bernoulli(rows=rows, features=features, batches=12),
        protocol=FederatedLr(**protocol),
        attacks={"batch_reconstruction": attack or BatchReconstruction()},
        defenses=defenses or {},
        settings=Settings(epochs=epochs, seed=seed, audit=Audit(batches="all")),
    )
    (found,) = summary["reconstructions"]
    return {name: value["mean"] for name, value in found["figures"].items()} | {"notes": " ".join(found["notes"])}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("intercept", [False, True])
def test_every_batch_is_among_those_that_fit(tmp_path, reduction, intercept):
    found = rebuilt(tmp_path, reduction=reduction, intercept=intercept, rate=0.1 if reduction == "mean" else 0.02)
    assert found["contained"] == found["proved"] == found["columns_told"] == 1
    assert found["entries_right"] > 0.95 > 0.7 > found["guess_entries_right"]
    assert found["labels_right"] > 0.85


def test_of_several_others_all_rows_are_rebuilt_together(tmp_path):
    found = rebuilt(tmp_path, rows=3, features=12, parties=4)
    assert found["contained"] == 1
    assert found["unique"] == 1


def test_the_batch_size_is_told_from_mean_gradients(tmp_path):
    found = rebuilt(tmp_path, rows=5, features=12, attack=BatchReconstruction(knows_batch_size=False))
    assert found["exact"] == 1


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_programme_finds_a_batch_that_fits(tmp_path, solver):
    found = rebuilt(tmp_path, rows=4, features=12, attack=BatchReconstruction(solver=solver))
    assert found["exact"] == 1


def test_integer_relations_need_few_rounds(tmp_path):
    few = {"rows": 5, "features": 14, "epochs": 4}
    assert rebuilt(tmp_path / "a", **few)["exact"] == 0
    assert rebuilt(tmp_path / "b", **few, attack=BatchReconstruction(recovery="lattice"))["exact"] == 1


def test_two_local_batches_are_told_apart_and_three_are_rebuilt_together(tmp_path):
    slow = {"rows": 4, "features": 14, "rate": 0.02, "mode": "asynchronous"}
    two = rebuilt(tmp_path / "2", batches=2, **slow)
    assert two["exact"] == two["labels_right"] == two["steps_right"] == two["told_apart"] == 1
    three = rebuilt(tmp_path / "3", batches=3, **{**slow, "rows": 2, "rate": 0.005})
    assert three["exact"] == 1


@pytest.mark.parametrize("defense", [Shuffle(), Gaussian(ratio=0.1)])
def test_batches_that_change_and_noise_leave_a_guess(tmp_path, defense):
    found = rebuilt(tmp_path, defenses={"it": defense})
    assert found["exact"] == found["columns_told"] == 0
    assert found["entries_right"] == found["guess_entries_right"]
    assert found["notes"]


def test_selective_updates_only_take_more_rounds(tmp_path):
    defenses = {"it": SelectiveUpdate(fraction=0.25, choose="random")}
    assert rebuilt(tmp_path / "few", features=12, rows=4, defenses=defenses, epochs=20)["columns_told"] == 0
    assert rebuilt(tmp_path / "many", features=12, rows=4, defenses=defenses, epochs=90)["exact"] == 1


def test_real_columns_of_the_same_rows_are_solved_for(tmp_path):
    draw = np.random.default_rng(0)
    bits, real = (draw.random((60, 12)) < 0.5).astype(int), draw.random((60, 2)).round(6)
    lines = [f"{y}," + ",".join(map(str, [*b, *r])) for y, b, r in zip(bits[:, 0] ^ bits[:, 1], bits, real, strict=True)]
    (tmp_path / "mixed.csv").write_text("label," + ",".join(f"c{j}" for j in range(14)) + "\n" + "\n".join(lines) + "\n")
    found = rebuilt(tmp_path / "run", dataset=Binary(path=str(tmp_path / "mixed.csv")), batch_size=5)
    assert found["exact"] >= 0.7  # the rest have binary rows that depend on each other
    assert "not binary: column 12" in found["notes"]


@pytest.mark.data
def test_real_tables_with_columns_that_depend_on_each_other(tmp_path, data_folder):
    mushroom = Binary(path=str(data_folder / "mushroom" / "agaricus.txt.gz"), columns=20, rows=300)
    found = rebuilt(tmp_path, dataset=mushroom, batch_size=8)
    assert found["contained"] == found["proved"] == 1


def test_it_reads_what_it_declares_and_nothing_of_the_batch(rng):
    rules = Rules(2, 0.1, "sum", 1, 4)
    transcript = Transcript(torch.empty(0, dtype=torch.int64), 0, 3, (0.5, 0.5))
    theta = torch.zeros(2).double()
    transcript.exchanged("b", Updates(rules, theta, theta, theta))
    transcript.held("b", OwnFeatures(torch.ones(4, 2), torch.ones(4, 0)))
    view = transcript.view("b", BatchReconstruction.knows, rng)
    attack = BatchReconstruction()
    attack.observe(view)
    (answer,) = attack.rebuild_batch(view).values()
    assert answer.rows is None
    assert "too few rounds" in answer.note
    assert answer.guess.tolist() == [1, 1]
    with pytest.raises(UndeclaredKnowledgeError):
        _ = transcript.view("b", frozenset({Knowledge.PRIOR}), rng).updates


def test_it_goes_on_from_what_it_saw(rng):
    rules, attack = Rules(2, 0.1, "sum", 1, 4), BatchReconstruction()
    for _ in range(3):
        transcript = Transcript(torch.empty(0, dtype=torch.int64), 0, 3, (0.5, 0.5))
        values = torch.randn(3, 2, generator=rng, dtype=torch.float64)
        transcript.exchanged("b", Updates(rules, *values))
        transcript.held("b", OwnFeatures(torch.ones(4, 2), torch.ones(4, 0)))
        view = transcript.view("b", BatchReconstruction.knows, rng)
        attack.observe(view)
    other = BatchReconstruction()
    other.restore(attack.state())
    one, again = (each.rebuild_batch(view)["theta"] for each in (attack, other))
    assert one.figures == again.figures
    assert one.figures["rounds"] == 3
