"""`hydra/sweeper=runs`: which runs a sweep has."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from vflbench.errors import UserError


class RunsSweeper(Sweeper):
    """Each entry of `runs` with each combination of the values of `params` and of the command line.

    params: option -> values, separated by commas. runs: lists of options that go together, such as a defense and its
    strength. An option on the command line takes the place of the same one here.
    """

    def __init__(self, params: Mapping[str, Any] | None = None, runs: Sequence[Sequence[str]] | None = None):
        self.params, self.runs = params or {}, runs or ()
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all runs."""
        assert self.launcher is not None
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        words = overrides_of_runs(parser, self.params, self.runs, arguments)
        self.validate_batch_is_legal(words)
        returned = self.launcher.launch(words, initial_job_idx=0)
        for one in returned:
            _ = one.return_value  # which raises where a job failed
        return returned


def overrides_of_runs(
    parser: OverridesParser, params: Mapping[str, Any], runs: Sequence[Sequence[str]], arguments: Sequence[str]
) -> list[list[str]]:
    """The overrides of each run, as Hydra's basic sweeper makes them of `params` and `arguments`, times `runs`."""
    typed = parser.parse_overrides(list(arguments))
    axes: dict[str, list[str]] = {}
    for override in (*parser.parse_overrides([f"{name}={value}" for name, value in params.items()]), *typed):
        axes[override.get_key_element()] = _values(override)
    chosen = {override.key_or_group for override in typed}
    entries = list(dict.fromkeys(tuple(word for word in entry if not _is_within(word, chosen)) for entry in runs)) or [()]
    return [[*entry, *words] for entry in entries for words in product(*axes.values())]


def _values(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        problem = "a sweep takes values, separated by commas, or range(START,STOP,STEP)"
        raise UserError(problem, key=key, value=str(override.input_line).partition("=")[2])
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _is_within(word: str, keys: set[str]) -> bool:
    """Whether an override sets one of these options, or one below it."""
    name = word.partition("=")[0].lstrip("+~")
    return any(name == key or name.startswith(f"{key}.") for key in keys)
