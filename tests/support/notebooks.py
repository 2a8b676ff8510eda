"""Notebooks of docs/notebooks, executed."""

from pathlib import Path

import nbformat
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
