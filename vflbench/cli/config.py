"""Configs: what Hydra composes them of, what they compute, and the one check of what others wrote.

Code comes from vflbench, what is installed with it, and the folders given as --plugins DIR. Hydra's own options come from
our configs, these folders and the command line. A config from elsewhere sets options of a run, and what is swept over; its
`_target_` is looked up by `components.locate`.
"""

import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from vflbench.errors import UserError
from vflbench.files import config_folder

SINGLE_NAMES = ("dataset", "model", "protocol", "engine", "optimizer")
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED_NAMES = ("defense", "attack", "adversary", "logger")
"""Groups of which several can be chosen: the options of each choice stand under its name."""

COMPONENTS = (*SINGLE_NAMES, *KEYED_NAMES)
GROUPS = (*COMPONENTS, "experiment")


def choices(folders: Sequence[Path], group: str) -> list[str]:
    """The names in a group. folders: of configs."""
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The dotted keys of a nested mapping, with their values; empty mappings are values too."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(node, list) and any(isinstance(item, Mapping | list) for item in node):
        for number, item in enumerate(node):
            yield from leaves(item, f"{prefix}[{number}]")
    else:
        yield prefix, node


def run_options(config: DictConfig) -> DictConfig:
    """A composed config without Hydra's part."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def plain(config: Container, *, throw_on_missing: bool = False) -> Any:
    """A config as dicts, lists and values, with everything computed."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=throw_on_missing)


def composed(name: str, words: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """A config of this name with the words of a command line, as it would run, with Hydra's part."""
    of_caller = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()  # `vflbench.audit` may be called in an application of Hydra's
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            load = GlobalHydra.instance().config_loader().load_configuration
            is_one = mode is RunMode.RUN
            return load(name, list(words), mode, from_shell=False, validate_sweep_overrides=is_one)
    finally:
        GlobalHydra.instance().hydra = of_caller  # another instance by now


# What others wrote

PLUGINS_FLAG = "--plugins"
PROVIDER = f"vflbench {PLUGINS_FLAG}"
"""Under this name Hydra lists the folders in `hydra.runtime.config_sources`, where workers of sweeps find them."""

searched: list[Path] = []
"""The folders given as --plugins, in which Hydra looks for configs after vflbench's own."""

others: list[Path] = []
"""The folders given as --config-dir, whose configs others may have written."""

MOST_DEFAULTS = 100


class Folders(SearchPathPlugin):
    """Lets Hydra search the user's folders for configs, after vflbench's own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in searched:
            search_path.append(provider=PROVIDER, path=f"file://{folder}")
        for folder in others:
            search_path.append(provider="--config-dir", path=f"{OthersConfigs.scheme()}://{folder}")


class OthersConfigs(ConfigSource):
    """The configs in a folder given as --config-dir: read with bounds, and none of Hydra's own groups."""

    @staticmethod
    def scheme() -> str:
        return "others"

    def load_config(self, config_path: str) -> ConfigResult:
        file = self._file(config_path)
        if Path(config_path).parts[0] == "hydra":
            raise UserError("a config from elsewhere can't be one of Hydra's own groups, under hydra/", key=str(file))
        text, content = read_config(file)
        if isinstance(content, dict):
            hydra = content.get("hydra") or {}
            for key in hydra if isinstance(hydra, dict) else {"": hydra}:
                if key not in ("mode", "sweeper"):  # Hydra acts on its search path while it composes
                    raise _refused(f"hydra.{key}" if key else "hydra", content["hydra"], f", in {file}")
            choices = list(_choices(content.get("defaults")))
            if len(choices) > MOST_DEFAULTS:
                raise UserError(f"it has more than {MOST_DEFAULTS} defaults", key=str(file))
            for choice in choices:
                if Path(choice).is_absolute() or ".." in Path(choice).parts:
                    raise UserError(f"it leads out of its folder, in {file}", key="defaults", value=choice)
        made = OmegaConf.create(text)
        header = self._get_header_dict(text)
        return ConfigResult(provider=self.provider, path=self.full_path(), config=made, header=header)

    def available(self) -> bool:
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        return Path(self.path, config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        return self._file(config_path).exists()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names: list[str] = []
        for name in os.listdir(Path(self.path, config_path)):
            self._list_add_result(names, os.path.join(config_path, name), name, results_filter)
        return sorted(set(names))

    def _file(self, config_path: str) -> Path:
        file = Path(self.path, f"{config_path.removesuffix('.yaml')}.yaml")
        if not file.resolve().is_relative_to(Path(self.path).resolve()):
            problem = "it leads out of the folder of configs that it was looked for in"
            raise UserError(f"{problem}; give its own folder as --config-dir", key=str(file))
        return file


def _choices(defaults: Any) -> Iterator[str]:
    for item in defaults if isinstance(defaults, list) else ():
        value = next(iter(item.values()), "") if isinstance(item, dict) else str(item).lstrip("/")
        yield from map(str, value if isinstance(value, list) else [value])


def read_config(file: Path) -> tuple[str, Any]:
    """The text of a YAML file, and its content as plain values. Raises UserError where it can't be read."""
    from vflbench.results.folder import Unreadable, read_yaml  # late: `train --help` does without the records of results

    try:
        return read_yaml(file.resolve())
    except FileNotFoundError as error:
        raise UserError("there is no such file", key=str(file)) from error
    except Unreadable as error:
        raise UserError(error.problem, key=str(file)) from error


def check_others(name: str, overrides: Sequence[str]) -> None:
    """Compose once without acting on it, and refuse what a config from elsewhere may not set."""
    for folder in others:
        if not folder.is_dir():
            raise UserError("there is no such folder", key="--config-dir", value=folder)
    parsed = zip(overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True)
    hydras = [word for word, override in parsed if override.is_hydra_override()]
    check_config(composed(name, overrides, RunMode.MULTIRUN), composed("train", hydras, RunMode.MULTIRUN), overrides)


def check_config(made: DictConfig, trusted: DictConfig, typed: Sequence[str]) -> None:
    """Raise UserError unless a composed config has Hydra's options from one that can be trusted, and unless the command
    line itself says that results are replaced, or sent to a server.

    typed: the words of the command line. What is swept over isn't compared: each run of a sweep is checked by itself.
    """
    allowed, given = _hydra_options(trusted), _hydra_options(made)
    for key in sorted({*allowed, *given}):
        if given.get(key) != allowed.get(key):
            raise _refused(key, given.get(key))
    options = OmegaConf.to_container(OmegaConf.masked_copy(made, [key for key in ("logger", "overwrite") if key in made]))
    assert isinstance(options, dict)
    keys = {word.partition("=")[0].lstrip("+~") for word in typed}
    for key, value in leaves(options, ""):
        matters = key == "overwrite" or key.endswith(".uri") or (key.count(".") < 2 and "$" in str(value))
        is_typed = any(key == one or key.startswith(f"{one}.") for one in keys)
        if matters and not is_typed and value not in (False, None, "auto"):
            what = "results are replaced, and sent to a server, only where the command line says so"
            raise UserError(f"{what}: {key}=...", key=key, value=value)


_OF_THE_RUN = re.compile(
    r"hydra\.((help|hydra_help|runtime|overrides)\b|mode$|sweeper\.(params|runs)\b|job\.(override_dirname|config_name|id|num)$)"
)


def _hydra_options(config: DictConfig) -> dict[str, Any]:
    """Hydra's options, but for what differs from run to run, and says nothing on where and how it is computed."""
    node = OmegaConf.to_container(OmegaConf.masked_copy(config, ["hydra"]), resolve=False)
    return {key: value for key, value in leaves(node, "") if not _OF_THE_RUN.match(key)}


def _refused(key: str, value: Any, where: str = "") -> UserError:
    problem = (
        "a config from elsewhere can't set it: of Hydra's options it may have hydra.sweeper.params, hydra.sweeper.runs and "
        "hydra.mode; what you choose yourself stands on the command line"
    )
    return UserError(f"{problem}{where}", key=key, value=value)


# Plug-ins


def split_flag(words: Sequence[str], flag: str = PLUGINS_FLAG, what: str = "a folder") -> tuple[list[str], list[str]]:
    """The values that a command line gives by --flag VALUE or --flag=VALUE, and its other words."""
    given, rest = [], []
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name != flag:
            rest.append(word)
            continue
        given.append(value if equals else next(remaining, ""))
        if not equals and (not given[-1] or given[-1].startswith("-")):
            raise UserError(f"it must be followed by {what}", key=flag)
    return given, rest


def use_plugins(named: Sequence[str]) -> list[Path]:
    """Make the modules of these folders importable, and the folders config folders of Hydra's. Returns them.

    They come last on Python's path, so that they shadow nothing. Raises UserError for a folder that doesn't exist, and for a
    module that couldn't be imported because another has its name.
    """
    folders = []
    for name in named:
        folder = Path(os.path.expanduser(name))
        if not name or not folder.is_dir():
            raise UserError("there is no such folder", key=PLUGINS_FLAG, value=name)
        folders.append(folder.resolve())
    folders = list(dict.fromkeys(folders))
    if folders:
        from vflbench.run.provenance import import_from  # late, as above

        _refuse_taken_names(folders)
        import_from(folders)
    searched[:] = folders
    return folders


def recorded_folders(config: DictConfig) -> tuple[Path, ...]:
    """The plug-in folders of a run, in this process or in a worker of a sweep, from its `hydra` options.

    config: a run's; where Hydra has taken the `hydra` options out of it, those of the present job are used.
    """
    sources = OmegaConf.select(config, "hydra.runtime.config_sources")
    if sources is None and HydraConfig.initialized():
        sources = HydraConfig.get().runtime.config_sources
    return tuple(Path(source.path) for source in sources or () if source.provider == PROVIDER)


def _refuse_taken_names(folders: Sequence[Path]) -> None:
    holders = dict.fromkeys(sys.stdlib_module_names, "Python's standard library")
    for folder in folders:
        for module in pkgutil.iter_modules([str(folder)]):
            if module.name.startswith("__"):  # such as __main__, which nobody imports
                continue
            spec = None if module.name in holders else importlib.util.find_spec(module.name)
            origin = Path(spec.origin).resolve() if spec and spec.origin else folder  # a folder of modules gives way
            if not any(origin.is_relative_to(one) for one in folders):
                holders[module.name] = str(origin.parent)
            if holder := holders.get(module.name):
                problem = f"its module {module.name} has the name of a module of {holder}, which would be imported instead"
                raise UserError(f"{problem}; rename it", key=PLUGINS_FLAG, value=folder)
            holders[module.name] = str(folder)


# The folder of a run

_NAME = re.compile(r"\w[\w .,+=@()-]*(?<![ .])")
_LONGEST_NAME = 200  # bytes; a folder's name has 255 at most, and a digest follows


def run_name(name: Any) -> str:
    """The name as text. Raises UserError unless it can be the beginning of a folder's name, on every system."""
    given = str(name) if isinstance(name, str | int | float) else ""
    if not _NAME.fullmatch(given) or len(given.encode()) > _LONGEST_NAME:
        problem = (
            "it is the beginning of the folder's name: 1 to 200 letters, digits, spaces and . , _ + - = @ ( ), of which the "
            "first is a letter, a digit or _ and the last is neither a space nor a dot"
        )
        raise UserError(problem, key="name", value=name if given else repr(name))
    return given


# What configs compute

_LONGEST = 60  # characters of joined names, which become part of a folder's name


@contextmanager
def current_config(config: DictConfig) -> Iterator[None]:
    """While entered, `${hydra:...}` refers to this configuration."""
    instance = HydraConfig.instance()
    before, readonly = instance.cfg, OmegaConf.is_readonly(config.hydra)
    instance.set_config(config)  # which makes its `hydra` read-only
    try:
        yield
    finally:
        instance.cfg = before
        OmegaConf.set_readonly(config.hydra, readonly)


def chosen_names(group: str, _root_: DictConfig) -> str:
    """`${names:attack}`: the names chosen in a keyed group, as norm+spectral, or none; of many, the name of their set."""
    several = list(_root_.get(group) or {})
    joined, choice = "+".join(several) or "none", HydraConfig.get().runtime.choices.get(group)
    if len(joined) <= _LONGEST:
        return joined
    file = config_folder() / group / f"{choice}.yaml"
    entries: Any = OmegaConf.load(file) if isinstance(choice, str) and file.is_file() else {}
    is_set = list(map(str, entries.get(group, entries))) == several  # beside options outside its group
    return str(choice) if is_set else f"{several[0]}+{len(several) - 1}_others"


def chosen(group: str) -> str:
    """`${chosen:dataset}`: what was chosen in a group, as part of a folder's name: mine/ctr is mine_ctr."""
    choice = str(HydraConfig.get().runtime.choices.get(group))
    return "".join(sign if sign.isalnum() or sign in "-.+" else "_" for sign in choice)


def refuse_environment(*_: Any) -> str:
    """`${oc.env:NAME}`: a config could carry a secret into results that are shared, however it spells this."""
    raise UserError("options don't read environment variables; on the command line, the shell puts $NAME in", key="oc.env")


def config_digest(_root_: DictConfig) -> str:
    """`${digest:}`: 8 hexadecimal digits that identify all that can change a result: options, code, plug-ins, data files.

    A mandatory value that is missing counts as `???`. The run itself reports that it is missing.
    """
    from vflbench.results import folder  # late: options can be explained without it
    from vflbench.run.provenance import origin_of

    if _Within.digest:
        raise UserError("an option can't depend on the digest of all options", key="digest")
    _Within.digest = True
    try:
        if "name" in _root_ and not OmegaConf.is_missing(_root_, "name"):
            run_name(_root_["name"])  # here, as Hydra makes the folder right afterwards
        options = {str(key): _resolved(_root_, key) for key in folder.essential(dict.fromkeys(_root_))}
        return folder.digest(options, origin_of(options, recorded_folders(_root_)))
    finally:
        _Within.digest = False


class _Within:
    """Whether a digest is being computed."""

    digest = False


def difference(minuend: int, subtrahend: int) -> int:
    """`${difference:8,${model.bottom_layers}}`: how many of 8 layers are left above the cut."""
    return minuend - subtrahend


def _resolved(root: DictConfig, key: Any) -> Any:
    if OmegaConf.is_missing(root, key):
        return "???"
    value = root[key]
    return plain(value) if OmegaConf.is_config(value) else value


OmegaConf.register_new_resolver("oc.env", refuse_environment, replace=True)
OmegaConf.register_new_resolver("names", chosen_names, replace=True)
OmegaConf.register_new_resolver("chosen", chosen, replace=True)
OmegaConf.register_new_resolver("difference", difference, replace=True)
OmegaConf.register_new_resolver("digest", config_digest, replace=True)
