"""A run as a job of NVIDIA FLARE: text that names classes of ours, and no code."""

import json

import pytest

from vflbench.engines.nvflare import CONTROLLER, EXECUTOR, RELAY, write_job

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


def test_a_job_is_json_for_each_site_with_its_own_settings_for_its_owner_alone_and_ships_no_code(tmp_path):
    run, parties = {"started": {"resolved": {"seed": 1}}}, {"a": {"party": "a"}, "b": {"party": "b"}}
    files = files_of(write_job(tmp_path / "job", run, parties, {"socket": "x"}, SITE))
    assert set(files) == {
        "meta.json",
        *(f"app_server/config/{name}" for name in ("config_fed_server.json", "run.json")),
        *(f"app_{site}/config/{name}" for site in "ab" for name in ("config_fed_client.json", "run.json")),
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.values())
    content = {name: json.loads(path.read_text()) for name, path in files.items()}
    assert {app: content[f"app_{app}/config/run.json"]["site"] for app in parties} == parties
    assert content["meta.json"]["deploy_map"] == {"app_server": ["server"], "app_a": ["a"], "app_b": ["b"]}
    assert content["meta.json"]["mandatory_clients"] == ["a", "b"]
    assert sorted(paths_in(content["app_server/config/config_fed_server.json"])) == sorted([CONTROLLER, RELAY])
    assert sorted(paths_in(content["app_a/config/config_fed_client.json"])) == sorted([EXECUTOR, SITE])


def test_a_job_holds_nothing_but_json(tmp_path):
    with pytest.raises((TypeError, ValueError)):
        write_job(tmp_path / "job", {"odd": object()}, {"a": {}}, {}, SITE)
