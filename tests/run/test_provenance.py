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
    assert data_files(config)["dataset.path"]["bytes"] == 8
    replace(tmp_path / "here" / "clicks.csv", "a,b\n1,3\n")
    assert of(config=config) != there


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


@pytest.mark.slow
def test_a_run_that_was_made_with_other_versions_is_shown_with_a_note(tmp_path):
    run = ("train", *SMALL, "epochs=1", "attack=norm")
    assert command(*run, cwd=tmp_path).returncode == 0
    path = finished_folders(tmp_path)[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"versions": manifest["versions"] | {"torch": "1.0"}}))
    shown = command(*run, cwd=tmp_path).stdout
    assert "finished before" in shown
    assert "note: this run was made with torch 1.0 (now " in shown
