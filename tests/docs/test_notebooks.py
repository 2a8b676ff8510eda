"""The notebooks of the documentation run, and find what their text says."""

import re

import pytest
from support import notebooks

NAMES = [file.stem for file in sorted(notebooks.NOTEBOOKS.glob("*.ipynb"))]


def test_there_are_two():
    assert NAMES == ["audit_your_own_loop", "compare_defenses"]


@pytest.mark.slow
def test_compare_defenses(tmp_path):
    done = notebooks.execute(notebooks.NOTEBOOKS / "compare_defenses.ipynb", tmp_path)
    lines = re.findall(r"^(\w+) +(\w+) +(\d\.\d{3})$", notebooks.printed(done), re.MULTILINE)
    read = {(defense, attack): float(value) for defense, attack, value in lines}
    assert read["none", "direct"] > 0.99
    assert read["max_norm", "norm"] < read["none", "norm"] - 0.1
    assert read["max_norm", "posterior"] > 0.9
    assert max(value for (defense, _), value in read.items() if defense == "label_gdp") < 0.85
    assert any("image/png" in output.get("data", {}) for cell in done.cells for output in cell.get("outputs", []))


@pytest.mark.slow
def test_audit_your_own_loop(tmp_path):
    said = notebooks.printed(notebooks.execute(notebooks.NOTEBOOKS / "audit_your_own_loop.ipynb", tmp_path))
    lines = re.findall(r"^(\w+) +(?:gradient|embedding) +cut +(\d\.\d{3})$", said, re.MULTILINE)
    read = {name: float(value) for name, value in lines}
    assert set(read) == {"norm", "spectral", "gradients", "push"}
    assert read["push"] > 0.95
