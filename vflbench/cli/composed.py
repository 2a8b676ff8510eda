"""The configs of a sweep's runs, each composed only once."""

import pickle  # nosec  (of what was composed here)
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from vflbench.cli.hydra_internals import override_dirname

_MOST_EXAMPLES = 100


class Composed:
    """Wraps Hydra's config loader, and keeps each config that a sweeper composes until a launcher takes it.

    Hydra composes every run twice, once to check it and once to launch it, and reads the same files each time. That is most
    of the time that skipping a finished run takes. Here the config of a run that differs from an earlier one only in plain
    values (seed=3 for seed=2) is a copy of that one with these values set.

    first: called once with the first config, a copy, before others are composed.
    """

    def __init__(self, loader: Any, first: Callable[[DictConfig], object] | None = None):
        self._loader, self._first = loader, first
        self._kept: dict[tuple[str, ...], DictConfig] = {}
        self._examples: dict[tuple[str, ...], list[_Example]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """As Hydra's own loader does it, and kept for `take`."""
        words = tuple(sweep_overrides)
        config = self._derive(words)
        if config is None:
            config = self._loader.load_sweep_config(master_config, list(words))
            examples = self._examples.setdefault(_keys(words), [])
            examples.append(_Example(words, pickle.dumps(config)))
            del examples[:-_MOST_EXAMPLES]
            if self._first is not None:
                self._first(pickle.loads(examples[-1].pickled))  # nosec  (made in the line before last)
                self._first = None
        self._kept[words] = config
        return config

    def take(self, master_config: DictConfig, overrides: list[str]) -> DictConfig:
        """The config of a run, which the caller may change."""
        words = tuple(overrides)
        config = self._kept.pop(words, None) or self._derive(words)
        return self._loader.load_sweep_config(master_config, overrides) if config is None else config

    def _derive(self, words: tuple[str, ...]) -> DictConfig | None:
        """A copy of a config that was composed for the same keys; None if more than plain values differ."""
        for example in reversed(self._examples.get(_keys(words), [])):
            if (changed := example.plain_changes(words)) is not None:
                return example.changed(words, changed)
        return None


class _Example:
    """A composed config, pickled, which is a quick way to copy it; and the words that it was composed of."""

    def __init__(self, words: tuple[str, ...], pickled: bytes):
        self.words, self.pickled = words, pickled
        self._config: DictConfig = pickle.loads(pickled)  # nosec  (made above)

    def plain_changes(self, words: tuple[str, ...]) -> dict[str, Override] | None:
        """Word of the example -> the override in its place; None where more than plain values differ."""
        differing = [(old, new) for old, new in zip(self.words, words, strict=True) if old != new]
        mappings = (
            [parsed(word).key_or_group for word in words if isinstance(parsed(word).value(), dict)] if differing else []
        )
        for _, new in differing:
            key = parsed(new).key_or_group
            if not _is_plain(parsed(new), self._config) or any(key.startswith(f"{mapping}.") for mapping in mappings):
                return None
        return {old: parsed(new) for old, new in differing}

    def changed(self, words: tuple[str, ...], changes: Mapping[str, Override]) -> DictConfig | None:
        """A copy with these changes; None where Hydra refuses one, and says it better."""
        config: DictConfig = pickle.loads(self.pickled)  # nosec  (made above)
        try:
            for override in changes.values():
                OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException:
            return None
        with read_write(config.hydra), open_dict(config.hydra):
            task = [changes[word].input_line if word in changes else word for word in config.hydra.overrides.task]
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
