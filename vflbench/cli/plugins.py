"""`--plugins DIR`: folders of the user's with Python modules and, in subfolders named after groups, configs."""

import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.errors import UserError
from vflbench.run.provenance import import_from

if TYPE_CHECKING:
    from omegaconf import DictConfig

FLAG = "--plugins"
PROVIDER = f"vflbench {FLAG}"
"""Under this name Hydra lists the folders in `hydra.runtime.config_sources`, where workers of sweeps find them."""

searched: list[Path] = []
"""The folders in which Hydra looks for configs, after vflbench's own (`guard.PluginConfigs`)."""


def split_plugins(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The folders that a command line names by --plugins DIR or --plugins=DIR, and its other words."""
    named, others = [], []
    remaining = iter(words)
    for word in remaining:
        if word == FLAG:
            folder = next(remaining, "")
            if not folder or folder.startswith("-"):
                raise UserError("it must be followed by a folder", key=FLAG)
            named.append(folder)
        elif word.startswith(f"{FLAG}="):
            named.append(word.removeprefix(f"{FLAG}="))
        else:
            others.append(word)
    return named, others


def use_plugins(named: Sequence[str]) -> list[Path]:
    """Make the modules of these folders importable, and the folders config folders of Hydra's. Returns them.

    They come last on Python's path, so that they shadow nothing. Raises UserError for a folder that doesn't exist, and for a
    module that couldn't be imported because another has its name.
    """
    folders = []
    for name in named:
        folder = Path(os.path.expanduser(name))
        if not name or not folder.is_dir():
            raise UserError("there is no such folder", key=FLAG, value=name)
        folders.append(folder.resolve())
    folders = list(dict.fromkeys(folders))
    _refuse_taken_names(folders)
    import_from(folders)
    searched[:] = folders
    return folders


def recorded_folders(config: "DictConfig") -> tuple[Path, ...]:
    """The plug-in folders of a run, in this process or in a worker of a sweep, from its `hydra` options.

    config: a run's; where Hydra has taken the `hydra` options out of it, those of the present job are used.
    """
    from hydra.core.hydra_config import HydraConfig  # late: a list of choices needs no Hydra
    from omegaconf import OmegaConf

    sources = OmegaConf.select(config, "hydra.runtime.config_sources")
    if sources is None and HydraConfig.initialized():
        sources = HydraConfig.get().runtime.config_sources
    return tuple(Path(source.path) for source in sources or () if source.provider == PROVIDER)


def _refuse_taken_names(folders: Sequence[Path]) -> None:
    holders: dict[str, str] = {}
    for folder in folders:
        for module in pkgutil.iter_modules([str(folder)]):
            holder = holders.get(module.name) or _other_holder(module.name, folders)
            if holder and not module.name.startswith("__"):  # such as __main__, which nobody imports
                problem = f"its module {module.name} has the name of a module of {holder}, which would be imported instead"
                raise UserError(f"{problem}; rename it", key=FLAG, value=folder)
            holders[module.name] = str(folder)


def _other_holder(name: str, folders: Sequence[Path]) -> str:
    """Where Python has a module of this name outside the folders; empty if nowhere."""
    if name in sys.stdlib_module_names:
        return "Python's standard library"
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec
        return "a running program"
    if spec is None or spec.origin is None:  # a folder without __init__.py gives way to a module
        return ""
    origin = Path(spec.origin).resolve()
    return "" if any(origin.is_relative_to(folder) for folder in folders) else str(origin.parent)
