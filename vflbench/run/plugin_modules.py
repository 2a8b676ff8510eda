"""Imports modules from the folders given as --plugins DIR: what runs is what the folders' digests stand for."""

import hashlib
import importlib.machinery as machinery
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from vflbench.run.plugin_files import in_use, listing, use

_PACKAGE = Path(__file__).resolve().parents[1]


class EditedPluginError(ImportError):
    """A module differs from what the run's identity says of it."""


def import_from(folders: Sequence[Path]) -> None:
    """Make the modules of these folders importable in this process. They come last on Python's path, and shadow nothing.

    The folders are read now. Raises UserError for one that holds too much.

    Compiled files in `__pycache__` are neither read nor written: Python takes one for its source if it names the source's
    size and second, so that after an edit within that second, or one that keeps the time, the former code would run.
    """
    if not any(getattr(hook, "of_plugins", False) for hook in sys.path_hooks):
        sys.path_hooks.insert(0, _hook)
    use(folders)
    for folder in folders:
        listing(folder)
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    sys.path_importer_cache.clear()  # a folder that was on the path before gets our finder


def checks_its_source(module: ModuleType) -> bool:
    """Whether it was imported here, from a source that was held against its folder's listing."""
    return isinstance(getattr(module, "__loader__", None), _Source)


def _hook(path: str) -> Any:
    """A finder for a plug-in folder or one within; any other is left to Python's own."""
    if _folder_of(Path(path)) is None:
        raise ImportError(f"{path} is in no folder of plug-ins")
    return machinery.FileFinder(
        path,
        (_Extension, machinery.EXTENSION_SUFFIXES),
        (_Source, machinery.SOURCE_SUFFIXES),
        (_Compiled, machinery.BYTECODE_SUFFIXES),
    )


_hook.of_plugins = True  # type: ignore[attr-defined]


class _Source(machinery.SourceFileLoader):
    @property
    def code(self) -> str:
        """A digest of all that its module may depend on: every file in the folders in use."""
        return hashlib.sha256(json.dumps([dict(listing(folder)) for folder in in_use()]).encode()).hexdigest()

    def path_stats(self, path: Any) -> Any:
        raise OSError("no compiled file stands for this source")  # then it is compiled from what `get_data` returns

    def get_data(self, path: str) -> bytes:
        return _as_listed(Path(path), super().get_data(path))


class _Compiled(machinery.SourcelessFileLoader):
    def get_data(self, path: str) -> bytes:
        return _as_listed(Path(path), super().get_data(path))


class _Extension(machinery.ExtensionFileLoader):
    def create_module(self, spec: machinery.ModuleSpec) -> ModuleType:
        _as_listed(Path(self.path), Path(self.path).read_bytes())
        return super().create_module(spec)


def _as_listed(file: Path, content: bytes) -> bytes:
    """The content, if it is that of the folder's listing; else EditedPluginError."""
    folder = _folder_of(file)
    if folder is not None:
        name = (file if file.is_relative_to(folder) else file.resolve()).relative_to(folder).as_posix()
        if listing(folder).get(name) != hashlib.sha256(content).hexdigest():
            how = "was edited since this command began" if name in listing(folder) else "is not among the files that count"
            raise EditedPluginError(f"{name} in {folder} {how}; run the same command again")
    return content


def _folder_of(path: Path) -> Path | None:
    """The plug-in folder that a path lies in as it is written, for links within are part of it; or else as it is."""
    folders = in_use()
    if not folders or path.is_relative_to(_PACKAGE):
        return None
    return next((folder for one in (path, path.resolve()) for folder in folders if one.is_relative_to(folder)), None)
