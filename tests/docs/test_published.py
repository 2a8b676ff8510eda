"""docs/experiments/published.md and the experiments: every value of the documents that has a counterpart is there."""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vflbench.report.published import read_experiments

PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "published.md"


WITHOUT_COUNTERPART = {("000", "timing"), ("004", "log")}
"""A trace of TensorFlow's operations, and losses of a run whose eps, batch size and kind of loss are not printed."""


def numbers_in(content: Any) -> Iterator[float]:
    """Every number of a text, a list or a mapping, however deep."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list | tuple):
        for part in content:
            yield from numbers_in(part)
    elif isinstance(content, str):
        yield from (float(word) for word in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", content.replace(",", " ")))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield float(content)


@pytest.fixture(scope="module")
def published():
    """Document -> what it prints. These files lie beside the data, where they are there."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("VFLBENCH_DATA", default)).resolve().parent / "published"
    if not folder.is_dir():
        pytest.skip("the published values are not beside the data")
    return {file.name[:3]: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def test_the_page_shows_every_published_value(published):
    """Of each table, figure and claim that has a counterpart, in the chapter of its document."""
    chapters = {chapter[:3]: chapter for chapter in PAGE.read_text().split("\n## ")[1:]}
    assert sorted(chapters) == sorted(published)
    for name, document in published.items():
        there = Counter(numbers_in(chapters[name].translate(str.maketrans(dict.fromkeys("|;:()[]`=<>%", " ")))))
        parts = (*document["tables"], *document["figures"], *document["claims"])
        for part in (one for one in parts if (name, one.get("id")) not in WITHOUT_COUNTERPART):
            missing = {number for key in ("rows", "values") for number in numbers_in(part.get(key)) if not there[number]}
            assert not missing, (name, part.get("id", part.get("claim")))


def test_the_experiments_have_every_value_that_is_listed_for_them(published):
    experiments = read_experiments()
    held = [value.number for experiment in experiments.values() for value in experiment.values if value.number is not None]
    for document in published.values():
        for name in document["experiments"].keys() & experiments.keys():
            for number in (value["number"] for value in document["experiments"][name]):
                assert number is None or any(math.isclose(number, ours) for ours in held), name
