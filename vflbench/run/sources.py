"""Digests of the source of plug-ins, found by reading files: nothing is imported or run."""

import ast
import hashlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from vflbench.results.identity import essential

_OURS = __name__.partition(".")[0]


def plugin_digests(config: Mapping[str, Any], folders: Sequence[Path] = ()) -> dict[str, str]:
    """Dotted module -> SHA-256 of its source, for every class outside vflbench and torch; empty if there is none.

    Classes are named by `_target_`, and by the options bottom and top of a model.

    config: a run's; loggers don't count, as they change no result. folders: the plug-in folders.
    Covers the module of each class, its parent packages, and the modules that these name in imports, from the same
    installed package or from the plug-in folders: what a reader of a manifest looks for. What else a plug-in may import or
    read is part of the run's identity (`run.identity`). A module is read once in a process, as it is imported once. One
    that can't be found is left out: building the class reports it.
    """
    digests: dict[str, str] = {}
    for module in sorted(class_modules(config)):
        digests |= _closure(module, tuple(folders))
    return dict(sorted(digests.items()))


def class_modules(config: Mapping[str, Any]) -> set[str]:
    """The modules of the classes that a configuration names, but for those of vflbench and torch."""
    return {module for path in _class_paths(essential(config)) for module in _modules_of(path)}


def _class_paths(node: Any, name: str = "") -> Iterator[str]:
    """The paths of classes in a configuration."""
    if isinstance(node, Mapping):
        for key in ("_target_", "bottom", "top") if name == "model" else ("_target_",):
            if isinstance(node.get(key), str):
                yield node[key]
        for key, child in node.items():
            yield from _class_paths(child, str(key))
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _class_paths(child)


def _modules_of(path: str) -> Iterator[str]:
    """The module of a.b.Class or a.b:Class, if it is neither ours nor torch's, whose version is recorded."""
    module = path.rpartition(":" if ":" in path else ".")[0]
    if module and module.partition(".")[0] not in (_OURS, "torch"):
        yield module


@cache
def _closure(module: str, folders: tuple[Path, ...]) -> Mapping[str, str]:
    digests: dict[str, str] = {}
    waiting, seen = [module], set()
    while waiting:
        name = waiting.pop()
        spec = find_module(name, folders) if name and name not in seen else None
        seen.add(name)
        if spec is None or not _belongs(spec, module, folders):
            continue
        waiting.append(name.rpartition(".")[0])
        if spec.has_location and spec.origin is not None and Path(spec.origin).is_file():
            source = Path(spec.origin).read_bytes()
            digests[name] = hashlib.sha256(source).hexdigest()
            waiting += _imports(source, spec, folders)
    return digests


def find_module(name: str, folders: tuple[Path, ...]) -> ModuleSpec | None:
    """Where Python would import a module from, without importing its parent packages."""
    top, *below = name.split(".")
    spec = PathFinder.find_spec(top, list(map(str, folders)))
    if spec is None or spec.origin is None:  # a folder without __init__.py gives way to a module
        try:
            spec = importlib.util.find_spec(top) or spec
        except ValueError:  # such as __main__, which has no spec
            return None
    for depth in range(len(below)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join([top, *below[: depth + 1]]), spec.submodule_search_locations)
    return spec


def _belongs(spec: ModuleSpec, module: str, folders: tuple[Path, ...]) -> bool:
    """Whether it lies in a plug-in folder, or in the installed package of `module`."""
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or [])
    if any(Path(place).resolve().is_relative_to(folder.resolve()) for place in places for folder in folders):
        return True
    top = spec.name.partition(".")[0]
    return top == module.partition(".")[0] and top not in sys.stdlib_module_names


def _imports(source: bytes, spec: ModuleSpec, folders: tuple[Path, ...]) -> Iterator[str]:
    """The modules that a source names in its import statements, and in calls such as import_module("name")."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a compiled module, or a mistake that importing it will report
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _absolute("." * level + (module or ""), spec)
                for alias in names if base else ():
                    yield from _submodules(base, folders) if alias.name == "*" else [f"{base}.{alias.name}"]
                yield base
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield _absolute(name, spec)


def _absolute(name: str, spec: ModuleSpec) -> str:
    """A relative name made absolute; empty where it leads out of the package."""
    try:
        return importlib.util.resolve_name(name, spec.parent)
    except ImportError:
        return ""


def _submodules(package: str, folders: tuple[Path, ...]) -> list[str]:
    spec = find_module(package, folders)
    locations = list(spec.submodule_search_locations or []) if spec else []
    return [f"{package}.{module.name}" for module in pkgutil.iter_modules(locations)]
