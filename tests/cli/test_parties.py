"""`vflbench parties`: kits that hold nothing of another party, and what a party refuses."""

import json
import stat
from pathlib import Path

import pytest

from vflbench.errors import UserError
from vflbench.hosts.commands import parties
from vflbench.hosts.kit import draw_secret, first_difference, read_kit, shared

NAMES = ("label", "submit", "northbank", "southbank", "insurer")
CONFIG = {"seed": 0, "dataset": {"path": "mine.csv", "rows": 5}, "attack": {"norm": {"top": None}}, "name": "x"}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    pytest.importorskip("nvflare")
    folder = tmp_path_factory.mktemp("parties") / "project"
    parties(["write", str(folder), "parties=[northbank,southbank,insurer]", "host=label.example.com", "port=8123"])
    return folder


@pytest.mark.slow
def test_a_kit_has_nothing_of_another_party(project):
    keys = {name: next((project / name / "startup").glob("*.key")).read_bytes() for name in NAMES}
    assert len(set(keys.values())) == len(NAMES)
    for name in NAMES[2:]:
        others = {*NAMES[2:]} - {name}
        for file in (file for file in (project / name).rglob("*") if file.is_file()):
            content = file.read_bytes()
            assert not any(key in content for other, key in keys.items() if other != name), file
            assert not any(other.encode() in content or other in file.name for other in others), file


def test_private_keys_are_for_their_owner_alone_and_that_of_the_authority_is_gone(project):
    private = [file for file in project.rglob("*") if file.is_file() and b"PRIVATE KEY" in file.read_bytes()]
    assert sorted(file.parent.parent.name for file in private) == sorted(NAMES)
    assert {stat.S_IMODE(file.stat().st_mode) for file in private} == {0o600}
    assert {stat.S_IMODE((project / name).stat().st_mode) for name in NAMES} == {0o700}
    assert [file.name for file in project.parent.iterdir()] == ["project"]


def test_a_site_builds_our_classes_alone_sends_no_log_and_takes_no_code(project):
    for name in ("label", *NAMES[2:]):
        local = project / name / "local"
        resources = json.loads((local / "resources.json.default").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert len(resources["class_allow_list"]) == 2
        assert all(path.startswith("vflbench.") for path in resources["class_allow_list"])
        assert not any("log" in part["id"] for part in resources["components"])
        assert name == "label" or resources["allow_log_streaming"] is False
        rights = json.loads((local / "authorization.json.default").read_text())["permissions"]
        assert list(rights) == ["lead"]
        assert {right for right, whom in rights["lead"].items() if whom != "none"} == {"submit_job", "manage_job", "view"}
    client = json.loads((project / "northbank" / "startup" / "fed_client.json").read_text())
    assert client["servers"][0]["service"]["target"] == "label.example.com:8123"
    assert client["client"]["connection_security"] == "mtls"


MISTAKES = {
    "write": "one folder",
    "write p parties=[a,a]": "twice",
    "write p parties=[label]": "not label",
    "write p parties=[../x]": "small letters",
    "write p port=٣": "1 to 65535",
    "write p hots=a": "no such option",
    "write file": "never overwritten",
    "start p": "no kit",
    "run p": "no folder label",
    "stop": "write, compose, check, start, run",
}


def test_mistakes_are_named_and_a_project_is_never_overwritten(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for words, what in {**MISTAKES, f"write {project}": "never overwritten"}.items():
        with pytest.raises(UserError, match=what):
            parties(words.split())
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def kit_in(folder: Path, text: str, experiment: str = ""):
    (folder / "party.yaml").write_text(text)
    (folder / "experiment.yaml").write_text(experiment)
    return read_kit(folder)


def test_a_party_refuses_what_it_has_not_agreed_to(tmp_path):
    with pytest.raises(UserError, match="it has agreed to no experiment"):
        kit_in(tmp_path, "party: a\nexperiment: null").refuse_other(CONFIG)
    kit_in(tmp_path, "party: a\nexperiment: any").refuse_other(CONFIG)
    kit = kit_in(tmp_path, "party: a\nexperiment: experiment.yaml", json.dumps(shared(CONFIG)))
    kit.refuse_other(CONFIG)
    kit.refuse_other({**CONFIG, "name": "y", "dataset": {"rows": 5, "path": "elsewhere.csv"}})
    with pytest.raises(UserError, match=r"it has agreed to dataset\.rows=5, not to 6"):
        kit.refuse_other({**CONFIG, "dataset": {"rows": 6}})
    with pytest.raises(UserError, match=r"attack\.kmeans=left out"):
        kit.refuse_other({**CONFIG, "attack": {**CONFIG["attack"], "kmeans": {}}})
    with pytest.raises(UserError, match=r"attack\.norm="):
        kit.refuse_other({**CONFIG, "attack": {}})


def test_paths_of_the_label_party_are_not_sent():
    sent = shared({**CONFIG, "audit": {"auxiliary_path": "/home/label/x.csv", "probe": True}, "logger": {"mlflow": {}}})
    assert sent == {"seed": 0, "dataset": {"rows": 5}, "attack": {"norm": {"top": None}}, "audit": {"probe": True}}


def test_the_first_difference_is_named():
    assert first_difference({"a": 1, "b": 2}, {"b": 2.0, "a": 1}) is None
    assert first_difference({"a": 1}, {"a": True}) == ("a", 1, True)
    assert first_difference({"a": {"b": [1, 2]}}, {"a": {"b": [2, 1]}}) == ("a.b", [1, 2], [2, 1])


WRONG = {
    "party: a\nexperimnt: any": "no such option",
    "party: a\ndata: 3": "data in .*valid dictionary",
    "party: a\nexperiment: missing.yaml": "no such file",
    "party: !!python/object/apply:os.system [ls]": "can't be read",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_party_file_is_named(text, tmp_path):
    with pytest.raises(UserError, match=WRONG[text]):
        kit_in(tmp_path, text)


def test_paths_in_a_party_file_begin_in_its_folder(tmp_path):
    kit = kit_in(tmp_path, "party: a\ndata: {path: table.csv, id: customer}\noutput: out")
    assert kit.data == {"path": str(tmp_path / "table.csv"), "id": "customer"}
    assert kit.output == tmp_path / "out"


def test_a_secret_is_drawn_once(tmp_path):
    kit = kit_in(tmp_path, "party: a")
    draw_secret(tmp_path)
    secret = kit.secret()
    draw_secret(tmp_path)
    assert kit.secret() == secret
    assert len(secret) == 32
    assert stat.S_IMODE((tmp_path / "private" / "secret").stat().st_mode) == 0o600
    assert secret.hex() not in repr(kit)


def test_a_party_with_a_file_of_its_own_names_no_other(tmp_path):
    kit = kit_in(tmp_path, "party: a\ndata: {path: table.csv, delimiter: ;}")
    options = kit.dataset({"_target_": "x", "delimiter": ",", "party_files": {"label": "/etc/passwd"}})
    assert options == {"_target_": "x", "delimiter": ";", "party_files": {"a": str(tmp_path / "table.csv")}}
    assert not kit_in(tmp_path, "party: a").has_file
