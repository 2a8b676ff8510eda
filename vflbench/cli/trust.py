"""The trust boundary: what the words of a command line, and configs that others wrote, may ask of Hydra.

Code comes from vflbench, what it depends on, and the folders given as --plugins DIR. What the user types may also choose
where results go and how a known launcher works. A config from elsewhere sets options, and what is swept over.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from vflbench.cli.classes import refuse_unwritable
from vflbench.cli.hydra_internals import current_config, flags_of
from vflbench.cli.launcher_extras import require_launcher
from vflbench.cli.leaves import leaves
from vflbench.cli.run_folder import run_name
from vflbench.cli.shared_files import HYDRAS
from vflbench.errors import UserError, nearest

LAUNCHERS = {
    "processes": "hydra_plugins.vflbench.Processes",
    "basic": "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "joblib": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
}
"""What hydra/launcher may be, and the class behind it."""

SWEEPERS = {"runs": "hydra_plugins.vflbench.Runs", "basic": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"}

LOGGING = ("disabled", "none", "default", "stdout")
"""What hydra/job_logging and hydra/hydra_logging may be."""

_KNOWN: dict[str, Sequence[str]] = {
    "hydra/launcher": tuple(LAUNCHERS),
    "hydra/sweeper": tuple(SWEEPERS),
    "hydra/job_logging": LOGGING,
    "hydra/hydra_logging": LOGGING,
}
_NEVER = {
    "callbacks": "code that Hydra would call is not taken from options",
    "job.env_set": "environment variables are set in the shell, before the command",
    "job.env_copy": "environment variables are set in the shell, before the command",
}
_LOG_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter")
_LOG_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_MOST_RUNS = 1_000


def check_flags(words: Sequence[str]) -> None:
    """Refuse what Hydra's own flags could load code by. words: of the command line."""
    flags = flags_of(words)
    if flags.experimental_rerun is not None:
        problem = "it would run what a pickle says; config.yaml of a finished run does what is meant"
        raise UserError(problem, key="--experimental-rerun", value=flags.experimental_rerun)
    for flag, value in (("--config-path", flags.config_path), ("--config-dir", flags.config_dir)):
        if value is not None and "://" in value and not value.startswith("file://"):
            raise UserError("it must be a folder: configs are not read from packages", key=flag, value=value)


def check_words(words: Sequence[str]) -> None:
    """Refuse overrides that would call or import what they name, before Hydra sees them."""
    for word in words:
        try:
            override = OverridesParser.create().parse_override(word)
            value = override.value()
        except HydraException:  # Hydra says what is wrong with it
            continue
        key = override.key_or_group
        for name, problem in _NEVER.items():
            if _is_under(key, f"hydra.{name}") or key == f"hydra/{name}":
                raise UserError(problem, key=key, value=value)
        if override.package is not None and _is_under(override.package.removeprefix("_global_."), "hydra"):
            raise UserError("options of ours have no place among Hydra's", key=f"{key}@{override.package}", value=value)
        if key == "hydra.output_subdir" and value is not None:
            raise UserError("config.yaml and manifest.json have what Hydra would put there", key=key, value=value)
        if key in _KNOWN and not override.is_delete() and value not in _KNOWN[key]:
            near = nearest(str(value), _KNOWN[key])
            raise UserError(f"it must be one of {', '.join(_KNOWN[key])}{near}", key=key, value=value)
        if key == "hydra/launcher" and not override.is_delete():
            require_launcher(str(value))
        if _is_under(key, "hydra.searchpath"):
            for place in value if isinstance(value, list) else [value]:
                _check_place(place)


def check_shared(file: str, config: Any) -> None:
    """Refuse what a config from elsewhere may not set. config: its options, at the place where Hydra puts them."""
    options = _container(config)
    hydra = options.get("hydra") or {}
    for key, value in leaves(hydra, "hydra") if hydra else ():
        if not (_is_under(key, "hydra.sweeper.params") or key.startswith("hydra.sweeper.runs") or key == "hydra.mode"):
            raise UserError(f"{HYDRAS}, in {file}", key=key, value=value)
    params = _at(hydra, "sweeper.params") or {}
    if not isinstance(params, Mapping):
        raise UserError(f"it must be a mapping of options, in {file}", key="hydra.sweeper.params", value=params)
    for name, value in params.items():
        key = str(name).lstrip("+~")
        group, _, package = key.partition("@")
        if not re.fullmatch(r"[\w./@:\-]+", key, re.ASCII) or any(
            re.match(r"(_global_\.)?(hydra|logger|overwrite)\b", part) for part in (group.lstrip("/"), *package.split(":"))
        ):
            problem = "a config from elsewhere can't sweep over it; what is swept are options of ours, but for loggers"
            raise UserError(f"{problem} and overwrite, in {file}", key="hydra.sweeper.params", value=name)
        if "$" in str(value):  # Hydra computes it twice
            problem = f"a config from elsewhere sweeps over plain values, in {file}"
            raise UserError(problem, key=f"hydra.sweeper.params.{name}")
    if math.prod(_runs(name, value) for name, value in params.items()) > _MOST_RUNS:
        problem = f"a config from elsewhere sweeps over at most {_MOST_RUNS:,} runs, in {file}"
        raise UserError(problem, key="hydra.sweeper.params", value=params)
    if options.get("overwrite", False) is not False:
        problem = f"results are replaced only where the command line says so, in {file}"
        raise UserError(problem, key="overwrite", value=options["overwrite"])


def _runs(key: Any, value: Any) -> float:
    """How many values an entry of hydra.sweeper.params has; 1 where Hydra will refuse it."""
    try:
        override = OverridesParser.create().parse_override(f"{key}={value}")
        sweep = override.value()
    except HydraException:
        return 1
    if isinstance(sweep, RangeSweep):
        start, stop, step = (float(end or 0) for end in (sweep.start, sweep.stop, sweep.step))
        return abs(stop - start) / abs(step) if step else math.inf
    return str(value).count(",") + 1 if override.is_sweep_override() else 1


def check_composed(config: DictConfig) -> None:
    """Refuse what no configuration may ask for, wherever it comes from, before Hydra uses it."""
    hydra = _container(config).get("hydra")
    if not isinstance(hydra, Mapping):
        raise UserError("Hydra's options must be there", key="hydra", value=hydra)
    for name, problem in _NEVER.items():
        value = _at(hydra, name)
        if value:
            raise UserError(problem, key=f"hydra.{name}", value=value)
    _check_plugin(hydra.get("launcher"), "hydra.launcher", LAUNCHERS)
    _check_plugin(hydra.get("sweeper"), "hydra.sweeper", SWEEPERS)
    for name in ("job_logging", "hydra_logging"):
        _check_logging(hydra.get(name), f"hydra.{name}")
    for place in hydra.get("searchpath") or []:
        _check_place(place)
    for key in ("run.dir", "sweep.dir"):
        if not str(_at(hydra, key) or "").strip():
            raise UserError("it must be a folder", key=f"hydra.{key}", value="''")
    options = {key: value for key, value in _container(config).items() if key != "hydra"}
    for key, value in leaves(options, ""):
        if key.endswith("._target_") or key in ("model.bottom", "model.top"):
            refuse_unwritable(value, key)
    typed = [word.partition("=")[0].lstrip("+") for word in _at(hydra, "overrides.task") or []]
    _check_stores(options.get("logger"), typed)
    if _at(hydra, "job.config_name") != "audit":
        name = _quietly(lambda: OmegaConf.select(config, "name"), config)
        if name is not None:
            run_name(name)


def _check_plugin(node: Any, key: str, known: Mapping[str, str]) -> None:
    """A launcher or sweeper: a known class, and among its options no class at all."""
    target = node.get("_target_") if isinstance(node, Mapping) else node
    group = key.replace(".", "/")
    if target not in known.values():
        problem = f"it is no launcher or sweeper that vflbench knows: choose {group}= {', '.join(known)}"
        raise UserError(problem, key=f"{key}._target_", value=target)
    for name, value in leaves(node, key):
        parts = name.removeprefix(f"{key}.").split(".")
        if name != f"{key}._target_" and any(re.match(r"_\w+_(\[|$)", part) for part in parts):
            raise UserError("its options are values, and name nothing to call", key=name, value=value)


def _check_logging(node: Any, key: str) -> None:
    """Handlers of Python's own, without factories and references to objects."""
    if node is None or node == {}:
        return
    if not isinstance(node, Mapping):
        raise UserError(f"choose {key.replace('.', '/')}= {', '.join(LOGGING)}", key=key, value=node)
    for name, value in leaves(node, key):
        last = name.rpartition(".")[2]
        names_code = last == "class" and value not in _LOG_CLASSES
        refers = isinstance(value, str) and re.match(r"\s*\w+://", value) and value not in _LOG_STREAMS
        if "()" in name.split(".") or names_code or refers:
            problem = f"a log takes no code from options; choose {key.replace('.', '/')}= {', '.join(LOGGING)}"
            raise UserError(problem, key=name, value=value)


def _check_place(place: Any) -> None:
    """An entry of hydra.searchpath: reading configs from a package would import it."""
    if not isinstance(place, str) or ("://" in place and not place.startswith("file://")):
        raise UserError(
            "it must be a list of folders: configs are not read from packages", key="hydra.searchpath", value=place
        )


def _check_stores(loggers: Any, typed: Sequence[str]) -> None:
    """Where a logger sends what it is given: only the user says it, as it may be another's server."""
    for key, value in leaves(loggers, "logger"):
        if key.count(".") < 2 and isinstance(value, str):
            raise UserError("it must be a mapping of options, and no reference to others", key=key, value=value)
    for name, node in loggers.items() if isinstance(loggers, Mapping) else ():
        uri = node.get("uri", "auto") if isinstance(node, Mapping) else "auto"
        if uri != "auto" and not {f"logger.{name}.uri", f"logger.{name}", "logger"} & set(typed):
            problem = "where results are sent is said on the command line, not by a config alone"
            raise UserError(f"{problem}: logger.{name}.uri=...", key=f"logger.{name}.uri", value=uri)


def _quietly(value: Callable[[], Any], config: DictConfig) -> Any:
    """A value that may depend on what is missing yet, which the run itself reports."""
    try:
        with current_config(config):
            return value()
    except Exception:
        return None


def _container(config: Any) -> dict[Any, Any]:
    """As it was written: nothing is resolved."""
    plain = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    return plain if isinstance(plain, dict) else {}


def _at(node: Any, key: str) -> Any:
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _is_under(key: str, above: str) -> bool:
    return key == above or key.startswith(f"{above}.")
