"""Config node -> object.

A `_target_` is looked up (`classes`), checked against the base class of its group, and only then called. Hydra's own
`instantiate` would call any importable function that a config names.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, MissingMandatoryValue
from pydantic import ValidationError

from vflbench.attacks.base import Attack
from vflbench.cli.classes import locate
from vflbench.cli.resolvers import plain
from vflbench.cli.run_folder import run_name
from vflbench.cli.trust import leaves
from vflbench.data.base import Dataset
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import refuse_disorder
from vflbench.engines.base import Engine
from vflbench.errors import UserError
from vflbench.models.base import CutModel
from vflbench.models.optimizers.base import Optimizer
from vflbench.options import allowed
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.base import Protocol
from vflbench.results.loggers.base import Logger
from vflbench.run.experiment import Experiment
from vflbench.run.settings import Audit, Settings

SINGLE = {"dataset": Dataset, "model": CutModel, "protocol": Protocol, "engine": Engine, "optimizer": Optimizer}
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED = {"defense": Defense, "attack": Attack, "adversary": Adversary, "logger": Logger}
"""Groups of which several can be chosen: the options of each choice stand under its name."""

SETTINGS = ("epochs", "batch_size", "seed", "device", "precision", "log_every", "checkpoint", "overwrite", "record")


def build(config: DictConfig | Mapping[str, Any]) -> Experiment:
    """The experiment that a config describes: a composed one, or one with everything computed, in which nothing is computed
    again. Raises UserError if it can't be built.
    """
    try:
        nodes = plain(config, throw_on_missing=True) if isinstance(config, DictConfig) else config
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    known = {*SINGLE, *KEYED, *SETTINGS, "audit", "name"}
    for key in nodes:
        if key == "privacy":
            raise UserError("it is read from the command line alone, as --privacy FILE", key="privacy")
        if key not in known:
            raise UserError("there is no such option", key=str(key), see="vflbench train --cfg job")
    run_name(nodes.get("name"))
    single: dict[str, Any] = {group: component(nodes.get(group), group, base) for group, base in SINGLE.items()}
    keyed = {group: _named(nodes.get(group) or {}, group, base) for group, base in KEYED.items()}
    refuse_disorder(keyed["defense"])
    audit = construct(Audit, nodes.get("audit", {}), "audit")
    settings = construct(Settings, {k: nodes[k] for k in SETTINGS if k in nodes} | {"audit": audit}, "")
    chosen: dict[str, Any] = {"defenses": keyed["defense"], "attacks": keyed["attack"], "adversaries": keyed["adversary"]}
    return Experiment(**single, **chosen, settings=settings)


def build_dataset(config: DictConfig) -> Dataset:
    """The dataset alone. The other options may be wrong."""
    try:
        node = plain(config.dataset, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    return component(node, "dataset", Dataset)


def build_loggers(config: DictConfig | Mapping[str, Any]) -> dict[str, Logger]:
    """The loggers, by name: they get everything that the recorder writes."""
    nodes = plain(config) if isinstance(config, DictConfig) else config
    return _named(nodes.get("logger") or {}, "logger", Logger)


def component(node: Any, key: str, base: type) -> Any:
    """An instance of a subclass of `base`, from {_target_: ..., option: ...}."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise UserError("it must name a class under _target_", key=key, value=node, see=_where(key))
    cls = locate(node["_target_"], f"{key}._target_", base)
    given = {name: value for name, value in node.items() if name != "_target_"}
    for name in given:
        if str(name).startswith("_"):
            raise UserError("there is no such option", key=f"{key}.{name}", value=given[name], see=_where(key))
    for name, value in leaves(given, key):
        if "_target_" in name.split("."):
            raise UserError("options are values; only an entry of a group names a class", key=name, value=value)
    for name, its_base in _classes_wanted(cls).items():
        if name in given:
            given[name] = locate(given[name], f"{key}.{name}", its_base)
    return construct(cls, given, key)


def _classes_wanted(cls: type) -> dict[str, type]:
    """The options that are classes, and the base class of each: those annotated as type[Base]."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return {field.name: get_args(field.type)[0] for field in fields if get_origin(field.type) is type}


def construct(cls: type, given: Mapping[str, Any], key: str) -> Any:
    """cls(**given). Raises UserError with key, value and what is allowed."""
    if not isinstance(given, Mapping):
        raise UserError("it must be a mapping of options", key=key, value=given, see=_where(key))
    try:
        inspect.signature(cls).bind(**given)
    except TypeError:
        raise _misnamed(cls, given, key) from None
    try:
        return cls(**given)
    except ValidationError as error:
        conflict = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        if isinstance(conflict, UserError):  # options that don't go together
            full_name = f"{key}.{conflict.key}" if key else str(conflict.key)
            raise UserError(conflict.problem, key=full_name, value=conflict.value, see=_where(full_name)) from error
        raise _invalid(cls, error, given, key) from error


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


def _invalid(cls: type, error: ValidationError, given: Mapping[str, Any], key: str) -> UserError:
    details = error.errors(include_url=False, include_input=False)
    if not details[0]["loc"]:  # of options that don't go together
        return UserError(details[0]["msg"].removeprefix("Value error, "), key=key, see=_where(key))
    name = str(details[0]["loc"][0])
    of_option = [detail for detail in details if str(detail["loc"][0]) == name]
    problems = [detail["msg"].replace("Input should", "it must").removeprefix("Value error, ") for detail in of_option]
    words = allowed(get_type_hints(cls, include_extras=True).get(name))
    problem = f"it must be {words}" if words else ", or ".join(dict.fromkeys(problems))
    full_name = f"{key}.{name}" if key else name
    return UserError(problem, key=full_name, value=given.get(name), see=_where(full_name))


def _missing(error: MissingMandatoryValue) -> UserError:
    key = str(error.full_key or "an option")
    is_class = key in ("model.bottom", "model.top")
    example = "FILE" if key.endswith("path") else "MODULE:CLASS" if is_class else "VALUE"
    return UserError(f"it must be given, as {key}={example}", key=key)


def _where(key: str) -> str:
    """The command that shows what is allowed: the names in a group, or the options of a choice."""
    return f"vflbench list {key}" if key in {*SINGLE, *KEYED} else "vflbench train --cfg job"
