"""vflbench: label leakage and protection in vertical federated and split learning, measured."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.3.0"

_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULE_OF = {name: module for module, name in re.findall(r"^from (vflbench\S*) import (\w+) as", _STUB, re.MULTILINE)}
_MODULE_OF["audit"] = "vflbench.cli.audit"
"""Public name -> its module, which is imported when the name is first used: `import vflbench` imports no torch."""

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
