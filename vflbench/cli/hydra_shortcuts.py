"""Work that Hydra does again and again, done once: the results are the same. Its private names are used here as in
`hydra_internals`, and tests/cli/test_hydra_shortcuts.py holds the results against Hydra's own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import omegaconf._utils as loading
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vflbench.cli.shared_files import is_ours


@contextmanager
def help_by(text: Callable[[DictConfig, Mapping[str, Sequence[str]]], str]) -> Iterator[None]:
    """While entered, `--help` prints text(config, group -> choices), the config with Hydra's part."""
    original = Hydra.get_help

    def made(self: Hydra, help_cfg: DictConfig, cfg: DictConfig, args_parser: Any, resolve: bool) -> str:
        if "app_name" not in help_cfg:  # --hydra-help
            return original(self, help_cfg, cfg, args_parser, resolve)
        groups = [name for name in self.list_all_config_groups() if name.split("/")[0] != "hydra"]
        choices = {name: self.config_loader.get_group_options(name) for name in groups}
        whole = OmegaConf.merge({"hydra": HydraConfig.get()}, cfg)
        return text(cast(DictConfig, whole), choices)

    Hydra.get_help = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_help = original  # type: ignore[method-assign]


@contextmanager
def shortcuts() -> Iterator[None]:
    """While entered: a run is composed once, `--help` looks once at each folder of configs, libyaml reads our configs."""
    compose, options = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl.get_group_options
    loader = loading.get_yaml_loader
    if isinstance(loader, _Loaders):  # entered already
        yield
        return
    ConfigLoaderImpl.load_configuration = _composed_once(compose)  # type: ignore[method-assign]
    ConfigLoaderImpl.get_group_options = _listed_once()  # type: ignore[method-assign]
    loading.get_yaml_loader = _Loaders(loader)
    try:
        yield
    finally:
        ConfigLoaderImpl.load_configuration = compose  # type: ignore[method-assign]
        ConfigLoaderImpl.get_group_options = options  # type: ignore[method-assign]
        loading.get_yaml_loader = loader


@dataclass
class _Kept:
    """What was composed of these words, or why it could not be."""

    loader: ConfigLoaderImpl
    words: list[str]
    result: DictConfig | Exception

    @property
    def is_lax(self) -> bool:
        """Whether a sweep may do without what a run lacks: a choice that must be made."""
        return isinstance(self.result, Exception) and str(self.result).startswith("You must specify")

    def take(self) -> DictConfig:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def _composed_once(compose: Callable[..., DictConfig]) -> Callable[..., DictConfig]:
    """In place of `load_configuration`. Hydra composes a run to see whether it is a run or a sweep, and then composes it
    again, with that answer as one more word.
    """
    kept: list[_Kept] = []

    def composed(
        self: ConfigLoaderImpl,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        if run_mode is RunMode.MULTIRUN and not validate_sweep_overrides:  # which of both is it?
            kept[:] = [_Kept(self, [str(config_name), *overrides], _strictly(compose, self, config_name, overrides))]
            if kept[0].is_lax:
                kept.clear()
                return compose(self, config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
            return kept[0].take()
        last = kept.pop() if kept else None
        added = f"hydra.mode={run_mode.name}"
        words = [str(config_name), *overrides]
        if last is None or last.loader is not self or words not in (last.words, [*last.words, added]):
            return compose(self, config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
        if validate_sweep_overrides:
            parsed = OverridesParser.create().parse_overrides(overrides)
            self.validate_sweep_overrides_legal(parsed, run_mode, from_shell)
        config = last.take()
        if words != last.words:
            OmegaConf.update(config, "hydra.mode", run_mode)
            config.hydra.overrides.hydra.append(added)
        return config

    return composed


def _strictly(
    compose: Callable[..., DictConfig], loader: ConfigLoaderImpl, name: str | None, words: list[str]
) -> DictConfig | Exception:
    """As of a single run, in which a choice that must be made and isn't is an error."""
    try:
        return compose(loader, name, words, RunMode.RUN, validate_sweep_overrides=False)
    except Exception as error:
        return error


def _listed_once() -> Callable[..., list[str]]:
    """In place of `get_group_options`. To list 60 groups, Hydra copies its repository of configs 126 times."""
    repositories: dict[Any, Any] = {}
    answers: dict[Any, list[str]] = {}

    def listed(
        self: ConfigLoaderImpl,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        asked = self, config_name, tuple(overrides or ())
        question = asked, group_name, results_filter
        if question not in answers:
            if asked not in repositories:
                repositories[asked] = self._parse_overrides_and_create_caching_repo(config_name, list(asked[2]))[1]
            answers[question] = repositories[asked].get_group_options(group_name, results_filter)
        return list(answers[question])

    return listed


class _Loaders:
    """In place of OmegaConf's `get_yaml_loader`. Its loader reads what is not ours, and ours where it is no YAML."""

    def __init__(self, given: Callable[[], Any]):
        self._given = given

    @cached_property
    def _slow(self) -> Any:
        return self._given()

    @cached_property
    def _fast(self) -> Any:
        return _with_libyaml(self._slow) if yaml.__with_libyaml__ else self._slow

    def __call__(self) -> Any:
        return lambda stream: (self._fast if _is_ours(stream) else self._slow)(stream)


def _is_ours(stream: Any) -> bool:
    name = getattr(stream, "name", None)
    return isinstance(name, str) and is_ours(Path(name))


def _with_libyaml(slow: Any) -> Any:
    """A loader that makes of nodes what this one makes of them, and gets them from libyaml, five times as fast."""
    parser: Any = yaml.cyaml.CParser  # type: ignore[attr-defined]

    class Fast(parser, slow):  # type: ignore[misc]
        def __init__(self, stream: Any):
            self._stream = stream
            parser.__init__(self, stream.read())
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

        def get_single_data(self) -> Any:
            try:
                return super().get_single_data()
            except yaml.YAMLError:  # which `slow` tells in more words
                self._stream.seek(0)
                return slow(self._stream).get_single_data()

    return Fast
