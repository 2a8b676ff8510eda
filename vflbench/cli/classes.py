"""Names -> classes. Where a module lies is decided from its name, before it is imported: only then may its code run."""

import importlib
import importlib.util
import inspect
import re
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.run.provenance import in_use

_OURS = Path(__file__).resolve().parents[1]
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LONGEST = 200  # characters
_TORCH = "torch.nn"


def refuse_unwritable(path: Any, key: str) -> None:
    """Raise UserError for what is no MODULE.CLASS or MODULE:CLASS, before anything looks for it."""
    if (
        path is not None
        and path != "???"
        and not (isinstance(path, str) and len(path) <= _LONGEST and _PATH.fullmatch(path))
    ):
        raise _absent(" (it is written MODULE:CLASS or MODULE.CLASS)", key, path)


def locate(path: Any, key: str, base: type) -> type:
    """The class at MODULE.CLASS or MODULE:CLASS. Raises UserError unless it is a subclass of `base`; nothing is called.

    The module is one of vflbench's own, or lies in a folder given as --plugins DIR; where a torch module is wanted, the
    classes of torch.nn do as well. No other module is imported.
    """
    refuse_unwritable(str(path), key)
    module_name, _, name = str(path).rpartition(":" if ":" in str(path) else ".")
    folders = (*in_use(), _OURS)
    if not (module_name == _TORCH and base.__module__.startswith(_TORCH)):
        _refuse_elsewhere(module_name, folders, key, path)
    try:
        module = importlib.import_module(module_name)
        cls: Any = getattr(module, name.partition(".")[0], None)
        for part in name.split(".")[1:]:
            cls = getattr(cls, part, None) if inspect.isclass(cls) else None
    except Exception as error:  # whatever a user's module raises when it is imported
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise _absent(f" (no module {error.name})", key, path) from error
        raise UserError(f"can't be imported: {type(error).__name__}: {error}", key=key, value=path) from error
    file = getattr(module, "__file__", None)
    if module_name != _TORCH and (file is None or not _is_within(file, folders)):
        raise _foreign(module_name, key, path)
    if cls is None:
        raise _absent(f" in module {module_name}", key, path)
    if not (inspect.isclass(cls) and issubclass(cls, base) and cls is not base):
        came = "" if inspect.isclass(cls) else f", not a {type(cls).__name__}"
        problem = f"it must be a subclass of {base.__module__}.{base.__qualname__}{came}"
        raise UserError(problem, key=key, value=path)
    if inspect.isabstract(cls):
        raise UserError(f"it lacks {', '.join(sorted(getattr(cls, '__abstractmethods__')))}", key=key, value=path)  # noqa: B009
    return cls


def _refuse_elsewhere(module: str, folders: Sequence[Path], key: str, path: Any) -> None:
    """Follow the name as Python would, through each package, without importing anything."""
    top, *below = module.split(".")
    if any(part.startswith("__") for part in (top, *below)):
        raise _absent(f" in module {module}", key, path)
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # such as __main__, which has no spec
        spec = None
    name = top
    for part in below:
        if spec is None or not _lies_in(spec, folders):
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None:
        raise _absent(f" (no module {name})", key, path)
    if not _lies_in(spec, folders):
        raise _foreign(top, key, path)


def _lies_in(spec: ModuleSpec, folders: Sequence[Path]) -> bool:
    """Whether a module's file, or that of its package, lies in one of the folders; a folder of modules, with any part."""
    if spec.has_location and spec.origin is not None:
        return _is_within(spec.origin, folders)
    return spec.origin is None and any(_is_within(place, folders) for place in spec.submodule_search_locations or ())


def _is_within(file: str, folders: Sequence[Path]) -> bool:
    place = _resolved(Path(file))
    return any(place.is_relative_to(_resolved(folder)) for folder in folders)


@cache
def _resolved(path: Path) -> Path:
    """Of the folders, and of the files in them, each asked for again and again."""
    return path.resolve()


def _places() -> str:
    return "vflbench itself and the folders given as --plugins DIR"


def _absent(detail: str, key: str, path: Any) -> UserError:
    return UserError(f"there is no such class{detail}; classes are imported from {_places()}", key=key, value=path)


def _foreign(module: str, key: str, path: Any) -> UserError:
    line = f"a module in such a folder with `from {module} import ...` makes its classes available"
    return UserError(f"{module} is not imported: classes are imported from {_places()}; {line}", key=key, value=path)
