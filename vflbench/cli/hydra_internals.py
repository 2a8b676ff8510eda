"""What vflbench uses of Hydra and OmegaConf beyond their public names: all of it is in this module.

tests/cli/test_hydra_internals.py says which of these names a new version has changed.
"""

import argparse
import importlib
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra.version import setbase
from omegaconf import DictConfig, OmegaConf

from vflbench.errors import UserError

Wrap = Callable[[Launcher, HydraContext, DictConfig], Launcher]
Make = Callable[[dict[Any, Any]], Launcher]


@contextmanager
def wrapped_launchers(wrap: Wrap, own: Mapping[str, Make]) -> Iterator[None]:
    """While entered, sweepers get wrap(launcher, context, config) in place of each launcher.

    own: class of a launcher of ours -> what makes one from its options. To Hydra, only what lies in the package
    hydra_plugins is a launcher, and no launcher plugin can wrap the one that the user chose.
    """
    original = Plugins.instantiate_launcher

    def instantiate(self: Plugins, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
        chosen = OmegaConf.to_container(config.hydra.launcher, resolve=True)
        if isinstance(chosen, dict) and (make := own.get(str(chosen.pop("_target_", "")))):
            launcher = make(chosen)
            launcher.setup(hydra_context=hydra_context, task_function=task_function, config=config)
        else:
            launcher = original(self, hydra_context=hydra_context, task_function=task_function, config=config)
        return wrap(launcher, hydra_context, config)

    Plugins.instantiate_launcher = instantiate  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plugins.instantiate_launcher = original  # type: ignore[method-assign]


@contextmanager
def when_launching(entered: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """While entered, `entered()` is entered as soon as a sweeper asks for a launcher, and left with this one."""
    original = Plugins.instantiate_launcher
    with ExitStack() as stack:

        def instantiate(self: Plugins, *arguments: Any, **named: Any) -> Launcher:
            Plugins.instantiate_launcher = original  # type: ignore[method-assign]
            stack.enter_context(entered())
            return self.instantiate_launcher(*arguments, **named)

        stack.callback(setattr, Plugins, "instantiate_launcher", original)
        Plugins.instantiate_launcher = instantiate  # type: ignore[method-assign]
        yield


def returned_value(returned: JobReturn) -> Any:
    """What a job returned, or the exception that it raised; `return_value` would raise it, and print a line."""
    return returned._return_value


def run_composed(config: DictConfig, task: TaskFunction) -> JobReturn:
    """Run a job of a sweep whose config is there, as Hydra's own launchers do, where no config is read any more."""
    setup_globals()
    setbase("1.3")  # as `hydra.main` and `initialize_config_dir` are told
    context = HydraContext(config_loader=cast(Any, None), callbacks=Callbacks())
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


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
    before, readonly = instance.cfg, OmegaConf.is_readonly(config.hydra)
    instance.set_config(config)  # which makes its `hydra` read-only
    try:
        yield
    finally:
        instance.cfg = before
        OmegaConf.set_readonly(config.hydra, readonly)


def joblib_options(launcher: Launcher) -> MutableMapping[str, Any] | None:
    """The options that joblib's launcher passes to joblib.Parallel, `n_jobs` among them; None for other launchers."""
    options = getattr(launcher, "joblib", None)
    return options if isinstance(options, MutableMapping) and "n_jobs" in options else None


def starts_all_at_once(launcher: Launcher) -> bool:
    """Whether it is submitit's launcher of local processes, which starts all jobs of a batch together."""
    return type(launcher).__name__ == "LocalLauncher"


def is_submitits(launcher: Launcher) -> bool:
    """Whether it is one of hydra-submitit-launcher's."""
    return type(launcher).__module__ == "hydra_plugins.hydra_submitit_launcher.submitit_launcher"


@contextmanager
def executor_of_submitit(executor: type) -> Iterator[None]:
    """While entered, hydra-submitit-launcher submits by this class in place of submitit.AutoExecutor."""
    module: Any = importlib.import_module("submitit")
    before = module.AutoExecutor
    module.AutoExecutor = executor
    try:
        yield
    finally:
        module.AutoExecutor = before


def flags_of(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's own flags on a command line, also where they are abbreviated; `unknown`: others. Raises ArgumentError."""
    parser = get_args_parser()
    parser.exit_on_error = False
    flags, unknown = parser.parse_known_args(list(words))
    return argparse.Namespace(**vars(flags), unknown=unknown)


def keep_jobs_apart(launcher: Launcher) -> None:
    """submitit unpickles what its jobs leave in a folder: one of a new name, in which nobody has put a file before."""
    params = getattr(launcher, "params", None)
    if isinstance(params, dict) and "submitit_folder" in params:
        above, percent, number = str(params["submitit_folder"]).partition("%")
        params["submitit_folder"] = str(Path(above, secrets.token_hex(8), f"{percent}{number}"))


@dataclass(frozen=True)
class Rules:
    """What Hydra may compose: each function raises for what it may not.

    words: of the overrides. file: of a folder of configs and a file in it, before it is read. is_ours: whether a file needs
    no check. shared: of a file's name and its options where Hydra places them. composed: of the whole.
    """

    words: Callable[[Sequence[str]], None]
    file: Callable[[Path, Path], None]
    is_ours: Callable[[Path], bool]
    shared: Callable[[str, Any], None]
    composed: Callable[[DictConfig], None]


_guards: list[Rules] = []
_MOST_LOOKS = 1_000  # at configs, in one composition


@contextmanager
def guarded_composition(rules: Rules) -> Iterator[None]:
    """While entered, Hydra composes nothing that the rules refuse.

    Hydra looks for a config in CachingConfigRepository, reads it in ConfigRepository.load_config, places it in
    ConfigLoaderImpl._load_single_config, and adds packages to its search path in _parse_overrides_and_create_caching_repo;
    it acts on what load_configuration returns.
    """
    if _guards:
        yield
        return
    load_config, place = ConfigRepository.load_config, ConfigLoaderImpl._load_single_config
    parse, compose = ConfigLoaderImpl._parse_overrides_and_create_caching_repo, ConfigLoaderImpl.load_configuration
    look, looks = CachingConfigRepository.load_config, [0]

    def guarded_load(self: ConfigRepository, config_path: str) -> Any:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is not None and source.scheme() == "file":
            rules.file(Path(source.path), _file_of(source, config_path))
        elif source is not None and source.scheme() == "pkg" and not _is_hydras(source.path):
            raise UserError("configs are not read from packages", key=config_path, value=source.path)
        return load_config(self, config_path)

    def guarded_look(self: CachingConfigRepository, config_path: str) -> Any:
        looks[0] += 1
        if looks[0] > _MOST_LOOKS:
            problem = f"configs include each other more than {_MOST_LOOKS:,} times"
            raise UserError(problem, key="defaults", value=config_path)
        return look(self, config_path)

    def guarded_place(self: ConfigLoaderImpl, default: Any, repo: Any) -> Any:
        result = place(self, default, repo)
        if str(result.path).startswith("file://"):
            source = Path(str(result.path).removeprefix("file://"))
            file = Path(source, f"{str(default.config_path).removesuffix('.yaml')}.yaml")
            if not rules.is_ours(file):
                rules.shared(str(file), result.config)
        return result

    def guarded_parse(self: ConfigLoaderImpl, config_name: str | None, overrides: list[str]) -> Any:
        rules.words(overrides)
        looks[0] = 0
        return parse(self, config_name, overrides)

    def guarded_compose(self: ConfigLoaderImpl, *args: Any, **kwargs: Any) -> DictConfig:
        config = compose(self, *args, **kwargs)
        rules.composed(config)
        return config

    _guards.append(rules)
    ConfigRepository.load_config = guarded_load  # type: ignore[method-assign]
    CachingConfigRepository.load_config = guarded_look  # type: ignore[method-assign]
    ConfigLoaderImpl._load_single_config = guarded_place  # type: ignore[method-assign]
    ConfigLoaderImpl._parse_overrides_and_create_caching_repo = guarded_parse  # type: ignore[method-assign]
    ConfigLoaderImpl.load_configuration = guarded_compose  # type: ignore[method-assign]
    try:
        yield
    finally:
        _guards.clear()
        ConfigRepository.load_config = load_config  # type: ignore[method-assign]
        CachingConfigRepository.load_config = look  # type: ignore[method-assign]
        ConfigLoaderImpl._load_single_config = place  # type: ignore[method-assign]
        ConfigLoaderImpl._parse_overrides_and_create_caching_repo = parse  # type: ignore[method-assign]
        ConfigLoaderImpl.load_configuration = compose  # type: ignore[method-assign]


def _file_of(source: Any, config_path: str) -> Path:
    return Path(source.path, source._normalize_file_name(config_path))


def _is_hydras(package: str) -> bool:
    return package == "hydra.conf" or package.startswith("hydra_plugins.")
