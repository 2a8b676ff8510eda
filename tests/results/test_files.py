"""One module names the files of a run's folder."""

import ast
from pathlib import Path

import vflbench
from vflbench.results import folder

PACKAGE = Path(vflbench.__file__).parent
OTHERS = {"results/folder.py", "messages/manifest.py"}
"""The one that names them, and the one on the files of a recording, which has a manifest as well."""


def test_no_other_module_spells_a_name():
    names = {value for name, value in vars(folder).items() if name.isupper() and isinstance(value, str)}
    names = {name for name in names if "." in name.strip(".")}
    assert names >= {"summary.json", "metrics.csv", "manifest.json", "config.yaml", "error.txt", "checkpoint.pt"}
    spelled = [
        f"{module.relative_to(PACKAGE)}: {node.value}"
        for module in sorted(PACKAGE.rglob("*.py"))
        if module.relative_to(PACKAGE).as_posix() not in OTHERS
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert spelled == []
