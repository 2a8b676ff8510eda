"""A run as a job of NVIDIA FLARE: text that names classes of ours, and no code."""

import json

import pytest

from vflbench.engines.nvflare.engine import CONTROLLER, EXECUTOR, RELAY, write_job

SITE = "vflbench.hosts.sites.PartySite"


def files_of(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def paths_in(content):
    """Every class path that FLARE would build."""
    if isinstance(content, dict):
        yield from ([content["path"]] if isinstance(content.get("path"), str) else [])
        for value in content.values():
            yield from paths_in(value)
    elif isinstance(content, list):
        for value in content:
            yield from paths_in(value)


def test_a_job_is_json_for_each_site_and_ships_no_code(tmp_path):
    run, parties = {"started": {"resolved": {"seed": 1}}}, {"a": {"party": "a"}, "b": {"party": "b"}}
    files = files_of(write_job(tmp_path / "job", run, parties, {"socket": "x"}, SITE))
    assert set(files) == {
        "meta.json",
        *(f"app_server/config/{name}" for name in ("config_fed_server.json", "run.json")),
        *(f"app_{site}/config/{name}" for site in "ab" for name in ("config_fed_client.json", "run.json")),
    }
    content = {name: json.loads(path.read_text()) for name, path in files.items()}
    assert content["meta.json"]["deploy_map"] == {"app_server": ["server"], "app_a": ["a"], "app_b": ["b"]}
    assert content["meta.json"]["mandatory_clients"] == ["a", "b"]
    assert sorted(paths_in(content["app_server/config/config_fed_server.json"])) == sorted([CONTROLLER, RELAY])
    assert sorted(paths_in(content["app_a/config/config_fed_client.json"])) == sorted([EXECUTOR, SITE])


def test_a_site_is_sent_its_own_settings_and_no_other_site_s(tmp_path):
    folder = write_job(tmp_path / "job", {}, {"a": {"table": "A"}, "b": {"table": "B"}}, {"table": "L"}, SITE)
    settings = {app: json.loads((folder / app / "config" / "run.json").read_text())["site"] for app in ("app_a", "app_b")}
    assert settings == {"app_a": {"table": "A"}, "app_b": {"table": "B"}}


def test_a_job_holds_nothing_but_json(tmp_path):
    with pytest.raises((TypeError, ValueError)):
        write_job(tmp_path / "job", {"odd": object()}, {"a": {}}, {}, SITE)


def test_only_the_owner_reads_a_job(tmp_path):
    for path in files_of(write_job(tmp_path / "job", {}, {"a": {}}, {}, SITE)).values():
        assert path.stat().st_mode & 0o077 == 0
