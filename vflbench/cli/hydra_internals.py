"""What vflbench uses of Hydra and OmegaConf beyond their public names: all of it is in this module.

tests/cli/test_hydra_internals.py says which of these names a new version has changed.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from omegaconf import DictConfig, OmegaConf

from vflbench.errors import UserError


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


def flags_of(words: Sequence[str]) -> argparse.Namespace:
    """Hydra's own flags on a command line, also where they are abbreviated; `unknown`: others. Raises ArgumentError."""
    parser = get_args_parser()
    parser.exit_on_error = False
    flags, unknown = parser.parse_known_args(list(words))
    return argparse.Namespace(**vars(flags), unknown=unknown)


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
