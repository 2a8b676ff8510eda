"""The options of an audit: configs/audit.yaml, composed from the words after `vflbench audit RECORDING`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench.cli.audit_plan import AuditPlan, slug
from vflbench.cli.components import construct, named
from vflbench.cli.every_attack import built
from vflbench.cli.guard import guarded
from vflbench.cli.hints import choices
from vflbench.cli.hydra_internals import current_config
from vflbench.cli.mistakes import describe
from vflbench.cli.plugins import recorded_folders
from vflbench.cli.resolvers import names, plain
from vflbench.cli.run_folder import run_name
from vflbench.cli.shared_files import is_ours, read
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.loggers.base import Logger
from vflbench.run.offline import AuditOptions
from vflbench.run.provenance import origin_of

CONFIG_NAME = "audit"
_KEYS = ("recording", "labels", "seed", "overwrite", "audit", "name", "attack", "logger")
_HELP = "vflbench audit --help"


@contextmanager
def audits_own_words() -> Iterator[None]:
    """While entered, what goes wrong is said in terms of `vflbench audit`."""
    try:
        yield
    except Exception as error:
        text = describe(error)
        if text is None or isinstance(error, OSError):
            raise
        for others in ("vflbench train --cfg job", "vflbench train --help"):
            text = text.replace(others, _HELP)
        raise UserError(text.replace("In 'audit': ", "")) from error


def plan(recording: Path, words: Sequence[str], plugins: Sequence[Path], labels: str | None = None) -> AuditPlan:
    """words: KEY=VALUE. plugins: folders, which are in use already. Raises UserError for what can't be done."""
    with audits_own_words():
        return _plan(recording, list(words), [config_folder(), *plugins], labels)


def _plan(recording: Path, words: list[str], folders: list[Path], labels: str | None) -> AuditPlan:
    for word in words:
        if word.split("=")[0].lstrip("+") in ("recording", "labels"):
            raise UserError("it is given as RECORDING and --labels FILE", key=word.split("=")[0])
    is_named = any(word.split("=")[0].lstrip("+") == "attack" for word in words)
    every = [] if is_named else [f"attack=[{','.join(single_attacks(folders))}]"]
    with guarded(), initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose(CONFIG_NAME, overrides=[*every, *words], return_hydra_config=True)
    with open_dict(config):
        config.recording, config.labels = str(recording), labels
        if config.name is None:
            chosen = names("attack", config) if is_named else "every"
            config.name = f"audit_{slug(recording.name)}_{chosen}"
        run_name(config.name)
    with current_config(config):
        options = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        resolved = plain(options) | {"overwrite": False}
        origin = origin_of(resolved, recorded_folders(config))
        unknown = [key for key in resolved if key not in _KEYS]
        if unknown:
            raise UserError("there is no such option in an audit", key=unknown[0], see=_HELP)
        with_options = {word.lstrip("+").split(".")[1] for word in words if word.lstrip("+").startswith("attack.")}
        nodes = options.get("attack") or {}
        attacks, unusable = built(nodes, None if is_named else with_options, partial(plain, throw_on_missing=True))
        settings = {"seed": resolved["seed"], "labels": labels, **(resolved["audit"] or {})}
        wanted = construct(AuditOptions, {k: v for k, v in settings.items() if k in ("seed", "labels")}, "")
        wanted = construct(AuditOptions, {**vars_of(wanted), **(resolved["audit"] or {})}, "audit")
        if not isinstance(options.overwrite, bool):
            raise UserError("it must be true or false", key="overwrite", value=options.overwrite, see=_HELP)
        return AuditPlan(
            config=resolved,
            attacks=attacks,
            unusable=unusable,
            wanted=wanted,
            loggers=named(plain(options).get("logger") or {}, "logger", Logger),
            overwrite=options.overwrite,
            named=is_named,
            overrides=words,
            choices=dict(config.hydra.runtime.choices),
            origin=origin,
        )


def vars_of(wanted: AuditOptions) -> dict[str, Any]:
    """The two options that don't stand under `audit`."""
    return {"seed": wanted.seed, "labels": wanted.labels}


def single_attacks(folders: Sequence[Path]) -> list[str]:
    """Every attack in these config folders: the entries of the group that are no set of several, and not `none`."""
    return [name for name in choices(list(folders), "attack") if any(_is_single(folder, name) for folder in folders)]


def _is_single(folder: Path, name: str) -> bool:
    file = folder / "attack" / f"{name}.yaml"
    if not file.exists():
        return False
    node = OmegaConf.load(file) if is_ours(file) else read(file)
    entry = node.get(name) if isinstance(node, DictConfig | dict) and list(node) == [name] else None
    return isinstance(entry, DictConfig | dict) and "_target_" in entry
