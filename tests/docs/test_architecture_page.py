"""The map of the house: names stand in the files that it says, rooms import what it says, each dependency has its reason."""

import re
import tomllib
from pathlib import Path

from test_architecture import PACKAGE, TABLE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explain" / "architecture.md").read_text("utf-8")


def test_every_name_stands_in_the_file_that_the_page_says():
    named = re.findall(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)", PAGE)
    assert len(named) > 20
    for name, file in named:
        text = (PACKAGE / file).read_text("utf-8")
        assert not [part for part in name.split(".") if not re.search(rf"\b(?:class|def) {part}\b", text)], (
            f"{name} in {file}"
        )


def test_the_table_of_rooms_is_that_of_the_imports():
    cells = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*?) ?\|", PAGE, re.MULTILINE))
    for number, (room, may) in enumerate(TABLE.items()):
        above = [*TABLE][:number]
        names = [name for name in above if name != "report"] if "but report" in cells[room] else above
        said = names if cells[room].startswith("all above") else cells[room].split(", ")
        assert sorted(filter(None, said)) == sorted(may.split()), room
    assert sorted(room for room in cells if room in TABLE) == sorted(TABLE)


def test_each_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert wanted == set(re.findall(r"^- ([\w-]+): \w", PAGE, re.MULTILINE))
