"""Config node -> object, of any group, and the options of a run that need nothing that trains.

A `_target_` is looked up, checked against the base class of its group, and only then called. Hydra's own `instantiate` would
call any importable function that a config names. Where a module lies is decided from its name, before it is imported: only
then may its code run.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, MissingMandatoryValue
from pydantic import ValidationError

from vflbench.cli.config import COMPONENTS, leaves, plain, run_name
from vflbench.errors import UserError
from vflbench.options import allowed
from vflbench.results.loggers import Logger
from vflbench.run.provenance import plugins

if TYPE_CHECKING:
    from vflbench.data.base import Dataset
    from vflbench.run.settings import Settings

SETTINGS = ("epochs", "batch_size", "seed", "device", "precision", "log_every", "checkpoint", "overwrite", "record")


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
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if get_origin(field.type) is type and field.name in given:  # an option that is a class: type[Base]
            given[field.name] = locate(given[field.name], f"{key}.{field.name}", get_args(field.type)[0])
    return construct(cls, given, key)


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


_OURS = Path(__file__).resolve().parents[1]
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[.:][A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LONGEST = 200  # characters
_TORCH = "torch.nn"
_PLACES = "classes are imported from vflbench itself and the folders given as --plugins DIR"


def locate(path: Any, key: str, base: type) -> type:
    """The class at MODULE.CLASS or MODULE:CLASS. Raises UserError unless it is a subclass of `base`; nothing is called.

    The module is one of vflbench's own, or lies in a folder given as --plugins DIR; where a torch module is wanted, the
    classes of torch.nn do as well. No other module is imported.
    """

    def absent(detail: str) -> UserError:
        return UserError(f"there is no such class{detail}; {_PLACES}", key=key, value=path)

    def is_ours(file: str) -> bool:
        return any(_resolved(Path(file)).is_relative_to(_resolved(folder)) for folder in (*plugins(), _OURS))

    def lies_in(spec: ModuleSpec) -> bool:  # a folder of modules, with any part
        return any(
            map(is_ours, [spec.origin] if spec.has_location and spec.origin else spec.submodule_search_locations or ())
        )

    def not_there(name: str) -> UserError:
        line = f"a module in such a folder with `from {name} import ...` makes its classes available"
        return UserError(f"{name} is not imported: {_PLACES}; {line}", key=key, value=path)

    text = str(path)
    if len(text) > _LONGEST or not _PATH.fullmatch(text):
        raise absent(" (it is written MODULE:CLASS or MODULE.CLASS)")
    module_name, _, name = text.rpartition(":" if ":" in text else ".")
    is_torch = module_name == _TORCH and base.__module__.startswith(_TORCH)
    if not is_torch:
        at, *below = module_name.split(".")
        if any(part.startswith("__") for part in (at, *below)):  # such as vflbench.__main__
            raise absent(f" in module {module_name}")
        spec = None
        with suppress(ValueError):  # of a loaded module without a spec
            spec = importlib.util.find_spec(at)  # imports nothing
        while spec is not None and lies_in(spec) and below:  # through each package, as Python would
            part = below.pop(0)
            at, spec = f"{at}.{part}", PathFinder.find_spec(part, list(spec.submodule_search_locations or ()))
        if spec is None:
            raise absent(f" (no module {at})")
        if not lies_in(spec):
            raise not_there(module_name.partition(".")[0])
    try:
        module = importlib.import_module(module_name)
        cls: Any = getattr(module, name.partition(".")[0], None)
        for part in name.split(".")[1:]:
            cls = getattr(cls, part, None) if inspect.isclass(cls) else None
    except Exception as error:  # whatever a user's module raises when it is imported
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise absent(f" (no module {error.name})") from error
        raise UserError(f"can't be imported: {type(error).__name__}: {error}", key=key, value=path) from error
    file = getattr(module, "__file__", None)
    if not is_torch and (file is None or not is_ours(file)):
        raise not_there(module_name)
    if cls is None:
        raise absent(f" in module {module_name}")
    if not (inspect.isclass(cls) and issubclass(cls, base) and cls is not base):
        came = "" if inspect.isclass(cls) else f", not a {type(cls).__name__}"
        problem = f"it must be a subclass of {base.__module__}.{base.__qualname__}{came}"
        raise UserError(problem, key=key, value=path)
    if inspect.isabstract(cls):
        raise UserError(f"it lacks {', '.join(sorted(getattr(cls, '__abstractmethods__')))}", key=key, value=path)  # noqa: B009
    return cls


@cache
def _resolved(path: Path) -> Path:
    """Of the folders, and of the files in them, each asked for again and again."""
    return path.resolve()


def checked_options(config: DictConfig | Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a run as plain values: all that must be given, and no other names. Raises UserError."""
    nodes = _given(config) if isinstance(config, DictConfig) else config
    known = {*COMPONENTS, *SETTINGS, "audit", "name"}
    for key in nodes:
        if key not in known:
            raise UserError("there is no such option", key=str(key), see="vflbench train --cfg job")
    run_name(nodes.get("name"))
    return nodes


def build_settings(nodes: Mapping[str, Any]) -> "Settings":
    """The options that belong to no component. nodes: as `checked_options` returns them."""
    from vflbench.run.settings import Audit, Settings  # late: it loads torch, and help and mistakes need none

    audit = construct(Audit, nodes.get("audit", {}), "audit")
    return construct(Settings, {k: nodes[k] for k in SETTINGS if k in nodes} | {"audit": audit}, "")


def build_loggers(config: DictConfig | Mapping[str, Any]) -> dict[str, Logger]:
    """The loggers, by name: they get everything that the recorder writes."""
    nodes = plain(config) if isinstance(config, DictConfig) else config
    return named(nodes.get("logger") or {}, "logger", Logger)


def check_options(config: DictConfig) -> None:
    """Raise UserError for a mistake in the options that belong to no component, or in loggers: none of them needs torch."""
    nodes = checked_options(config)
    build_settings(nodes)
    build_loggers(nodes)


def build_dataset(config: DictConfig) -> "Dataset":
    """The dataset alone. The other options may be wrong."""
    from vflbench.data.base import Dataset

    return component(_given(config.dataset), "dataset", Dataset)


def _given(config: DictConfig) -> Any:
    """As plain values. Raises UserError where one that must be given is missing."""
    try:
        return plain(config, throw_on_missing=True)
    except MissingMandatoryValue as error:
        key = str(error.full_key or "an option")
        is_class = key in ("model.bottom", "model.top")
        example = "FILE" if key.endswith("path") else "MODULE:CLASS" if is_class else "VALUE"
        raise UserError(f"it must be given, as {key}={example}", key=key) from error
