"""A finished run answers for the code, plug-ins and data that made it, and for no others: from the command line."""

import json
import os
import py_compile
import shutil

import pytest
from warm_command import SMALL, command

from vflbench.results.files import finished_folders

RUN = (*SMALL, "epochs=1", "attack=loud")
LOUD = '''import importlib
import json
from pathlib import Path

from vflbench import Attack, Gradients, Scores, Threat

SIGN = importlib.import_module("too" + "ls").SIGN


class Loud(Attack):
    """The largest coordinate of each gradient."""

    threat = Threat(knows={Gradients})

    def batch(self, view):
        weight = json.loads((Path(__file__).parent / "weight.json").read_text())
        layers = view[Gradients].layers
        return Scores(view.ids, {layer: weight * SIGN * g.abs().amax(dim=1) for layer, g in layers.items()})
'''


@pytest.fixture
def user(tmp_path):
    """A folder of a user with a plug-in, whose neighbour has a computed name, and which reads a file beside it."""
    for name, text in {
        "mine/loud.py": LOUD,
        "mine/tools.py": "SIGN = +1\n",
        "mine/weight.json": "+1",
        "mine/attack/loud.yaml": "loud:\n  _target_: loud.Loud\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("+1", " 1"))
    return tmp_path


def train(cwd, *words, **environment):
    result = command("train", *words, "--plugins", "mine", *RUN, cwd=cwd, **environment)
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout


def area(folder):
    return json.loads((folder / "summary.json").read_text())["leak_auc"]["loud"]["gradient"]["f2"]


def newest(cwd):
    return max(finished_folders(cwd), key=lambda folder: (folder / "summary.json").stat().st_mtime_ns)


def replace(file, text):
    """Other content of the same size, at the same time, as a copy that keeps times leaves it."""
    times = file.stat()
    assert len(text) == times.st_size
    file.write_text(text)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.slow
def test_what_a_plug_in_imports_by_a_computed_name_and_reads_beside_itself_makes_another_run(user):
    train(user)
    first = area(newest(user))
    for name in ("loud.py", "tools.py"):
        py_compile.compile(user / "mine" / name)  # and stale afterwards
    for name, text in (("tools.py", "SIGN = -1\n"), ("weight.json", "-1")):
        replace(user / "mine" / name, text)
        said = train(user)
        assert "finished before" not in said
        why = f"holds a run of these options made with other plug-ins ({name}), so it is computed anew"
        assert why in " ".join(said.split())
        assert area(newest(user)) == pytest.approx(1 - first if name == "tools.py" else first), name
    assert len(finished_folders(user)) == 3
    shutil.move(user / "mine", user / "moved")
    os.symlink(user / "moved", user / "mine")
    assert "finished before" in train(user)


@pytest.mark.slow
def test_another_content_of_a_data_file_is_another_run_and_another_time_is_not(tmp_path):
    file = tmp_path / "clicks.csv"
    rows = [f"{i % 7},{i % 5},{'yes' if i % 7 > 3 else 'nay'}" for i in range(600)]
    file.write_text("\n".join(["age,visits,clicked", *rows]))
    words = ("train", "dataset=csv", "dataset.path=clicks.csv", "dataset.label=clicked", "epochs=1", "batch_size=64")
    words += ("dataset.parties={a: [age, visits]}", "attack=norm", "audit.batches=3", "model.width=8")
    assert command(*words, cwd=tmp_path).returncode == 0
    (first,) = finished_folders(tmp_path)
    file.touch()
    assert "finished before" in command(*words, cwd=tmp_path).stdout
    other = file.read_text().replace("yes", "???").replace("nay", "yes").replace("???", "nay")
    replace(file, other)
    result = command(*words, cwd=tmp_path)
    if result.returncode:  # the prepared table of the former content was found by the file's size and time
        assert "prepared data of its former content is in the cache" in result.stderr
        assert finished_folders(tmp_path) == [first]
        file.touch()
        result = command(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "finished before" not in result.stdout
    said = " ".join(result.stdout.split())
    assert f"{first} holds a run of these options made with another content of the file in dataset.path" in said
    assert len(finished_folders(tmp_path)) == 2
    fixed = command(*words, f"hydra.run.dir={first}", cwd=tmp_path)
    assert fixed.returncode == 1
    assert "made with another content of the file in dataset.path" in fixed.stderr


@pytest.mark.slow
def test_a_run_names_other_packages_and_one_of_another_version_of_our_code_is_refused_in_its_folder(user):
    train(user)
    (run,) = finished_folders(user)
    manifest = json.loads((run / "manifest.json").read_text())
    rounded = {**manifest, "versions": manifest["versions"] | {"torch": "1.0"}, "device": "cuda:7"}
    (run / "manifest.json").write_text(json.dumps(rounded))
    said = train(user)
    assert "finished before" in said
    assert "note: this run was made with torch 1.0 (now " in said
    assert "device cuda:7 (now c" in said
    for identity, words in (
        (manifest["identity"] | {"code": "0" * 64}, "made by another version of vflbench's code"),
        (manifest["identity"] | {"vflbench": "0.0.9"}, "made by vflbench 0.0.9, and this is"),
        ({}, "made by an older version of vflbench, which recorded no digest of its code"),
    ):
        (run / "manifest.json").write_text(json.dumps(manifest | {"identity": identity}))
        result = command("train", "--plugins", "mine", *RUN, f"hydra.run.dir={run}", cwd=user)
        assert (result.returncode, len(result.stderr.strip().splitlines())) == (1, 1)
        assert words in result.stderr


EDITS_ITSELF = """
    def epoch(self, view):
        file = Path(__file__).parent / "NAME"
        if not (Path(__file__).parents[1] / "edited").exists():
            file.write_text(file.read_text().replace(" 1", "-1"))
            (Path(__file__).parents[1] / "edited").touch()
"""


@pytest.mark.slow
def test_a_run_whose_data_beside_a_plug_in_was_edited_on_the_way_answers_for_nothing(user):
    (user / "mine" / "loud.py").write_text(LOUD + EDITS_ITSELF.replace("NAME", "weight.json"))
    train(user)
    (run,) = finished_folders(user)
    assert json.loads((run / "manifest.json").read_text())["changed_while_running"] == ["plug-in file weight.json"]
    assert "finished before" not in train(user)
    (user / "mine" / "weight.json").write_text(" 1")
    result = command("train", "--plugins", "mine", *RUN, cwd=user)
    assert result.returncode == 1
    assert "and plug-in file weight.json was edited while it ran" in result.stderr
    assert "overwrite=true" in result.stderr
    train(user, "overwrite=true")
    assert "finished before" in train(user)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "fork", "joblib"])
def test_a_sweep_under_which_a_plug_in_is_edited_mixes_nothing(user, launcher):
    """A process goes on with the modules that it has; the next one computes the new version in folders of its own."""
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    (user / "mine" / "loud.py").write_text(LOUD + EDITS_ITSELF.replace("NAME", "tools.py"))
    words = (
        "-m",
        "seed=0,1,2",
        f"hydra/launcher={launcher}",
        *(("hydra.launcher.n_jobs=1",) if launcher != "basic" else ()),
    )
    said = train(user, *words)
    by_tools = {}
    for folder in finished_folders(user):
        manifest = json.loads((folder / "manifest.json").read_text())
        by_tools.setdefault(manifest["identity"]["plugins"][0]["tools.py"], set()).add(manifest["seed"])
        assert folder.name in said
    assert sum(map(len, by_tools.values())) == 3
    train(user, *words)
    by_tools = {}
    for folder in finished_folders(user):
        manifest = json.loads((folder / "manifest.json").read_text())
        assert "changed_while_running" not in manifest
        by_tools.setdefault(manifest["identity"]["plugins"][0]["tools.py"], []).append(area(folder))
    assert sorted(map(len, by_tools.values())) in ([3], [3, 3], [1, 3], [2, 3])
    assert command("report", "outputs", cwd=user).returncode == 0


@pytest.mark.slow
def test_data_beside_a_plug_in_that_is_edited_under_a_sweep_stops_its_other_runs(user):
    (user / "mine" / "loud.py").write_text(LOUD + EDITS_ITSELF.replace("NAME", "weight.json"))
    words = ("--plugins", "mine", *RUN, "seed=0,1", "hydra/launcher=basic")  # in a process for each, as above
    result = command("train", "-m", *words, cwd=user)
    assert result.returncode == 1
    assert "weight.json was edited since this command began; run the same command again" in result.stdout + result.stderr
