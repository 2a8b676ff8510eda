"""What a run's provenance holds: an edit that can change a number changes it, and nothing else does."""

import importlib
import json
import os
import shutil
import sys

import pytest
from support.warm_command import SMALL, command

from vflbench.errors import UserError
from vflbench.results.folder import digest, finished_folders
from vflbench.run import provenance
from vflbench.run.provenance import data_files, import_from, origin_of

LOUD = {"seed": 1, "attack": {"loud": {"_target_": "loud.Loud"}}}


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Call it for a new process: nothing is read, imported or on the path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)

    def begin():
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]
        sys.path[:] = [place for place in sys.path if not place.startswith(str(tmp_path))]
        provenance._in_use.clear()

    begin()
    yield begin
    begin()


def write(folder, sources):
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)


def of(*folders, config=LOUD):
    return digest(config, origin_of(config, folders))


def replace(file, text):
    """Other content of the same size, at the same time, as a copy that keeps times leaves it."""
    times = file.stat()
    assert len(text) == times.st_size
    file.write_text(text)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.usefixtures("process")
def test_neither_times_nor_places_nor_what_editors_and_runs_leave_count(tmp_path):
    mine = tmp_path / "mine"
    write(mine, {"loud.py": "import tools\n", "tools.py": "A = 1\n", "pack/__init__.py": ""})
    before = of(mine)
    leftovers = ["__pycache__/tools.cpython-312.pyc", ".git/HEAD", "tools.py~", "#tools.py#", ".tools.swp"]
    leftovers += [f"outputs/run_{n}/{name}" for n in (1, 2) for name in ("config.yaml", "manifest.json", "metrics.csv")]
    write(mine, dict.fromkeys([*leftovers, "outputs/multirun.yaml", "outputs/begun/.lock"], ""))
    (mine / "tools.py").touch()
    assert of(mine) == before
    shutil.copytree(mine, tmp_path / "elsewhere" / "yours")
    assert of(tmp_path / "elsewhere" / "yours") == before
    write(mine, {"pack/config.yaml": "", "pack/manifest.json": ""})  # no run: it has no metrics.csv
    assert of(mine) != before


@pytest.mark.usefixtures("process")
def test_plug_ins_count_where_a_run_uses_one_and_then_all_folders_in_their_order(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    write(a, {"loud.py": "from pack import x\n", "pack/x.py": "A = 1\n"})
    write(b, {"pack/x.py": "A = 2\n"})
    assert len({of(a), of(a, b), of(b, a)}) == 3  # pack is a namespace: the first x is imported
    norm = {"seed": 1, "attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}}}
    assert of(a, config=norm) == of(config=norm)
    named = {"seed": 1, "model": {"_target_": "vflbench.models.torch.Torch", "bottom": "loud:Bottom"}}
    assert of(a, config=named) != of(config=named)


def test_what_was_hashed_is_what_runs(tmp_path, process):
    """No compiled file of a former source is left, and no edited folder is imported a second time."""
    write(tmp_path, {"loud.py": "A = 1\n"})
    import_from([tmp_path])
    first = of(tmp_path)
    assert importlib.import_module("loud").A == 1
    replace(tmp_path / "loud.py", "A = 2\n")
    with pytest.raises(UserError, match=r"--plugins=.*edited since this process imported it; start a new one"):
        import_from([tmp_path])
    assert of(tmp_path) == first  # of what this process runs
    process()
    import_from([tmp_path])
    assert of(tmp_path) != first
    assert importlib.import_module("loud").A == 2


def data_of(path):
    return {"seed": 1, "dataset": {"_target_": "vflbench.data.csv.Csv", "path": path}}


def test_data_counts_by_its_content_alone_on_every_machine(tmp_path, monkeypatch):
    """By the name that was typed, and not as another option that has the name of a file there."""
    config = {"audit": {"batches": "auto"}, "attack": "norm", **data_of("clicks.csv")}
    for place in ("here", "there"):
        write(tmp_path / place, {"clicks.csv": "a,b\n1,2\n", "auto": place, "norm": place})
    monkeypatch.chdir(tmp_path / "there")
    there = of(config=config)
    monkeypatch.chdir(tmp_path / "here")
    assert of(config=config) == there
    found = data_files(config)["dataset.path"]
    assert (found["bytes"], len(found["sha256"])) == (8, 64)
    file = tmp_path / "here" / "clicks.csv"
    replace(file, "a,b\n1,3\n")
    assert of(config=config) != there
    file.write_text("a,b\n1,2\n")
    assert of(config=config) == there


def test_every_option_that_names_a_file_counts_and_patterns_and_folders_of_data(tmp_path):
    write(tmp_path, {"w.npy": "1", "days/day_1": "1", "days/day_2": "2", "days/.hidden": ""})
    days, weights = str(tmp_path / "days"), str(tmp_path / "w.npy")
    for config, name in (
        ({"attack": {"mine": {"options": [{"weights": weights}]}}}, "w.npy"),
        (data_of(f"{days}/day_*"), "days/day_2"),
        (data_of(days), "days/day_1"),
        ({"attack": {"mine": {"weights_dir": days}}}, "days/day_1"),
        ({"dataset": {"path": [weights, f"{days}/day_1"]}}, "days/day_1"),
    ):
        before = of(config=config)
        (tmp_path / name).write_text(f"other than {before}")
        assert of(config=config) != before, name
        write(tmp_path, {"days/.hidden": before})
    assert data_files({"a": "auto", "b": "x" * 5000, "c": "a\0b", "d": str(tmp_path / "gone.csv"), "weights": days}) == {}


def test_pictures_in_the_folder_of_the_environment_count(tmp_path, monkeypatch):
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    config = {"dataset": {"_target_": "vflbench.data.fashion_mnist.FashionMnist", "path": None}}
    before = of(config=config)
    write(tmp_path, {"FashionMNIST/raw/some": "x"})
    assert of(config=config) != before


RUN = ("train", *SMALL, "epochs=1", "attack=loud", "--plugins", "mine")
PLUGIN = """import importlib
import json
from pathlib import Path

from vflbench import Gradients, Scores
from vflbench.attacks.norm import Norm

SIGN = importlib.import_module("too" + "ls").SIGN


class Loud(Norm):
    def batch(self, view):
        weight = json.loads((Path(__file__).parent / "weight.json").read_text())
        layers = view[Gradients].layers
        return Scores(view.ids, {layer: weight * SIGN * g.abs().amax(dim=1) for layer, g in layers.items()})
"""


def area(folder):
    return json.loads((folder / "summary.json").read_text())["leak_auc"]["loud"]["gradient"]["f2"]


@pytest.mark.slow
def test_an_edited_plug_in_edited_data_and_changed_code_make_other_runs_and_the_same_again_is_shown(tmp_path):
    sources = {"loud.py": PLUGIN, "tools.py": "SIGN =  1\n", "weight.json": " 1"}
    write(tmp_path / "mine", {**sources, "attack/loud.yaml": "loud:\n  _target_: loud.Loud\n"})
    assert command(*RUN, cwd=tmp_path).returncode == 0
    (first,) = finished_folders(tmp_path)
    assert "finished before" in command(*RUN, cwd=tmp_path).stdout
    for number, (name, text) in enumerate((("tools.py", "SIGN = -1\n"), ("weight.json", "-1"))):
        replace(tmp_path / "mine" / name, text)
        said = " ".join(command(*RUN, cwd=tmp_path).stdout.split())
        assert "finished before" not in said
        newest = max(finished_folders(tmp_path), key=lambda folder: (folder / "summary.json").stat().st_mtime_ns)
        assert area(newest) == pytest.approx(area(first) if number else 1 - area(first)), name
    manifest = json.loads((newest / "manifest.json").read_text())
    identity = manifest["identity"] | {"code": "0" * 64}
    (newest / "manifest.json").write_text(json.dumps(manifest | {"identity": identity}))
    result = command(*RUN, f"hydra.run.dir={newest}", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.strip().splitlines())) == (1, 1)
    assert "differs in vflbench's code" in result.stderr
    (newest / "manifest.json").write_text(json.dumps(manifest | {"versions": manifest["versions"] | {"torch": "1.0"}}))
    assert "note: this run was made with torch 1.0 (now " in command(*RUN, cwd=tmp_path).stdout
