"""The notebooks of the documentation run, and find what their text says."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOKS = Path(__file__).resolve().parents[2] / "docs" / "notebooks"


def execute(file: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook as it is after all cells ran, in this folder. Raises CellExecutionError."""
    notebook = nbformat.read(file, as_version=4)
    sockets = Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})  # files, and no ports
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where, config=sockets).execute()
    return notebook


def printed(notebook: nbformat.NotebookNode) -> str:
    """All text output."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.slow
def test_compare_defenses(tmp_path):
    done = execute(NOTEBOOKS / "compare_defenses.ipynb", tmp_path)
    lines = re.findall(r"^(\w+) +(\w+) +(\d\.\d{3})$", printed(done), re.MULTILINE)
    read = {(defense, attack): float(value) for defense, attack, value in lines}
    assert read["none", "direct"] > 0.99
    assert read["max_norm", "norm"] < read["none", "norm"] - 0.1
    assert read["max_norm", "posterior"] > 0.9
    assert max(value for (defense, _), value in read.items() if defense == "label_gdp") < 0.85
    assert any("image/png" in output.get("data", {}) for cell in done.cells for output in cell.get("outputs", []))


@pytest.mark.slow
def test_audit_your_own_loop(tmp_path):
    said = printed(execute(NOTEBOOKS / "audit_your_own_loop.ipynb", tmp_path))
    lines = re.findall(r"^(\w+) +(?:gradient|embedding) +cut +(\d\.\d{3})$", said, re.MULTILINE)
    read = {name: float(value) for name, value in lines}
    assert set(read) == {"norm", "spectral", "gradients", "push"}
    assert read["push"] > 0.95
