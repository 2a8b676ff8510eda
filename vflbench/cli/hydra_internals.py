"""What vflbench uses of Hydra and OmegaConf beyond their public names: all of it is in this module.

tests/cli/test_hydra_internals.py says which of these names a new version has changed.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_loader_impl import get_overrides_dirname
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

Wrap = Callable[[Launcher, HydraContext, DictConfig], Launcher]


@contextmanager
def wrapped_launchers(wrap: Wrap) -> Iterator[None]:
    """While entered, sweepers get wrap(launcher, context, config) in place of each launcher.

    Hydra has no public way to do this: a launcher plugin can't wrap the one that the user chose.
    """
    original = Plugins.instantiate_launcher

    def instantiate(self: Plugins, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
        launcher = original(self, hydra_context=hydra_context, task_function=task_function, config=config)
        return wrap(launcher, hydra_context, config)

    Plugins.instantiate_launcher = instantiate  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plugins.instantiate_launcher = original  # type: ignore[method-assign]


def returned_value(returned: JobReturn) -> Any:
    """What a job returned, or the exception that it raised; `return_value` would raise it, and print a line."""
    return returned._return_value


def override_dirname(config: DictConfig, overrides: Sequence[Override]) -> str:
    """The value of `hydra.job.override_dirname` for these overrides."""
    form = config.hydra.job.config.override_dirname
    return get_overrides_dirname(
        overrides=list(overrides), kv_sep=form.kv_sep, item_sep=form.item_sep, exclude_keys=form.exclude_keys
    )


@contextmanager
def current_config(config: DictConfig) -> Iterator[None]:
    """While entered, `${hydra:...}` refers to this configuration."""
    instance = HydraConfig.instance()
    before = instance.cfg
    instance.set_config(config)
    try:
        yield
    finally:
        instance.cfg = before


def joblib_options(launcher: Launcher) -> MutableMapping[str, Any] | None:
    """The options that joblib's launcher passes to joblib.Parallel, `n_jobs` among them; None for other launchers."""
    options = getattr(launcher, "joblib", None)
    return options if isinstance(options, MutableMapping) and "n_jobs" in options else None


def starts_all_at_once(launcher: Launcher) -> bool:
    """Whether it is submitit's launcher of local processes, which starts all jobs of a batch together."""
    return type(launcher).__name__ == "LocalLauncher"
