"""`vflbench train`: one run, or with -m a sweep."""

import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from vflbench.cli.config import (
    check_folder,
    check_others,
    others,
    plain,
    recorded_folders,
    searched,
    split_plugins,
    use_plugins,
)
from vflbench.cli.environment import leave_working_folder, wait_passively
from vflbench.cli.errors import fail, wants_traceback
from vflbench.cli.privacy_file import with_privacy
from vflbench.cli.run_options import check_options
from vflbench.cli.sweep import JobOutcome, Status, finished_before, outcome_line, outcome_of
from vflbench.cli.words import hydra_flags, hydra_words, with_quoted_marks
from vflbench.errors import UserError
from vflbench.places import config_folder, pip_install
from vflbench.results.folder import (
    TABLE,
    BusyError,
    Earlier,
    FolderError,
    alone_in,
    leave_error,
    look,
    other_versions,
    read_summary,
    recorded_config,
    remove_if_empty,
)
from vflbench.results.terminal import path_text, wrapped
from vflbench.run.provenance import import_from, origin_of, rounding_notices

HYDRA_OPTIONS = [
    "hydra/job_logging=disabled",
    "hydra/hydra_logging=disabled",
    "hydra/launcher=processes",
    "hydra/sweeper=runs",
    "hydra.output_subdir=null",
    "hydra.job.name=vflbench",
    "hydra.run.dir=outputs/${name}_${digest:}",
    "hydra.sweep.dir=outputs",
    "hydra.sweep.subdir=${name}_${digest:}",
]
"""The hydra options of train.yaml, for a config of another name: the config.yaml of a finished run has none."""


_EXTRAS = {
    "joblib": ("joblib", "hydra_plugins.hydra_joblib_launcher"),
    "submitit_local": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
    "submitit_slurm": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
}
"""Launcher -> its extra, and the package without which it can't begin."""


def train(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line and call `train_one` once or, with -m, many times."""
    named, words = split_plugins(arguments)
    use_plugins(named)
    sys.argv = ["vflbench train", *with_quoted_marks(with_privacy(words))]
    hand_over_to_hydra(train_one)


def hand_over_to_hydra(task: Callable[[DictConfig], Any], config: str = "train") -> None:
    """Hydra reads sys.argv, composes train.yaml or the config of that name, and calls `task` with it.

    What configs of others may not set is refused before Hydra acts on it.
    """
    typed = hydra_words(sys.argv[1:], sys.argv[0])
    others[:] = [Path(os.path.abspath(folder)) for folder in (typed.config_path, typed.config_dir) if folder]
    overrides, name = typed.overrides, typed.config_name or config
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(
            "it leads out of the folder of configs; give its own folder as --config-dir", key="--config-name", value=name
        )
    if typed.config_name:
        overrides = [*HYDRA_OPTIONS, *overrides]  # before the user's, so that those win
    for extra, package in (_EXTRAS[word.partition("=")[2]] for word in overrides if word in _LAUNCHERS):
        if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
            raise UserError(f"it needs an extra: {pip_install(extra)}", key="hydra/launcher")
    if others:
        check_others(name, overrides)
    if typed.help:
        print(_help(name, overrides))
        return
    sys.argv[1:] = [*overrides, *hydra_flags(typed)]
    hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=name)(task)()


_LAUNCHERS = [f"hydra/launcher={name}" for name in _EXTRAS]


def _help(name: str, overrides: list[str]) -> str:
    from vflbench.cli.help import options_text  # late: runs need none

    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        load = GlobalHydra.instance().config_loader().load_configuration
        config = load(name, overrides, RunMode.MULTIRUN, validate_sweep_overrides=False)
    return options_text(config, [config_folder(), *searched])


def train_one(config: DictConfig) -> Any:
    """One run, in the folder that Hydra chose. Returns its test AUC; in a sweep, its JobOutcome."""
    wait_passively()  # workers of a sweep begin here
    leave_working_folder()
    import_from(recorded_folders(config))
    from vflbench.cli.mistakes import describe

    hydra_config = HydraConfig.get()
    in_sweep, folder = str(hydra_config.mode).endswith("MULTIRUN"), Path(hydra_config.runtime.output_dir)
    try:
        outcome = run_and_report(config, in_sweep=in_sweep)
    except Exception as error:
        text = describe(error)
        if in_sweep and not isinstance(error, BrokenPipeError):
            reason = text or f"{type(error).__name__}: {error}"
            if wants_traceback():
                traceback.print_exc()
            if not isinstance(error, FolderError):
                leave_error(folder, reason, error)
            return JobOutcome(Status.BUSY if isinstance(error, BusyError) else Status.FAILED, reason=reason)
        remove_if_empty(folder)
        if text is None or wants_traceback() or isinstance(error, BrokenPipeError):
            raise
        fail(text)  # here: Hydra would add lines of its own
    if in_sweep:
        if not str(hydra_config.launcher.get("_target_")).endswith(".Processes"):  # which prints it when it hears of it
            print(outcome_line(outcome, folder), flush=True)
        return dataclasses.replace(outcome, folder=os.path.abspath(folder))
    if outcome.reason:
        fail(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return outcome.test_auc


def run_and_report(config: DictConfig, *, in_sweep: bool) -> JobOutcome:
    """Build the experiment, run or resume it, draw and print; a run that was finished before is only shown.

    The outcome is a failure if the run reached its end and yet counts as failed. A run that began and then fails leaves
    error.txt. After a mistake in the options, the folder is as it was.
    """
    hydra_config = HydraConfig.get()
    # The config.yaml of a run is there to be run again, which must not replace that run.
    resolved = plain(config) | {"overwrite": False}
    folders = recorded_folders(config)
    origin = origin_of(resolved, folders)
    folder = Path(hydra_config.runtime.output_dir)
    earlier_outcome = finished_before(folder, resolved, origin) if config.get("overwrite") is False else None
    if earlier_outcome is not None:
        if resolved != recorded_config(folder):  # in options that change no result; the others are as they were
            check_options(config)
        if not in_sweep:
            show_finished(folder, resolved["device"])
        return earlier_outcome
    check_options(config)

    from tqdm import tqdm  # late, as the rest: it imports what trains

    from vflbench.cli.build import build
    from vflbench.cli.record import Started, record
    from vflbench.report.terminal import result_text

    experiment = build(config)
    settings = experiment.settings
    if not in_sweep:
        check_folder(hydra_config.run.dir, folder)
    with alone_in(folder):
        earlier = Earlier.NOTHING if settings.overwrite else look(folder, resolved, origin)
        if earlier is Earlier.FINISHED:  # since we looked first
            return dataclasses.replace(outcome_of(read_summary(folder)), status=Status.SKIPPED)
        for line in other_versions(folder, resolved, origin) if earlier is Earlier.NOTHING else ():
            tqdm.write("\n".join(wrapped(line, "  ")))
        started = Started(
            resolved,
            list(map(str, hydra_config.overrides.task)),
            dict(hydra_config.runtime.choices),
            list(map(str, folders)),
            origin,
            overwrite=settings.overwrite,
        )
        if experiment.engine.starts_processes:
            elsewhere = import_module("vflbench.hosts.elsewhere")  # a room above: it starts runs of this one
            outcome = elsewhere.record_elsewhere(started, experiment, folder, in_sweep=in_sweep)
        else:
            outcome = record(started, experiment, folder, in_sweep=in_sweep)
    if not in_sweep:
        print(result_text(folder, colour=sys.stdout.isatty()), flush=True)
    return outcome


def show_finished(folder: Path, device: str) -> None:
    """Print the results of a run that was finished before. device: an option."""
    from vflbench.report.terminal import result_text, write_table
    from vflbench.run.settings import choose_device

    print(f"finished before, so not computed again (overwrite=true would): {path_text(folder)}")
    for notice in rounding_notices(folder, str(choose_device(device))):
        print(notice)
    if not (folder / TABLE).exists():
        with suppress(OSError):
            write_table(folder)
    print(result_text(folder, colour=sys.stdout.isatty()), flush=True)
