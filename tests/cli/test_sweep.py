"""Which runs a sweep has: what `params`, `runs` and the command line make together."""

import os
import re
from types import SimpleNamespace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from support.warm_command import SMALL, command

from vflbench.cli.sweep import Sweep, overrides_of_runs
from vflbench.errors import UserError
from vflbench.results.folder import finished_folders

PAIRS = [["defense=none"], ["defense=marvell", "defense.marvell.sumkl=3.6"]]


def runs(*typed, params=None, pairs=PAIRS):
    return overrides_of_runs(OverridesParser.create(), params or {}, pairs, typed)


def test_each_pair_is_run_with_each_value_and_values_keep_their_quotes_and_brackets():
    assert runs(params={"seed": "0,1"}, pairs=PAIRS[1:]) == [[*PAIRS[1], "seed=0"], [*PAIRS[1], "seed=1"]]
    assert len(runs("epochs=1,2", params={"seed": "0,1"})) == 8
    several = runs("defense=[norm,direct],none", "name='a b'", pairs=[])
    assert several == [["defense=[norm,direct]", "name='a b'"], ["defense=none", "name='a b'"]]
    with pytest.raises(UserError, match="values, separated by commas"):
        runs("seed=interval(0,1)", pairs=[])


def test_the_command_line_takes_the_place_of_what_an_experiment_sweeps_over():
    seed = {"seed": "0"}
    assert runs("seed=5", params=seed) == [["defense=none", "seed=5"], [*PAIRS[1], "seed=5"]]
    assert runs("defense=max_norm", params=seed) == [["seed=0", "defense=max_norm"]]  # with the options of its defense
    sumkl = "defense.marvell.sumkl=1"
    assert runs(sumkl, params=seed) == [["defense=none", "seed=0", sumkl], ["defense=marvell", "seed=0", sumkl]]


def test_the_bar_counts_epochs_of_runs_under_way_and_takes_any_number_of_them(tmp_path):
    jobs = [SimpleNamespace(overrides=[f"seed={n}"], outcome=None, folder=tmp_path / str(n), options={}) for n in range(4)]
    for job, epochs in zip(jobs, (4, "auto", 0, 1), strict=True):
        job.folder.mkdir()
        job.options["epochs"] = epochs
    sweep, shown = Sweep(jobs), []
    sweep.bar = SimpleNamespace(disable=False, set_postfix_str=shown.append)
    (tmp_path / "0" / "metrics.csv").write_text("epoch,split\n0,test,1\n1,test,1\n")
    (tmp_path / "3" / "metrics.csv").write_text("epoch,split\n8,test,1\n")
    os.utime(tmp_path / "3" / "metrics.csv", (0, 0))  # of an earlier run, in whose place this one is made
    sweep.watch(jobs)
    assert sweep.bar.n == 0.5
    assert shown == ["epoch 3/4 of seed=0; seed=1; seed=2; epoch 1/1 of seed=3"]


RUN = (*SMALL, "epochs=1", "attack=norm")


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_failure_and_says_so(tmp_path):
    result = command("train", "-m", *RUN, "batch_size=-1,0,64", cwd=tmp_path)
    assert result.returncode == 1
    assert len(finished_folders(tmp_path)) == 1
    assert [result.stderr.count(f"\nfailed: batch_size={size}\n") for size in (-1, 0)] == [1, 1]
    assert "it must be a whole number from 1 to " not in result.stdout
    assert "Traceback" not in result.stderr
    errors = sorted(tmp_path.rglob("error.txt"))
    assert len(errors) == 2
    for error in errors:
        message, _, traceback = error.read_text().partition("\n\n")
        assert re.match("batch_size=(-1|0): it must be a whole number from 1 to ", message)
        assert traceback.startswith("Traceback")
        assert f"  {message}\n  {error.parent}\n" in result.stderr
    counted = " ".join(result.stdout.partition("\n3 runs\n")[2].split())
    assert counted.startswith("done 1 skipped 0 (there already) failed 2 next: vflbench report outputs")


@pytest.mark.slow
def test_a_failure_is_tried_again_and_error_txt_goes_when_it_succeeds(tmp_path):
    sweep = ("train", "-m", "dataset=csv", "dataset.path=my.csv", "dataset.label=y", "model=mlp", "epochs=1", "attack=norm")
    (tmp_path / "my.csv").write_text("x,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(300)))
    failed = command(*sweep, cwd=tmp_path, VFLBENCH_CACHE=str(tmp_path / "my.csv"))
    assert failed.returncode == 1
    (error,) = tmp_path.rglob("error.txt")
    assert error.read_text().startswith("VFLBENCH_CACHE=")
    again = command(*sweep, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert finished_folders(tmp_path) == [error.parent]
    assert not error.exists()


@pytest.mark.slow
def test_a_sweep_computes_what_is_missing_and_shares_its_folders_with_single_runs(tmp_path):
    """Runs seed=1 alone, then two sweeps."""
    alone = command("train", *RUN, "seed=1", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    (folder,) = finished_folders(tmp_path)
    swept = command("train", "-m", *RUN, "seed=0,1", cwd=tmp_path)
    assert swept.stdout.count("finished before, so not computed again (overwrite=true would):") == 1, swept.stderr
    assert swept.stdout.count(f"\n  outputs/{folder.name}\n") == 1
    before = {file: file.read_bytes() for f in finished_folders(tmp_path) for file in f.iterdir()}
    extended = command("train", "-m", *RUN, "seed=0,1,2", cwd=tmp_path)
    assert extended.stdout.count("finished before") == 2
    assert len(finished_folders(tmp_path)) == 3
    assert {file: file.read_bytes() for file in before} == before
