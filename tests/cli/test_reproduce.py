"""`vflbench reproduce`: what it puts on the command lines, and what it leaves."""

from pathlib import Path

import pytest
from support.warm_command import command

from vflbench.cli import reproduce as no_defense
from vflbench.cli.reproduce import ReproductionPlan, fitting_scale, overrides, parse_minutes, reproduce
from vflbench.errors import UserError
from vflbench.report.published import PublishedExperiment, read_experiments


@pytest.fixture
def data(tmp_path):
    for name in ("criteo/train.txt.gz", "criteo/larger_than_that.txt", "mnist/images.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x" * len(name))
    return tmp_path


def plan(data=None, dataset=None, scale=1.0, out=Path(), **more):
    return ReproductionPlan(out, data, dataset, scale, 1, **more)


def test_times_are_read():
    assert [parse_minutes(text) for text in ("90m", "2h", "1h30m", "0.5h")] == [90, 120, 90, 30]
    for text in ("soon", "3", "1..5h", "-1h"):
        with pytest.raises(UserError, match="not a time"):
            parse_minutes(text)


def test_the_scale_fits_the_budget():
    """Of 30 minutes 70 % are spent on rows, but for a tenth of a minute to start each of two; 40 minutes take all rows."""
    chosen = [PublishedExperiment(str(i), "", "", f"{minutes} minutes", {}) for i, minutes in enumerate((30, 10))]
    assert fitting_scale(chosen, 30, jobs=2) == pytest.approx((0.7 * 30 - 2 * 0.1) / 40)
    assert fitting_scale(chosen, 600, jobs=2) == 1
    assert fitting_scale(chosen, 0.1, jobs=1) == 0.05


def test_the_data_set_its_file_and_the_scale_stand_on_the_command_line(data):
    experiment = read_experiments(names={"marvell_sumkl"})["marvell_sumkl"]
    words = overrides(experiment, plan(data, scale=0.25))
    assert words[:3] == ["dataset=criteo", f"dataset.path={data}/criteo/train.txt.gz", "dataset.sample=0.25"]
    assert "seed=0,1" in words
    assert not [word for word in overrides(experiment, plan(data)) if "s" in word[:2]]
    own = PublishedExperiment("own", "", "", "", {"defaults": [{"override /dataset": "digits"}]})
    assert overrides(own, plan(data)) == []
    said = PublishedExperiment("said", "", "", "", {}, reproduce=("dataset=mnist", "dataset.path={data}/mnist/images.gz"))
    assert overrides(said, plan(data, scale=0.1)) == ["dataset=mnist", f"dataset.path={data}/mnist/images.gz"]
    with pytest.raises(UserError, match="no file"):
        overrides(experiment, plan(data, "avazu"))


def test_without_a_folder_of_data_synthetic_rows_are_taken_and_files_are_asked_for(tmp_path):
    experiment = read_experiments(names={"marvell_sumkl"})["marvell_sumkl"]
    assert overrides(experiment, plan()) == ["dataset=synthetic"]
    assert overrides(experiment, plan(tmp_path)) == ["dataset=synthetic"]
    with pytest.raises(UserError, match="--data: it needs the files of criteo"):
        overrides(experiment, plan(dataset="criteo"))
    said = PublishedExperiment("said", "", "", "", {}, reproduce=("dataset.path={data}/x",))
    with pytest.raises(UserError, match="--data: it needs files"):
        overrides(said, plan())
    with pytest.raises(UserError, match="there is no such data set"):
        overrides(experiment, plan(dataset="nothing"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name experiments, or all of them with --all"),
        (["marvell_sumkl", "--all"], "not both"),
        (["marvel_sumkl"], "did you mean marvell_sumkl"),
        (["marvell_sumkl", "--data", "nowhere"], "--data=nowhere: there is no such folder"),
        (["marvell_sumkl", "--scale", "2"], "--scale=2"),
        (["no_defense", "--draws", "0"], "--draws="),
        (["no_defense", "--known", "1", "5"], "--known="),
    ],
)
def test_what_can_not_be_done_is_refused_before_anything_is_written(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        reproduce(words)
    assert not list(tmp_path.iterdir())


def test_where_nothing_ran_there_is_no_page_and_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run has finished, so there is no page"):
        reproduce(["marvell_sumkl", "--dataset", "criteo", "--out", "out"])
    said = " ".join(capsys.readouterr().out.split())
    assert "marvell_sumkl skipped 0.0 min --data: it needs the files of criteo; name their folder" in said
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]


@pytest.mark.slow
def test_it_runs_reports_and_goes_on(tmp_path):
    """On the embedded data: what is done is not done again."""
    words = ["reproduce", "bytedance_max_norm", "--scale", "1", "--out", "out", "--jobs", "1"]
    words += ["dataset.rows=2000", "dataset.vocabulary=300", "model.width=8", "epochs=1", "seed=0", "attack=norm"]
    first = command(*words, cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    page = (tmp_path / "out" / "index.html").read_text()
    assert "2 finished runs" in page
    assert "bytedance_max_norm on synthetic" in page
    assert (tmp_path / "out" / "bytedance_max_norm" / "report" / "report.html").exists()
    again = command(*words, "--budget", "0.0001m", cwd=tmp_path)
    assert again.returncode == 1
    assert "the time was up" in (tmp_path / "out" / "index.html").read_text()
    assert "2 finished runs" in (tmp_path / "out" / "index.html").read_text()


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
