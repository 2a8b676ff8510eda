"""Attacks on the joint model's predictions, in runs."""

import pytest
from builders import run_in

from vflbench.attacks.esa import Esa
from vflbench.attacks.grna import Grna
from vflbench.data.synthetic import BreastCancer
from vflbench.models.logistic import Logistic
from vflbench.models.optimizers.adam import Adam
from vflbench.run.settings import Audit, Settings

SETTINGS = Settings(epochs=2, batch_size=64, audit=Audit(batches=3, probe=False))


@pytest.mark.slow
def test_one_column_comes_back_exactly_and_ten_do_not(tmp_path):
    parties = {"one": {"label": ["mean_*"], "a": ["worst_area"]}, "ten": {"label": ["mean_*"], "a": ["worst_*"]}}
    found = {}
    for name, columns in parties.items():
        summary = run_in(
            tmp_path / name,
            dataset=BreastCancer(parties=columns),
            model=Logistic(),
            optimizer=Adam(lr=0.05),
            attacks={"esa": Esa(prior="class_mean"), "grna": Grna(width=60, steps=20)},
            settings=SETTINGS,
        )
        of = [entry for entry in summary["reconstructions"] if entry["message"] != "none"]
        assert {(entry["attack"], entry["message"], entry["layer"], entry["party"]) for entry in of} == {
            ("esa", "prediction", "logits", "a"),
            ("grna", "prediction", "logits", "a"),
        }
        found[name] = next(entry for entry in of if entry["attack"] == "esa")
        guesses = [entry for entry in summary["reconstructions"] if entry["layer"] == "class_mean"]
        assert found[name]["figures"]["mse"]["mean"] < guesses[0]["figures"]["mse"]["mean"]
    assert found["one"]["figures"]["mse"]["mean"] < 1e-9
    assert found["one"]["figures"]["directions_missing"]["mean"] == 0
    assert list(found["one"]["notes"]) == ["the predictions, if nothing changed them, determine all 1 unknown numbers"]
    assert found["ten"]["figures"]["directions_missing"]["mean"] == 9
    assert list(found["ten"]["notes"]) == ["of 10 unknown numbers a row, the predictions leave 9 directions open"]
