"""The public names from Python."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.warm_command import script

import vflbench

EXTENDING = Path(__file__).resolve().parents[2] / "docs" / "examples"
SCRIPT = """
from pathlib import Path
import vflbench
small = ["dataset.rows=1000", "dataset.vocabulary=100", "model.width=8", "epochs=1"]
folder = vflbench.train(*small, "attack=loudest", plugins=[PLUGINS])
assert folder.parent == Path.cwd() / "outputs"
before = (folder / "summary.json").stat().st_mtime_ns
assert vflbench.train(*small, "attack=loudest", plugins=[PLUGINS]) == folder
assert (folder / "summary.json").stat().st_mtime_ns == before
assert {row["attack"] for row in vflbench.load(folder).to_pylist()} >= {"loudest"}
for mistake, plugins in (("dataset.rows=-1", []), ("dataset.rowz=1", []), ("attack=loudest", []), ("epochs=1", ["away"])):
    try:
        vflbench.train(mistake, plugins=plugins)
    except vflbench.UserError as error:
        print("refused:", " ".join(str(error).split()))
assert list(folder.parent.iterdir()) == [folder]
"""


@pytest.mark.slow
def test_a_run_from_python(tmp_path):
    result = script(SCRIPT.replace("PLUGINS", repr(EXTENDING / "attack").replace("PosixPath", "Path")), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    refused = [line for line in result.stdout.splitlines() if line.startswith("refused:")]
    for line, words in zip(refused, ("dataset.rows=-1", "rowz", "loudest", "--plugins=away"), strict=True):
        assert words in line


def test_importing_it_loads_no_torch(tmp_path):
    code = "import sys, vflbench; print([m for m in ('torch', 'hydra', 'numpy', 'pyarrow') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_every_public_name_is_there_and_others_are_refused():
    for name in vflbench.__all__:
        assert getattr(vflbench, name) is not None
    assert set(dir(vflbench)) >= set(vflbench.__all__)
    stub = Path(vflbench.__file__).with_suffix(".pyi").read_text()
    names = [name for name in vflbench.__all__ if not name.startswith("__")]
    assert not [name for name in names if f" as {name}\n" not in stub and f"\ndef {name}(" not in stub]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vflbench.nonsense  # noqa: B018
