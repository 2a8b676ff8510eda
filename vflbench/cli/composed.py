"""The configs of a sweep's runs, each composed only once."""

import copy
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from vflbench.cli.hydra_internals import override_dirname


class Composed:
    """Wraps Hydra's config loader, and keeps each config that a sweeper composes until a launcher takes it.

    Hydra composes every run twice, once to check it and once to launch it, and reads the same files each time. That is most
    of the time that skipping a finished run takes. Here the config of a run that differs from an earlier one only in plain
    values (seed=3 for seed=2) is a copy of that one with these values set.
    """

    def __init__(self, loader: Any):
        self._loader = loader
        self._kept: dict[tuple[str, ...], DictConfig] = {}
        self._examples: dict[tuple[str, ...], tuple[tuple[str, ...], DictConfig]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """As Hydra's own loader does it, and kept for `take`."""
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
        """A copy of a config that was composed for the same keys; None if more than plain values differ."""
        if _keys(words) not in self._examples:
            return None
        example_words, example = self._examples[_keys(words)]
        changed = {old: parsed(new) for old, new in zip(example_words, words, strict=True) if old != new}
        mappings = [parsed(word).key_or_group for word in words if isinstance(parsed(word).value(), dict)]
        for override in changed.values():
            key = override.key_or_group
            if not _is_plain(override, example) or any(key.startswith(f"{mapping}.") for mapping in mappings):
                return None
        config = copy.deepcopy(example)
        try:
            for override in changed.values():
                OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException:  # Hydra's own message is better
            return None
        with read_write(config.hydra), open_dict(config.hydra):
            task = [changed[word].input_line if word in changed else word for word in config.hydra.overrides.task]
            config.hydra.overrides.task = task
            config.hydra.job.override_dirname = override_dirname(config, [parsed(word) for word in task])
        return config


@cache
def parsed(word: str) -> Override:
    """One override of the command line."""
    return OverridesParser.create().parse_override(word)


def _keys(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.partition("=")[0] for word in words)


def _is_plain(override: Override, config: DictConfig) -> bool:
    """Whether it replaces the value of one option by a number, truth value or text, and chooses no group."""
    key, value = override.key_or_group, override.value()
    above, _, name = key.rpartition(".")
    if override.type is not OverrideType.CHANGE or override.package is not None or key.split(".")[0] == "hydra":
        return False
    if name in ("name", "_target_", "uri", "bottom", "top"):  # which the trust boundary looks at
        return False
    if not isinstance(value, int | float | str) or "${" in str(value):
        return False
    parent = OmegaConf.select(config, above) if above else config
    if not OmegaConf.is_dict(parent) or name not in parent.keys():  # noqa: SIM118  (`in parent` is false for missing values)
        return False
    has_value = not OmegaConf.is_missing(parent, name) and not OmegaConf.is_interpolation(parent, name)
    return not (has_value and OmegaConf.is_config(parent[name]))
