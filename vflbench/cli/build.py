"""Config -> an experiment, all of whose components are built (`components`). It imports all that trains."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from vflbench.attacks.base import Attack
from vflbench.cli.components import component, named
from vflbench.cli.run_options import build_settings, checked
from vflbench.data.base import Dataset
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import refuse_disorder
from vflbench.engines.base import Engine
from vflbench.models.base import CutModel
from vflbench.models.optimizers.base import Optimizer
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.base import Protocol
from vflbench.results.loggers import Logger
from vflbench.run.experiment import Experiment

SINGLE = {"dataset": Dataset, "model": CutModel, "protocol": Protocol, "engine": Engine, "optimizer": Optimizer}
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED = {"defense": Defense, "attack": Attack, "adversary": Adversary, "logger": Logger}
"""Groups of which several can be chosen: the options of each choice stand under its name."""


def build(config: DictConfig | Mapping[str, Any]) -> Experiment:
    """The experiment that a config describes: a composed one, or one with everything computed, in which nothing is computed
    again. Raises UserError if it can't be built.
    """
    nodes = checked(config)
    settings = build_settings(nodes)
    single: dict[str, Any] = {group: component(nodes.get(group), group, base) for group, base in SINGLE.items()}
    keyed = {group: named(nodes.get(group) or {}, group, base) for group, base in KEYED.items()}
    refuse_disorder(keyed["defense"])
    chosen: dict[str, Any] = {"defenses": keyed["defense"], "attacks": keyed["attack"], "adversaries": keyed["adversary"]}
    return Experiment(**single, **chosen, settings=settings)
