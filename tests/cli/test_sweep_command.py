"""`vflbench train -m` from outside."""

import re

import pytest
from warm_command import SMALL, command

from vflbench.results.folder import finished_folders

RUN = (*SMALL, "epochs=1", "attack=norm")


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_failure_and_says_so(tmp_path):
    result = command("train", "-m", *RUN, "batch_size=-1,0,64", cwd=tmp_path)
    assert result.returncode == 1
    assert len(finished_folders(tmp_path)) == 1
    for size in (-1, 0):
        assert result.stderr.count(f"\nfailed: batch_size={size}\n") == 1
        assert f"batch_size={size}: it must be a whole number from 1 to " not in result.stdout
    assert "Traceback" not in result.stderr
    errors = sorted(tmp_path.rglob("error.txt"))
    assert len(errors) == 2
    for error in errors:
        message, _, traceback = error.read_text().partition("\n\n")
        assert re.match("batch_size=(-1|0): it must be a whole number from 1 to ", message)
        assert traceback.startswith("Traceback")
        assert f"  {message}\n  {error.parent}\n" in result.stderr
    table = [line.split()[:2] for line in result.stdout.splitlines()]
    for counted in (["3", "runs"], ["done", "1"], ["skipped", "0"], ["failed", "2"]):
        assert counted in table


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
    assert {file.name for file in error.parent.iterdir()} >= {"summary.json", "metrics.csv"}
    assert not error.exists()


@pytest.mark.slow
def test_a_sweep_computes_what_is_missing_and_shares_its_folders_with_single_runs(tmp_path):
    """Runs seed=1 alone, then two sweeps."""
    sweep = ("train", "-m", *RUN)
    alone = command("train", *RUN, "seed=1", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    (folder,) = finished_folders(tmp_path)
    swept = command(*sweep, "seed=0,1", cwd=tmp_path)
    assert swept.returncode == 0, swept.stderr
    assert swept.stdout.count("finished before, so not computed again (overwrite=true would):") == 1
    assert swept.stdout.count(f"\n  outputs/{folder.name}\n") == 1
    before = {file: file.read_bytes() for f in finished_folders(tmp_path) for file in f.iterdir()}
    extended = command(*sweep, "seed=0,1,2", cwd=tmp_path)
    assert extended.stdout.count("finished before") == 2
    assert len(finished_folders(tmp_path)) == 3
    assert {file: file.read_bytes() for file in before} == before
