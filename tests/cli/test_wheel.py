"""The wheel, unpacked where no checkout is near."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_brings_its_configs_and_runs_in_an_empty_folder(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    built = subprocess.run(pip, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("vflbench-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    in_checkout = {f"vflbench/{file.relative_to(ROOT)}" for file in (ROOT / "configs").rglob("*.*")}
    assert in_checkout <= names
    assert {"vflbench/report/templates/page.html", "vflbench/py.typed", "vflbench/__init__.pyi"} <= names
    assert not any(name.startswith(("tests/", "scripts/", "outputs/")) for name in names)
    # `-P` keeps the current folder off the path; the unpacked wheel stands before anything installed.
    code = (
        "import vflbench, sys; assert vflbench.__file__.startswith(sys.argv[1]), vflbench.__file__;"
        "sys.argv = ['vflbench', *sys.argv[2:]]; from vflbench.cli.main import main; main()"
    )
    options = ["train", "dataset.rows=2000", "dataset.vocabulary=300", "epochs=1", "hydra.run.dir=out"]
    command, environment = [sys.executable, "-P", "-c", code, str(site), *options], {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads((empty / "out" / "summary.json").read_text())["epochs"] == 1
    assert json.loads((empty / "out" / "manifest.json").read_text())["git_commit"] is None
