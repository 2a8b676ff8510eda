"""The public names from Python."""

import subprocess
import sys
from pathlib import Path

import pytest

import vflbench

EXTENDING = Path(__file__).resolve().parents[2] / "docs" / "extending"
SCRIPT = """
import sys
import vflbench
assert "torch" not in sys.modules
small = ["dataset.rows=1000", "dataset.vocabulary=100", "model.width=8", "epochs=1"]
folder = vflbench.train(*small, "attack=loudest", plugins=[sys.argv[1]])
assert folder == vflbench.train(*small, "attack=loudest", plugins=[sys.argv[1]])
table = vflbench.load(folder)
assert {row["attack"] for row in table.to_pylist()} >= {"loudest"}
for mistake in ("dataset.rows=-1", "dataset.rowz=1", "attack=nowhere"):
    try:
        vflbench.train(mistake)
    except vflbench.UserError as error:
        print("refused:", " ".join(str(error).split()))
assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]
"""


def test_a_run_from_python(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(EXTENDING / "attack")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    refused = [line for line in result.stdout.splitlines() if line.startswith("refused:")]
    assert len(refused) == 3
    assert "dataset.rows=-1" in refused[0]
    assert "rowz" in refused[1]
    assert "nowhere" in refused[2]


def test_every_public_name_is_there_and_others_are_refused():
    for name in vflbench.__all__:
        assert getattr(vflbench, name) is not None
    assert set(dir(vflbench)) >= set(vflbench.__all__)
    stub = Path(vflbench.__file__).with_suffix(".pyi").read_text()
    assert all(f" as {name}\n" in stub for name in vflbench.__all__ if not name.startswith("__"))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vflbench.nonsense  # noqa: B018
