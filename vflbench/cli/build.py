"""Config -> an experiment -> a run that has a folder to itself, in this process or in the label party's.

It imports all that trains.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from vflbench.attacks.base import Attack
from vflbench.cli.components import build_loggers, build_settings, checked_options, component, named
from vflbench.cli.mistakes import leaving_errors
from vflbench.cli.sweep import JobOutcome
from vflbench.cli.train import outcome_of
from vflbench.data.base import Dataset
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import refuse_disorder
from vflbench.engines.base import Engine
from vflbench.models.base import CutModel
from vflbench.models.optimizers import Optimizer
from vflbench.protocols.adversaries import Adversary
from vflbench.protocols.base import Protocol
from vflbench.report.terminal import table_text
from vflbench.results.loggers import Logger
from vflbench.results.recorder import Recorder
from vflbench.results.runs import Run
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.experiment import Experiment, run_experiment
from vflbench.run.provenance import provenance

SINGLE = {"dataset": Dataset, "model": CutModel, "protocol": Protocol, "engine": Engine, "optimizer": Optimizer}
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED = {"defense": Defense, "attack": Attack, "adversary": Adversary, "logger": Logger}
"""Groups of which several can be chosen: the options of each choice stand under its name."""


def build(config: DictConfig | Mapping[str, Any]) -> Experiment:
    """The experiment that a config describes: a composed one, or one with everything computed, in which nothing is computed
    again. Raises UserError if it can't be built.
    """
    nodes = checked_options(config)
    settings = build_settings(nodes)
    single: dict[str, Any] = {group: component(nodes.get(group), group, base) for group, base in SINGLE.items()}
    keyed = {group: named(nodes.get(group) or {}, group, base) for group, base in KEYED.items()}
    refuse_disorder(keyed["defense"])
    chosen: dict[str, Any] = {"defenses": keyed["defense"], "attacks": keyed["attack"], "adversaries": keyed["adversary"]}
    return Experiment(**single, **chosen, settings=settings)


@dataclass(frozen=True)
class Started:
    """How a run was started: its resolved options, the words of the command line, what was chosen in each group, folders of
    plug-ins, and what else decides its numbers. All of it is JSON. overwrite: no option of `resolved`, which is for good.
    """

    resolved: Mapping[str, Any]
    overrides: list[str]
    choices: Mapping[str, Any]
    plugins: list[str]
    origin: Mapping[str, Any]
    overwrite: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What `build` makes the experiment of."""
        return {**self.resolved, "overwrite": self.overwrite}


def record(started: Started, experiment: Experiment, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """Train and attack. A run that began and then fails leaves error.txt."""
    resolved, settings = dict(started.resolved), experiment.settings
    plugins = [Path(folder) for folder in started.plugins]
    manifest = provenance(settings.seed, started.overrides, started.choices, started.origin, plugins)
    quiet = in_sweep or not sys.stdout.isatty()
    recorder = Recorder(folder, OmegaConf.to_yaml(resolved), manifest, quiet=quiet, overwrite=settings.overwrite)
    recorder.whose = f"{folder.name}: " * in_sweep
    recorder.bar, recorder.loggers, recorder.options = not in_sweep, build_loggers(resolved), resolved
    checkpoint = Checkpoint(folder, settings.checkpoint, fresh=settings.overwrite)
    with leaving_errors(recorder):
        summary = run_experiment(experiment, recorder, checkpoint)
        recorder.finish(summary, lambda summary, manifest: table_text(Run(folder, resolved, summary, manifest)))
        checkpoint.finish()
    return outcome_of(folder)
