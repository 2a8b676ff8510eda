"""The name of a run, and its folder: nothing is written outside outputs/ but where the user says so."""

import pytest

from vflbench.cli.config import run_name
from vflbench.cli.train import check_run_folder
from vflbench.errors import UserError
from vflbench.results.folder import LOCK, MANIFEST

NO_NAMES = ("", "..", "../../x", "/x", "a\\b", "-rf", "~", "a\0b", "a\x1b[31m", "x.", " x", "x" * 201, "é" * 101, None)
NAMES = ("a", "synthetic_norm+spectral_seed0", "x" * 200, "a b", "mit_Größe=3", "a-b,c@d(e)", 1.5, "模型")


@pytest.mark.parametrize("name", NO_NAMES, ids=lambda name: repr(name)[:20])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UserError, match="^name=.*1 to 200 letters, digits, spaces") as refused:
        run_name(name)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize("name", NAMES)
def test_what_is_a_name_is_taken(name, tmp_path):
    assert run_name(name) == str(name)
    (tmp_path / f"{run_name(name)}_12345678").mkdir()


def test_a_folder_that_is_no_runs_is_refused(tmp_path):
    run, foreign, logs, file = (tmp_path / name for name in ("run", "foreign", "logs", "file"))
    for folder in (run, foreign, logs):
        folder.mkdir()
    names = [run / LOCK, run / "notes.md", *(foreign / name for name in "abcd"), logs / "job.log", logs / "x.out", file]
    for name in names:
        name.touch()
    for folder in (tmp_path / "new", run, logs):
        check_run_folder(str(folder), folder)
    (foreign / "config.yaml").touch()
    problem = r"hydra.run.dir=.*: this folder holds what no run has written \(a, b, c and 2 more\)"
    with pytest.raises(UserError, match=problem):
        check_run_folder(str(foreign), foreign)
    (foreign / MANIFEST).touch()
    check_run_folder(str(foreign), foreign)
    with pytest.raises(UserError, match="Not a directory"):
        check_run_folder(str(file), file)
    for typed in ("", " ", None, "a\0b"):
        with pytest.raises(UserError, match="hydra.run.dir=.*: it must name a folder"):
            check_run_folder(typed, tmp_path)
