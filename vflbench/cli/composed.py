"""The configs of a sweep's runs, composed once and quickly."""

import copy
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException


class Composed:
    """Hydra's config loader, which keeps what a sweeper had it compose until a launcher takes it.

    Hydra composes every run twice, to see that it can be and to launch it, and reads the same files each time: most of the
    time in which a finished run is skipped. Here a run whose options differ from those of one composed before by plain
    values (seed=3 for seed=2) is a copy with these values set.
    """

    def __init__(self, loader: Any):
        self._loader = loader
        self._kept: dict[tuple[str, ...], DictConfig] = {}
        self._examples: dict[tuple[str, ...], tuple[tuple[str, ...], DictConfig]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        words = tuple(sweep_overrides)
        config = self._derive(words)
        if config is None:
            config = self._loader.load_sweep_config(master_config, list(words))
            self._examples[_keys(words)] = words, copy.deepcopy(config)
        self._kept[words] = config
        return config

    def take(self, master_config: DictConfig, overrides: list[str]) -> DictConfig:
        """The config of a run, which the caller may change."""
        config = self._kept.pop(tuple(overrides), None)
        return self._loader.load_sweep_config(master_config, overrides) if config is None else config

    def _derive(self, words: tuple[str, ...]) -> DictConfig | None:
        """A copy of a config that was composed for the same keys; None where not all that differs is a plain value."""
        if _keys(words) not in self._examples:
            return None
        known, example = self._examples[_keys(words)]
        changed = {old: parsed(new) for old, new in zip(known, words, strict=True) if old != new}
        mappings = [parsed(word).key_or_group for word in words if isinstance(parsed(word).value(), dict)]
        for override in changed.values():
            key = override.key_or_group
            if not _is_plain(override, example) or any(key.startswith(f"{mapping}.") for mapping in mappings):
                return None
        config = copy.deepcopy(example)
        try:
            for override in changed.values():
                OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException:  # Hydra says it better
            return None
        with read_write(config.hydra), open_dict(config.hydra):
            told = [changed[word].input_line if word in changed else word for word in config.hydra.overrides.task]
            config.hydra.overrides.task = told
            config.hydra.job.override_dirname = _dirname(config, [parsed(word) for word in told])
        return config


@cache
def parsed(word: str) -> Override:
    """One override of the command line."""
    return OverridesParser.create().parse_override(word)


def _keys(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.partition("=")[0] for word in words)


def _is_plain(override: Override, config: DictConfig) -> bool:
    """Whether it gives a new number, truth value or text to an option that has such a value, and chooses no group."""
    key, value = override.key_or_group, override.value()
    above, _, name = key.rpartition(".")
    if override.type is not OverrideType.CHANGE or override.package is not None or key.split(".")[0] == "hydra":
        return False
    if not isinstance(value, int | float | str) or "${" in str(value):
        return False
    parent = OmegaConf.select(config, above) if above else config
    return OmegaConf.is_dict(parent) and name in parent._content and not OmegaConf.is_config(parent._get_node(name))


def _dirname(config: DictConfig, overrides: list[Override]) -> str:
    """As Hydra makes `hydra.job.override_dirname`."""
    from hydra._internal.config_loader_impl import get_overrides_dirname

    form = config.hydra.job.config.override_dirname
    return get_overrides_dirname(
        overrides=overrides, kv_sep=form.kv_sep, item_sep=form.item_sep, exclude_keys=form.exclude_keys
    )
