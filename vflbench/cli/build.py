"""Config node -> object: the one place that turns names into classes, and refuses what is not ours to build.

A `_target_` is looked up, checked against the base class of its group, and only then called: hydra's own `instantiate`
would call any importable function that a config names.
"""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, MissingMandatoryValue, OmegaConf
from pydantic import ValidationError

from vflbench.attacks.base import Attack
from vflbench.data.base import Dataset
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import refuse_disorder
from vflbench.engines.base import Engine
from vflbench.errors import UserError
from vflbench.models.base import Model
from vflbench.models.optimizers.base import Optimizer
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.base import Protocol
from vflbench.results.loggers.base import Logger
from vflbench.run.experiment import Experiment
from vflbench.run.settings import Audit, Settings

SINGLE = {"dataset": Dataset, "model": Model, "protocol": Protocol, "engine": Engine, "optimizer": Optimizer}
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED = {"defense": Defense, "attack": Attack, "adversary": Adversary, "logger": Logger}
"""Groups of which several can be chosen: each has its options under a name of its own."""

SETTINGS = ("epochs", "batch_size", "seed", "device", "precision", "log_every", "checkpoint", "overwrite")


def build(config: DictConfig) -> Experiment:
    """The experiment that a composed config describes. Raises UserError for anything that can't be built."""
    try:
        nodes = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    known = {*SINGLE, *KEYED, *SETTINGS, "audit", "name"}
    for key in nodes:
        if key not in known:
            raise UserError("there is no such option", key=str(key), see="vflbench train --cfg job")
    single = {group: component(nodes.get(group), group, base) for group, base in SINGLE.items()}
    keyed = {group: _named(nodes.get(group) or {}, group, base) for group, base in KEYED.items()}
    refuse_disorder(keyed["defense"])
    audit = construct(Audit, nodes.get("audit", {}), "audit")
    settings = construct(Settings, {k: nodes[k] for k in SETTINGS if k in nodes} | {"audit": audit}, "")
    chosen = {"defenses": keyed["defense"], "attacks": keyed["attack"], "adversaries": keyed["adversary"]}
    return Experiment(**single, **chosen, settings=settings)


def build_dataset(config: DictConfig) -> Dataset:
    """The dataset alone; nothing else has to be right."""
    try:
        node = OmegaConf.to_container(config.dataset, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    return component(node, "dataset", Dataset)


def build_loggers(config: DictConfig) -> dict[str, Logger]:
    """Who else is told what the recorder writes, by name."""
    return _named(OmegaConf.to_container(config, resolve=True).get("logger") or {}, "logger", Logger)


def component(node: Any, key: str, base: type) -> Any:
    """An instance of a subclass of `base` from {_target_: ..., option: ...}."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise UserError("it must name a class under _target_", key=key, value=node, see=_where(key))
    cls = locate(node["_target_"], f"{key}._target_", base)
    given = {name: value for name, value in node.items() if name != "_target_"}
    for name in given:
        if str(name).startswith("_"):
            raise UserError("there is no such option", key=f"{key}.{name}", value=given[name], see=_where(key))
    return construct(cls, given, key)


def locate(path: Any, key: str, base: type) -> type:
    """The class at a dotted path, if it is a subclass of `base`; anything else is refused and never called."""
    module_name, _, name = str(path).rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ModuleNotFoundError, AttributeError, ValueError, TypeError) as error:
        raise UserError(
            f"there is no such class ({error}); a class of your own is looked up in the --config-dir and the current folder",
            key=key,
            value=path,
        ) from error
    except Exception as error:  # whatever a module of the user's does when it is imported
        raise UserError(f"can't be imported: {type(error).__name__}: {error}", key=key, value=path) from error
    if not (inspect.isclass(found) and issubclass(found, base) and found is not base):
        raise UserError(f"it must be a subclass of {base.__module__}.{base.__qualname__}", key=key, value=path)
    return found


def construct(cls: type, given: Mapping[str, Any], key: str) -> Any:
    """cls(**given), its complaints told as key, value and what is allowed."""
    if not isinstance(given, Mapping):
        raise UserError("it must be a mapping of options", key=key, value=given, see=_where(key))
    try:
        inspect.signature(cls).bind(**given)
    except TypeError:
        raise _misnamed(cls, given, key) from None
    try:
        return cls(**given)
    except ValidationError as error:
        own = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        if isinstance(own, UserError):  # of options that don't go together
            full_name = f"{key}.{own.key}" if key else own.key
            raise UserError(own.problem, key=full_name, value=own.value, see=_where(full_name)) from error
        raise _invalid(error, given, key) from error


def _named(nodes: Any, group: str, base: type) -> dict[str, Any]:
    if not isinstance(nodes, Mapping):
        raise UserError("it must be a name or a list of names", key=group, value=nodes, see=_where(group))
    return {str(name): component(node, f"{group}.{name}", base) for name, node in nodes.items()}


def _misnamed(cls: type, given: Mapping[str, Any], key: str) -> UserError:
    parameters = inspect.signature(cls).parameters
    prefix = f"{key}." if key else ""
    for name in given:
        if name not in parameters:
            return UserError(
                f"there is no such option; {cls.__name__} has {', '.join(parameters) or 'none'}",
                key=f"{prefix}{name}",
                value=given[name],
                see=_where(f"{prefix}{name}"),
            )
    required = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
    return UserError("it must be given", key=f"{prefix}{required[0]}", see=_where(key))


def _invalid(error: ValidationError, given: Mapping[str, Any], key: str) -> UserError:
    details = error.errors(include_url=False)
    name = str(details[0]["loc"][0])
    problems = [d["msg"].replace("Input should", "it must") for d in details if str(d["loc"][0]) == name]
    told = ", or ".join(dict.fromkeys(problem.removeprefix("Value error, ") for problem in problems))
    full_name = f"{key}.{name}" if key else name
    return UserError(told, key=full_name, value=given.get(name), see=_where(full_name))


def _missing(error: MissingMandatoryValue) -> UserError:
    key = str(error.full_key or "an option")
    example = "FILE" if key.endswith("path") else "VALUE"
    return UserError(f"it must be given, as {key}={example}", key=key)


def _where(key: str) -> str:
    """The command that shows what is allowed: the names in a group, or the options of what was chosen."""
    return f"vflbench list {key}" if key in {*SINGLE, *KEYED} else "vflbench train --cfg job"
