"""A mistake that all runs of a sweep share, found before the first of them begins."""

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vflbench.cli.hydra_internals import current_config
from vflbench.cli.run_options import build_loggers, build_settings, checked
from vflbench.errors import UserError, shown


def refuse_shared_mistake(configs: Sequence[DictConfig]) -> None:
    """Raise UserError if every run would fail for the same reason, as far as that shows without torch and without data.

    Stops at the first run without a mistake, or with another one. configs: of the runs, composed.
    """
    first: UserError | None = None
    for config in configs:
        mistake = _mistake(config)
        if mistake is None or (first is not None and str(mistake) != str(first)):
            return
        first = first or mistake
    if first is not None:
        _remove_record(configs[0])
        raise first


def _remove_record(config: DictConfig) -> None:
    """Remove what Hydra wrote on the sweep, and the folder if nothing else is in it."""
    with current_config(config), suppress(OSError):
        folder = Path(str(config.hydra.sweep.dir))
        (folder / "multirun.yaml").unlink()
        folder.rmdir()


def _mistake(config: DictConfig) -> UserError | None:
    try:
        with current_config(config):
            options = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
            nodes = checked(options)
            build_settings(nodes)
            build_loggers(nodes)
            if nodes["engine"].get("mode") != "provisioned":  # where each party reads its own files, on its host
                _check_files(options.get("dataset"))
    except UserError as error:
        return error
    except Exception:  # whatever it is, the run itself reports it
        return None
    return None


def _check_files(node: Any) -> None:
    """Raise UserError for a file of a data set of ours that isn't there. node: options of the data set."""
    if not OmegaConf.is_dict(node) or not str(node.get("_target_")).startswith("vflbench."):
        return
    for name in ("path", "party_files"):
        for key, word in _words(f"dataset.{name}", node.get(name)):
            if word.strip() and not glob.has_magic(word) and not os.path.lexists(os.path.expanduser(word)):
                problem = f"there is no such file or folder (looked in {shown(Path.cwd(), 200)})"
                raise UserError(problem, key=key, value=word)


def _words(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in an option, with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping) or OmegaConf.is_dict(value):
        for name, part in value.items():
            yield from _words(f"{key}.{name}", part)
    elif value is not None:
        for part in value:
            yield from _words(key, part)
