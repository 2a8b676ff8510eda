"""Classes and configs of a user's own, in folders that the command line names."""

import hashlib
import json
import sys

import pytest
from support.warm_command import SMALL, command

from vflbench.cli.config import split_flag, use_plugins
from vflbench.errors import UserError
from vflbench.results.folder import finished_folders

RUN = (*SMALL, "epochs=1")
LOUD = '''"""The user's own attack."""

import tools

from vflbench import Attack, Gradients, Scores, Threat


class Loud(Attack):
    threat = Threat(knows={Gradients})

    def __init__(self, power: float = 1):
        self.power = power

    def batch(self, view):
        return Scores(view.ids, {layer: tools.loudness(g) ** self.power for layer, g in view[Gradients].layers.items()})
'''
IDLE = """from vflbench.defenses.label_dp import LabelDp


class Idle(LabelDp):
    def labels(self, y, logits, context):
        return y
"""
FILES = {
    "attack/loud.yaml": "# The largest coordinate of each gradient.\nloud:\n  _target_: loud.Loud\n  power: 2\n",
    "defense/idle.yaml": "idle:\n  _target_: idle.Idle\n",
    "loud.py": LOUD,
    "tools.py": "def loudness(g):\n    return g.abs().amax(dim=1)\n",
    "idle.py": IDLE,
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A folder of a user with plug-ins in `mine`, and one finished run of them."""
    cwd = tmp_path_factory.mktemp("user")
    write(cwd / "mine", FILES)
    (cwd / "mine" / "link").symlink_to("/etc/hostname")
    result = command("train", "--plugins=mine", "attack=[loud,norm]", "attack.loud.power=3", *RUN, cwd=cwd)
    assert result.returncode == 0, result.stderr
    (run,) = finished_folders(cwd)
    return cwd, run


def test_an_attack_of_the_users_own_is_one_yaml_and_one_class(user):
    cwd, run = user
    assert {*json.loads((run / "summary.json").read_text())["leak_auc"]} == {"loud", "norm", "probe"}
    manifest = json.loads((run / "manifest.json").read_text())
    hashes = {name: hashlib.sha256((cwd / "mine" / name).read_bytes()).hexdigest() for name in (*FILES, "link")}
    assert manifest["plugins"] == [{"folder": str(cwd / "mine"), "files": hashes}]
    assert manifest["identity"]["plugins"] == [hashes]
    listed = command("list", "attacks", "--plugins", "mine", cwd=cwd).stdout
    assert "The largest coordinate of each gradient." in next(line for line in listed.splitlines() if "  loud" in line)
    assert "spectral" in listed
    line = {"COMP_LINE": "vflbench train --plugins mine attack=l"}
    assert command("-sc", "query=bash", cwd=cwd, **line).stdout.split() == ["attack=loud"]
    assert command("-sc", "query=bash", cwd=cwd, COMP_LINE="vflbench train --plugins min").stdout.split() == []


@pytest.mark.slow
def test_a_run_whose_promise_is_broken_is_written_and_ends_with_exit_code_1(tmp_path):
    write(tmp_path / "mine", FILES)
    for _ in range(2):  # the second time it is only shown
        result = command("train", "--plugins", "mine", "defense=idle", "audit.canaries=90", *RUN, cwd=tmp_path)
        assert result.returncode == 1
        assert "FAILED idle: the promise of eps = 1 is broken" in " ".join(result.stdout.split()), result.stdout
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        assert "marked as failed" in result.stderr
    (run,) = finished_folders(tmp_path)
    assert json.loads((run / "summary.json").read_text())["failed"]


def test_the_flag_is_taken_out_of_the_command_line():
    words = ["-m", "--plugins", "a", "x=1", "--plugins=b c", "--plugins", "a"]
    assert split_flag(words) == (["a", "b c", "a"], ["-m", "x=1"])
    for words in (["--plugins"], ["--plugins", "-m"], ["--plugins", ""]):
        with pytest.raises(UserError, match="--plugins: it must be followed by a folder"):
            split_flag(words)


def test_a_module_whose_name_is_taken_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, holder in {"json": "standard library", "test": "test", "tqdm": "tqdm", "vflbench": "vflbench"}.items():
        write(tmp_path / name, {f"{name}.py": ""})
        message = f"--plugins=.*{name}: its module {name} has the name of a module of .*{holder}.*; rename it"
        with pytest.raises(UserError, match=message):
            use_plugins([str(tmp_path / name)])
        assert str(tmp_path / name) not in sys.path


def test_folders_are_last_on_the_path_and_hold_no_module_twice(tmp_path, monkeypatch):
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    names = ("a/only_here.py", "b/only_there/__init__.py", "c/only_here.py", "a/__init__.py", "a/__main__.py")
    write(tmp_path, dict.fromkeys(names, ""))
    monkeypatch.chdir(tmp_path)
    assert use_plugins(["a", "b", "./a"]) == [tmp_path / "a", tmp_path / "b"]
    assert sys.path == [*before, str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(UserError, match=r"its module only_here has the name of a module of .*a, which would be imported"):
        use_plugins(["a", "c"])
    use_plugins([])
