"""`vflbench reproduce no_defense`."""

import pytest

from vflbench.cli import reproduce as no_defense
from vflbench.cli.reproduce import reproduce
from vflbench.errors import UserError


@pytest.mark.slow
def test_a_row_for_each_defense_and_the_model_beside_the_head(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(no_defense, "DEFENSES", {"none": ()})
    quick = ["dataset=breast_cancer", "model=mlp", "epochs=8", "--seeds", "0", "--draws", "2", "--known", "100"]
    reproduce(["no_defense", "batch_size=64", *quick])
    tables = capsys.readouterr().out.split("train rows")
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in tables[0].splitlines()[4:]}
    model, no_label, known = (float(cell.split()[0]) for cell in cells["none"])
    assert model > 0.9
    assert abs(model - known) < 0.1
    assert 0.5 <= no_label < 1
    assert cells["own columns"][:2] == ["", ""]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "key"), [(["--draws", "0"], "--draws"), (["--known", "1", "5"], "--known")])
def test_numbers_without_sense_are_refused(words, key):
    with pytest.raises(UserError, match=f"^{key}="):
        reproduce(["no_defense", *words])
