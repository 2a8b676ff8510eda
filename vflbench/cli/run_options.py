"""The options of a run that need nothing that trains: settings, loggers, and the dataset alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, MissingMandatoryValue

from vflbench.cli.components import component, construct, named
from vflbench.cli.config import plain, run_name
from vflbench.cli.groups import COMPONENTS
from vflbench.errors import UserError
from vflbench.results.loggers import Logger

if TYPE_CHECKING:
    from vflbench.data.base import Dataset
    from vflbench.run.settings import Settings

SETTINGS = ("epochs", "batch_size", "seed", "device", "precision", "log_every", "checkpoint", "overwrite", "record")


def checked(config: DictConfig | Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a run as plain values: all that must be given, and no other names. Raises UserError."""
    try:
        nodes = plain(config, throw_on_missing=True) if isinstance(config, DictConfig) else config
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    known = {*COMPONENTS, *SETTINGS, "audit", "name"}
    for key in nodes:
        if key == "privacy":
            raise UserError("it is read from the command line alone, as --privacy FILE", key="privacy")
        if key not in known:
            raise UserError("there is no such option", key=str(key), see="vflbench train --cfg job")
    run_name(nodes.get("name"))
    return nodes


def build_settings(nodes: Mapping[str, Any]) -> "Settings":
    """The options that belong to no component. nodes: as `checked` returns them."""
    from vflbench.run.settings import Audit, Settings  # late: it loads torch, and help and mistakes need none

    audit = construct(Audit, nodes.get("audit", {}), "audit")
    return construct(Settings, {k: nodes[k] for k in SETTINGS if k in nodes} | {"audit": audit}, "")


def build_loggers(config: DictConfig | Mapping[str, Any]) -> dict[str, Logger]:
    """The loggers, by name: they get everything that the recorder writes."""
    nodes = plain(config) if isinstance(config, DictConfig) else config
    return named(nodes.get("logger") or {}, "logger", Logger)


def check_options(config: DictConfig) -> None:
    """Raise UserError for a mistake in the options that belong to no component, or in loggers: none of them needs torch."""
    nodes = checked(config)
    build_settings(nodes)
    build_loggers(nodes)


def build_dataset(config: DictConfig) -> "Dataset":
    """The dataset alone. The other options may be wrong."""
    from vflbench.data.base import Dataset

    try:
        node = plain(config.dataset, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise _missing(error) from error
    return component(node, "dataset", Dataset)


def _missing(error: MissingMandatoryValue) -> UserError:
    key = str(error.full_key or "an option")
    is_class = key in ("model.bottom", "model.top")
    example = "FILE" if key.endswith("path") else "MODULE:CLASS" if is_class else "VALUE"
    return UserError(f"it must be given, as {key}={example}", key=key)
