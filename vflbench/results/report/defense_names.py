"""A name for the defenses of a run, with the options that are not the defaults."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from vflbench.results.runs import Run

OURS = "vflbench.defenses."


def defense_name(run: Run) -> str:
    """Its defenses, each with the options that are not the defaults of its class; `none` without any."""
    named: Mapping[str, Mapping[str, Any]] = run.config.get("defense") or {}
    return " + ".join(_name(name, node) for name, node in named.items()) or "none"


def _name(name: str, node: Mapping[str, Any]) -> str:
    target = str(node.get("_target_", ""))
    if not target.startswith(OURS):
        return name
    module, _, class_name = target.rpartition(".")
    defaults = inspect.signature(getattr(importlib.import_module(module), class_name)).parameters
    changed = [f"{key} {_plain(value)}" for key, value in node.items() if key in defaults and defaults[key].default != value]
    return ", ".join([module.removeprefix(OURS), *changed])


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
