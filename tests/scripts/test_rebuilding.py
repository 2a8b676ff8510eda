"""The figure of every attack on features against every defense, from runs written by hand."""

import math

import pytest
import script_runs
from outputs_tree import interval, write_run
from script_runs import rows_of

from vflbench.results.report.heat_map import colour

ATTACKS = {"inversion": {"_target_": "vflbench.attacks.model_inversion.ModelInversion"}}
TOP_K = {"top_k": {"_target_": "vflbench.defenses.top_k.TopK", "fraction": 0.12}}


def rebuilt(attack, layer, mse, *, message="embedding", party="a"):
    place = {"attack": attack, "message": message, "party": party, "layer": layer, "visible": True}
    return place | {"figures": {"mse": interval(mse)}, "batches": 1, "notes": {}}


def save(folder, seed, mse, *, experiment="rebuilding_pictures", attack="inversion", defense=None, accuracy=0.9):
    guesses = {"mean": 0.10, "class_mean": 0.08, "random_row": 0.16, "nearest_row": 0.01, "true": 0.0}
    entries = [rebuilt(attack, "f3", mse)]
    entries += [rebuilt(attack, name, value, message="none") for name, value in guesses.items()]
    config = {"attack": {attack: ATTACKS["inversion"]}}
    facts = {"experiment": experiment, "reconstructions": entries, "test_accuracy": accuracy}
    return write_run(folder, seed=seed, leaks=[], config=config, defense=defense, **facts)


@pytest.fixture
def tree(tmp_path):
    for seed in range(3):
        save(tmp_path / f"none{seed}", seed, 0.02)
        save(tmp_path / f"k{seed}", seed, 0.08, defense=TOP_K, accuracy=0.8 + 0.05 * seed)
        save(tmp_path / f"t{seed}", seed, 0.0, experiment="rebuilding_table", attack="equation_solving")
    write_run(tmp_path / "other", experiment="matrix")
    return tmp_path


def test_the_gain_is_over_the_best_guess_that_needs_no_truth(tree):
    done = script_runs.run("rebuilding", tree)
    assert done.returncode == 0, done.stderr
    head, _, *rows = rows_of(done.stdout)
    assert head == ["defense", "accuracy, pictures", "accuracy, table", "*pictures:* inversion", "*table:* equation_solving"]
    assert rows == [
        ["none", "0.900", "0.900", "0.75 (3 equal runs)", "1.00 (3 equal runs)"],
        ["top_k, fraction 0.12", "0.850", "", "0.00 (3 equal runs)", ""],
    ]


def test_the_picture_and_the_page_are_drawn_and_no_run_is_an_error(tree, tmp_path):
    page, picture = tmp_path / "r.html", tmp_path / "r.png"
    done = script_runs.run("rebuilding", tree, "--page", page, "--picture", picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "equation_solving, none: 1.000" in page.read_text()
    done = script_runs.run("rebuilding", tree / "other")
    assert done.returncode == 2
    assert "no finished run of experiment=rebuilding_pictures" in done.stderr


def test_exact_answers_are_red_and_guesses_white():
    assert (colour(0.0, 0.0), colour(-3.0, 0.0), colour(1.0, 0.0)) == ("#ffffff", "#ffffff", "#a50026")
    assert colour(math.nan, 0.0) not in {colour(0.01 * step, 0.0) for step in range(101)}
