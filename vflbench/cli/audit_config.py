"""The options of an audit: configs/audit.yaml, composed from the words after `vflbench audit RECORDING`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from vflbench.attacks.base import Attack
from vflbench.cli.build import KEYED, build_loggers, component, construct
from vflbench.cli.catalog import choices
from vflbench.cli.guard import guarded
from vflbench.cli.hydra_internals import current_config
from vflbench.cli.mistakes import describe
from vflbench.cli.plugins import recorded_folders
from vflbench.cli.resolvers import names, plain
from vflbench.cli.run_folder import run_name
from vflbench.cli.shared_files import is_ours, read
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.identity import digest
from vflbench.results.loggers.base import Logger
from vflbench.run.audited import AuditOptions
from vflbench.run.identity import origin_of, refuse_edited
from vflbench.run.sources import plugin_digests

CONFIG_NAME = "audit"
_KEYS = ("recording", "labels", "seed", "overwrite", "audit", "name", "attack", "logger")
_HELP = "vflbench audit --help"


@dataclass(frozen=True)
class AuditPlan:
    """An audit that was asked for.

    config: resolved, as config.yaml has it. unusable: attack -> why it can't be built, where all were asked for. named:
    whether attacks were chosen by name. choices: group -> what was chosen. plugins: digests of their source. origin: what
    decides the numbers beside the options.
    """

    config: dict[str, Any]
    attacks: Mapping[str, Attack]
    unusable: Mapping[str, str]
    wanted: AuditOptions
    loggers: Mapping[str, Logger]
    overwrite: bool
    named: bool
    overrides: Sequence[str]
    choices: Mapping[str, Any]
    plugins: Mapping[str, str]
    origin: Mapping[str, Any]

    @property
    def folder_name(self) -> str:
        """audit_RECORDING_ATTACKS_DIGEST."""
        return f"{self.config['name']}_{digest(self.config, self.origin)}"


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
        plugins = plugin_digests(resolved, recorded_folders(config))
        refuse_edited(recorded_folders(config), origin)
        unknown = [key for key in resolved if key not in _KEYS]
        if unknown:
            raise UserError("there is no such option in an audit", key=unknown[0], see=_HELP)
        with_options = {word.lstrip("+").split(".")[1] for word in words if word.lstrip("+").startswith("attack.")}
        attacks, unusable = _attacks(options, None if is_named else with_options)
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
            loggers=build_loggers(options),
            overwrite=options.overwrite,
            named=is_named,
            overrides=words,
            choices=dict(config.hydra.runtime.choices),
            plugins=plugins,
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


def _attacks(options: DictConfig, asked: set[str] | None) -> tuple[dict[str, Attack], dict[str, str]]:
    """Attacks by name, and why others can't be built; of those that were asked for by name, None for all, each must be."""
    attacks: dict[str, Attack] = {}
    unusable: dict[str, str] = {}
    nodes = options.get("attack") or {}
    if not isinstance(nodes, DictConfig | dict):
        raise UserError("it must be a name or a list of names", key="attack", value=nodes, see="vflbench list attack")
    for name, node in {str(name): node for name, node in nodes.items()}.items():
        try:
            attacks[name] = component(plain(node, throw_on_missing=True), f"attack.{name}", KEYED["attack"])
        except Exception as error:
            text = describe(error)
            if asked is None or name in asked or text is None:
                raise
            unusable[name] = text
    return attacks, unusable


def slug(name: str) -> str:
    """A recording's name as part of a folder's."""
    return "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in name)[:60] or "recording"


def absolute(path: str | os.PathLike[str]) -> Path:
    """Without following links: the path as the user knows it."""
    return Path(os.path.abspath(os.path.expanduser(path)))
