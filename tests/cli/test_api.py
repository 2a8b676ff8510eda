"""The public names from Python."""

import subprocess
import sys
from pathlib import Path

import pytest

import vflbench
from vflbench.cli.plugins import use_plugins

EXTENDING = Path(__file__).resolve().parents[2] / "docs" / "extending"
SMALL = ["dataset.rows=1000", "dataset.vocabulary=100", "model.width=8", "epochs=1"]


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The current folder; plug-ins that a test uses are none of the next test's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    use_plugins([])


def test_a_run_from_python(empty_folder):
    folder = vflbench.train(*SMALL, "attack=loudest", plugins=[EXTENDING / "attack"])
    assert folder.parent == empty_folder / "outputs"
    before = (folder / "summary.json").stat().st_mtime_ns
    assert vflbench.train(*SMALL, "attack=loudest", plugins=[EXTENDING / "attack"]) == folder
    assert (folder / "summary.json").stat().st_mtime_ns == before
    assert {row["attack"] for row in vflbench.load(folder).to_pylist()} >= {"loudest"}
    for mistake in ("dataset.rows=-1", "dataset.rowz=1", "attack=nowhere"):
        with pytest.raises(vflbench.UserError, match=mistake.partition("=")[2 if "nowhere" in mistake else 0]):
            vflbench.train(mistake)
    with pytest.raises(vflbench.UserError, match="there is no such folder"):
        vflbench.train(*SMALL, plugins=["nowhere"])
    assert list(folder.parent.iterdir()) == [folder]


def test_importing_it_loads_no_torch(tmp_path):
    code = "import sys, vflbench; print([m for m in ('torch', 'hydra', 'numpy', 'pyarrow') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_every_public_name_is_there_and_others_are_refused():
    for name in vflbench.__all__:
        assert getattr(vflbench, name) is not None
    assert set(dir(vflbench)) >= set(vflbench.__all__)
    stub = Path(vflbench.__file__).with_suffix(".pyi").read_text()
    assert all(f" as {name}\n" in stub for name in vflbench.__all__ if not name.startswith("__"))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vflbench.nonsense  # noqa: B018
