"""`vflbench train`: one run, or with -m a sweep."""

import dataclasses
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from tqdm import tqdm

from vflbench.cli.environment import leave_working_folder, wait_passively
from vflbench.cli.errors import fail, wants_traceback
from vflbench.cli.guard import guarded
from vflbench.cli.plugins import recorded_folders, split_plugins, use_plugins
from vflbench.cli.privacy_file import with_privacy
from vflbench.cli.resolvers import plain  # the configs need this module, in workers of sweeps too
from vflbench.cli.run_folder import check_folder
from vflbench.cli.sweep import JobOutcome, Status, Sweep, outcome_of
from vflbench.cli.trust import check_flags
from vflbench.places import config_folder
from vflbench.results.folder import (
    BusyError,
    Earlier,
    FolderError,
    alone_in,
    clear_error,
    leave_error,
    look,
    other_versions,
    remove_if_empty,
)
from vflbench.run.plugin_modules import import_from

HYDRA_OPTIONS = [
    "hydra/job_logging=disabled",
    "hydra/hydra_logging=disabled",
    "hydra.output_subdir=null",
    "hydra.job.name=vflbench",
    "hydra.run.dir=outputs/${name}_${digest:}",
    "hydra.sweep.dir=outputs",
    "hydra.sweep.subdir=${name}_${digest:}",
]
"""The hydra options of train.yaml, for a config of another name: the config.yaml of a finished run has none."""


def train(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line and call `train_one` once or, with -m, many times."""
    from vflbench.cli.launch import surviving

    named, words = split_plugins(arguments)
    use_plugins(named)
    words = with_privacy(words)
    if any(word.split("=")[0] in ("--config-name", "-cn") for word in words):
        # Next to the user's overrides, which argparse expects together, and before them, so that the user's win.
        is_override = [not word.startswith("-") and "=" in word for word in words]
        place = is_override.index(True) if any(is_override) else len(words)
        words[place:place] = HYDRA_OPTIONS
    sys.argv = ["vflbench train", *words]
    sweep = Sweep()
    try:
        with surviving(sweep):
            hand_over_to_hydra(train_one)
    except KeyboardInterrupt:
        if sweep.jobs:
            print(f"\n{sweep.stop_message()}", file=sys.stderr)
        raise
    finally:
        sweep.close()
    if sweep.jobs:
        print(sweep.table(), flush=True)
    if sweep.failed:
        sys.exit(1)


def hand_over_to_hydra(task: Callable[[DictConfig], Any], config: str = "train") -> None:
    """Hydra reads sys.argv, composes train.yaml or the config of that name, and calls `task` with it.

    What the trust boundary doesn't allow is refused before Hydra acts on it.
    """
    check_flags(sys.argv[1:])
    with guarded():
        hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=config)(task)()


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
        return dataclasses.replace(outcome, folder=os.path.abspath(folder))
    if outcome.reason:
        fail(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return outcome.test_auc


def run_and_report(config: DictConfig, *, in_sweep: bool) -> JobOutcome:
    """Build the experiment, run or resume it, draw and print; a run that was finished before is only shown.

    The outcome is a failure if the run reached its end and yet counts as failed. A run that began and then fails leaves
    error.txt. After a mistake in the options, the folder is as it was.
    """
    from vflbench.cli.build import build
    from vflbench.cli.elsewhere import record_elsewhere
    from vflbench.cli.record import Started, record
    from vflbench.results.report.table import final_table
    from vflbench.run.identity import origin_of, refuse_edited
    from vflbench.run.sources import plugin_digests

    hydra_config = HydraConfig.get()
    # The config.yaml of a run is there to be run again, which must not replace that run.
    resolved = plain(config) | {"overwrite": False}
    folders = recorded_folders(config)
    origin = origin_of(resolved, folders)  # read before plug-ins are imported, which is refused if they are edited between
    plugin_digests(resolved, folders)  # likewise: the sources of a process are read once
    refuse_edited(folders, origin, loaded_suffices=in_sweep)
    experiment = build(config)
    settings = experiment.settings
    folder = Path(hydra_config.runtime.output_dir)
    if not in_sweep:
        check_folder(hydra_config.run.dir, folder)
    with alone_in(folder):
        earlier = Earlier.NOTHING if settings.overwrite else look(folder, resolved, origin)
        clear_error(folder)
        if earlier is Earlier.FINISHED:
            return show_finished(folder, settings.device, in_sweep=in_sweep)
        for line in other_versions(folder, resolved, origin) if earlier is Earlier.NOTHING else ():
            tqdm.write(line)
        started = Started(
            resolved,
            list(map(str, hydra_config.overrides.task)),
            dict(hydra_config.runtime.choices),
            list(map(str, folders)),
            origin,
            overwrite=settings.overwrite,
        )
        begin = record if not experiment.engine.starts_processes else record_elsewhere
        outcome = begin(started, experiment, folder, in_sweep=in_sweep)
    if not in_sweep:
        print(final_table(folder, colour=sys.stdout.isatty()), flush=True)
    return outcome


def show_finished(folder: Path, device: str, *, in_sweep: bool) -> JobOutcome:
    """Print the results of a run that was finished before; in a sweep, the launcher reports it. device: an option."""
    from vflbench.results.read import read_summary
    from vflbench.results.report.table import final_table, number
    from vflbench.run.provenance import rounding_notices
    from vflbench.run.settings import choose_device

    outcome = outcome_of(read_summary(folder))
    notices = rounding_notices(folder, str(choose_device(device)))
    if not in_sweep:
        auc = number(outcome.test_auc)
        print(f"finished before, so not computed again (overwrite=true would): {folder}, test AUC {auc}")
    for notice in notices:
        print(notice)
    if not in_sweep:
        print(final_table(folder, colour=sys.stdout.isatty()), flush=True)
    return outcome if outcome.reason else JobOutcome(Status.SKIPPED, outcome.test_auc)
