"""Where vflbench was installed from."""

import json
from importlib import metadata

import pytest

from vflbench.places import pip_install


class Installed:
    def __init__(self, direct):
        self.direct = direct

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.direct


def test_an_extra_is_installed_from_where_the_rest_came_from(tmp_path, monkeypatch):
    wheel = tmp_path / "my files" / "vflbench-0.3.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    direct = json.dumps({"url": wheel.as_uri(), "archive_info": {}})
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(direct))
    assert pip_install("slurm") == f"pip install '{wheel}[slurm]'"
    wheel.unlink()
    assert pip_install("slurm") == "pip install './vflbench-0.3.0-py3-none-any.whl[slurm]'"


def test_an_extra_of_a_checkout(tmp_path, monkeypatch):
    direct = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(json.dumps(direct)))
    assert pip_install("fast") == f"pip install -e '{tmp_path}[fast]'"


@pytest.mark.parametrize("direct", [None, '{"url": "https://example.org/vflbench.whl"}'])
def test_an_extra_by_name(monkeypatch, direct):
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(direct))
    assert pip_install("slurm") == "pip install 'vflbench[slurm]'"


def test_without_an_installation(monkeypatch):
    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert pip_install("slurm") == "pip install 'vflbench[slurm]'"
