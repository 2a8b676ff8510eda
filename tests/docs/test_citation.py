"""What the project says of itself in several files is one thing, and its workflows name no registry and hold few rights."""

import json
import re
import tomllib
from pathlib import Path

import yaml

from vflbench import __version__

ROOT = Path(__file__).resolve().parents[2]
OTHERS = [ROOT / "Dockerfile", ROOT / ".devcontainer" / "devcontainer.json", *sorted((ROOT / ".github").rglob("*.*"))]


def test_title_version_and_licence_are_the_same_everywhere():
    citation, zenodo = yaml.safe_load((ROOT / "CITATION.cff").read_text()), json.loads((ROOT / ".zenodo.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["title"] == zenodo["title"] == project["name"]
    assert str(citation["version"]) == zenodo["version"] == __version__
    assert citation["abstract"] == zenodo["description"] == project["description"]
    assert citation["license"] == zenodo["license"] == project["license"]
    assert citation["keywords"] == zenodo["keywords"] == project["keywords"]
    names = [author["name"] for author in project["authors"]]
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in zenodo["creators"]] == names


def test_workflows_begin_without_rights_and_no_file_names_a_registry():
    workflows = [file for file in OTHERS if file.parent.name == "workflows"]
    assert {file.stem for file in workflows} == {"test", "docs", "release", "size"}
    for file in workflows:
        assert yaml.safe_load(file.read_text())["permissions"] == {}, file
        assert all(re.search(r"@(v\d+|release/v\d+|[0-9a-f]{40})$", use) or use.startswith("./") for use in uses(file)), file
    for file in OTHERS:
        assert not re.search(r"index-url|pypi\.org|pythonhosted|ghcr\.io|docker\.io|registry", file.read_text()), file


def uses(file: Path) -> list[str]:
    return re.findall(r"uses: (\S+)", file.read_text())
