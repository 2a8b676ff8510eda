"""Config node -> object, of any group. It loads what the object's class needs, and nothing else.

A `_target_` is looked up (`classes`), checked against the base class of its group, and only then called. Hydra's own
`instantiate` would call any importable function that a config names.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import ValidationError

from vflbench.cli.classes import locate
from vflbench.cli.groups import COMPONENTS, leaves
from vflbench.errors import UserError
from vflbench.options import allowed


def component(node: Any, key: str, base: type) -> Any:
    """An instance of a subclass of `base`, from {_target_: ..., option: ...}."""
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise UserError("it must name a class under _target_", key=key, value=node, see=where(key))
    cls = locate(node["_target_"], f"{key}._target_", base)
    given = {name: value for name, value in node.items() if name != "_target_"}
    for name in given:
        if str(name).startswith("_"):
            raise UserError("there is no such option", key=f"{key}.{name}", value=given[name], see=where(key))
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
        raise UserError("it must be a mapping of options", key=key, value=given, see=where(key))
    try:
        inspect.signature(cls).bind(**given)
    except TypeError:
        raise _misnamed(cls, given, key) from None
    try:
        return cls(**given)
    except ValidationError as error:
        conflict = error.errors(include_url=False)[0].get("ctx", {}).get("error")
        if isinstance(conflict, UserError):  # options that don't go together
            is_whole = not key or "=" in str(conflict.key)  # as logger=tensorboard
            full_name = str(conflict.key) if is_whole else f"{key}.{conflict.key}"
            raise UserError(conflict.problem, key=full_name, value=conflict.value, see=where(full_name)) from error
        raise _invalid(cls, error, given, key) from error


def named(nodes: Any, group: str, base: type) -> dict[str, Any]:
    if not isinstance(nodes, Mapping):
        raise UserError("it must be a name or a list of names", key=group, value=nodes, see=where(group))
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
                see=where(f"{prefix}{name}"),
            )
    required = [n for n, p in parameters.items() if p.default is inspect.Parameter.empty and n not in given]
    return UserError("it must be given", key=f"{prefix}{required[0]}", see=where(key))


def _invalid(cls: type, error: ValidationError, given: Mapping[str, Any], key: str) -> UserError:
    details = error.errors(include_url=False, include_input=False)
    if not details[0]["loc"]:  # of options that don't go together
        return UserError(details[0]["msg"].removeprefix("Value error, "), key=key, see=where(key))
    name = str(details[0]["loc"][0])
    of_option = [detail for detail in details if str(detail["loc"][0]) == name]
    problems = [detail["msg"].replace("Input should", "it must").removeprefix("Value error, ") for detail in of_option]
    words = allowed(get_type_hints(cls, include_extras=True).get(name))
    problem = f"it must be {words}" if words else ", or ".join(dict.fromkeys(problems))
    full_name = f"{key}.{name}" if key else name
    return UserError(problem, key=full_name, value=given.get(name), see=where(full_name))


def where(key: str) -> str:
    """The command that shows what is allowed: the names in a group, or the options of a choice."""
    return f"vflbench list {key}" if key in COMPONENTS else "vflbench train --cfg job"
