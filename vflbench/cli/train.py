"""`vflbench train` and `vflbench.train`: one run, or with -m a sweep."""

import math
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from vflbench.cli.command_line import with_privacy
from vflbench.cli.components import check_options
from vflbench.cli.config import composed, current_config, plain, recorded_folders, run_options, use_plugins
from vflbench.cli.main import fail, fail_with, prepare_process, wants_traceback
from vflbench.cli.mistakes import describe
from vflbench.cli.sweep import JobOutcome, Status
from vflbench.errors import UserError
from vflbench.results.folder import (
    CONFIG,
    ERROR,
    LOCK,
    MARKS,
    BusyError,
    FolderError,
    alone_in,
    is_finished,
    leave_error,
    look,
    recorded_config,
    remove_if_empty,
)
from vflbench.results.terminal import path_text, wrapped
from vflbench.run.provenance import import_from, origin_of, rounding_notices


def train_one(config: DictConfig) -> Any:
    """One run, in the folder that Hydra chose. Returns its test AUC; in a sweep, its JobOutcome."""
    prepare_process()  # workers of a sweep begin here
    if folders := recorded_folders(config):
        import_from(folders)
    hydra_config = HydraConfig.get()
    in_sweep, folder = str(hydra_config.mode).endswith("MULTIRUN"), Path(hydra_config.runtime.output_dir)
    try:
        outcome = run_and_report(config, folder, in_sweep=in_sweep)
    except Exception as error:
        if in_sweep and not isinstance(error, BrokenPipeError):
            reason = describe(error) or f"{type(error).__name__}: {error}"
            if wants_traceback():
                traceback.print_exc()
            if not isinstance(error, FolderError):
                leave_error(folder, reason, error)
            return JobOutcome(Status.BUSY if isinstance(error, BusyError) else Status.FAILED, reason=reason)
        remove_if_empty(folder)
        fail_with(error)  # here: Hydra would add lines of its own
    if in_sweep:
        if not str(hydra_config.launcher.get("_target_")).endswith(".Processes"):  # which prints it when it hears of it
            print(outcome_line(outcome, folder), flush=True)
        return replace(outcome, folder=os.path.abspath(folder))
    if outcome.reason:
        fail(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return outcome.test_auc


def train(*overrides: str, plugins: Sequence[str | Path] = ()) -> Path:
    """Train and attack as `vflbench train OVERRIDES` does, and return the run's folder.

        folder = vflbench.train("dataset.rows=20000", "attack=[norm,spectral]", "defense=marvell")
        table = vflbench.load(folder)

    overrides: as on the command line, without -m. plugins: folders of code and configs of your own. A run that was finished
    before is not computed again. Raises UserError for what the command line refuses, and for a run that counts as failed.
    """
    use_plugins([str(folder) for folder in plugins])
    try:
        config = composed("train", with_privacy(overrides))
        with current_config(config):
            folder = Path(os.path.abspath(str(config.hydra.run.dir)))
            folder.mkdir(parents=True, exist_ok=True)
            try:
                outcome = run_and_report(run_options(config), folder, in_sweep=False)
            finally:
                remove_if_empty(folder)
    except Exception as error:
        text = describe(error)
        if text is None or isinstance(error, UserError):
            raise
        raise UserError(text) from error
    if outcome.reason:
        raise UserError(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return folder


def outcome_of(folder: Path) -> JobOutcome:
    """The outcome of the finished run in a folder: one that reached its end may still count as failed."""
    from vflbench.report.terminal import finished_text  # late, as below: it imports what reads tables
    from vflbench.report.words import line

    run = finished_text(folder)
    summary = run.summary
    test_auc = math.nan if summary.test_auc is None else summary.test_auc
    status = Status.FAILED if summary.failed else Status.DONE
    return JobOutcome(status, test_auc, summary.failed or "", words=line(run))


def finished_before(folder: Path, resolved: Mapping[str, Any], origin: Mapping[str, Any]) -> JobOutcome | None:
    """The outcome of a run that was finished in this folder; None for one that wasn't, or on which someone is at work.

    resolved: its options. origin: what else decides its numbers (`run.identity`).
    """
    if not is_finished(folder):
        return None
    with suppress(FolderError), alone_in(folder):  # which are raised again where the run begins
        if look(folder, resolved, origin):
            outcome = outcome_of(folder)
            return outcome if outcome.reason else replace(outcome, status=Status.SKIPPED)
    return None


def outcome_line(outcome: JobOutcome, folder: Path, place: str = "", which: str = "") -> str:
    """`done (3/8): leak AUC ...; seed=2`, and the folder. place: among the runs. which: of the sweep's runs it is."""
    from vflbench.report.words import number

    start = f"done ({place}): " if place else "done: "
    if outcome.status is Status.SKIPPED:
        start = "finished before, so not computed again (overwrite=true would): "
    what = outcome.words or f"test AUC {number(outcome.test_auc)}"
    edited = " (plug-ins, data or code were edited while this sweep ran)"
    lies = path_text(Path(outcome.folder)) + edited if outcome.folder not in ("", str(folder)) else path_text(folder)
    return "\n".join([*wrapped(f"{start}{what}{which}", "  "), f"  {lies}"])


_LOGS = {".log", ".txt", ".out", ".err"}  # what a shell writes there at the same time
_OURS = MARKS - {CONFIG} | {LOCK, ERROR}


def check_run_folder(typed: Any, folder: Path) -> None:
    """Raise UserError for a run's folder that is none, or that holds what no run has written.

    typed: the value of hydra.run.dir, which Hydra has made an absolute folder of.
    """
    if typed is None or not str(typed).strip() or "\0" in str(typed):
        raise UserError("it must name a folder", key="hydra.run.dir", value=repr(typed))
    try:
        names = os.listdir(folder) if folder.exists() else []
    except OSError as error:
        raise UserError(f"{error.strerror}", key="hydra.run.dir", value=typed) from error
    foreign = sorted(name for name in names if Path(name).suffix not in _LOGS)
    if foreign and _OURS.isdisjoint(names):
        listed = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
        problem = f"this folder holds what no run has written ({listed}); name a new one, or that of a run"
        raise UserError(problem, key="hydra.run.dir", value=typed)


def run_and_report(config: DictConfig, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """Build the experiment, run or resume it, draw and print; a run that was finished before is only shown.

    The outcome is a failure if the run reached its end and yet counts as failed. A run that began and then fails leaves
    error.txt. After a mistake in the options, the folder is as it was.
    """
    # The config.yaml of a run is there to be run again, which must not replace that run.
    resolved = plain(config) | {"overwrite": False}
    folders = recorded_folders(config)
    origin = origin_of(resolved, folders)
    earlier_outcome = finished_before(folder, resolved, origin) if config.get("overwrite") is False else None
    if earlier_outcome is not None:
        if resolved != recorded_config(folder):  # in options that change no result; the others are as they were
            check_options(config)
        if not in_sweep:
            show_finished(folder, resolved["device"])
        return earlier_outcome

    from vflbench.cli.build import Started, build, record
    from vflbench.report.terminal import result_text

    experiment = build(config)
    settings, hydra_config = experiment.settings, HydraConfig.get()
    if not in_sweep:
        check_run_folder(hydra_config.run.dir, folder)
    with alone_in(folder):
        if not settings.overwrite and look(folder, resolved, origin):  # since we looked first
            return replace(outcome_of(folder), status=Status.SKIPPED)
        started = Started(
            resolved,
            list(map(str, hydra_config.overrides.task)),
            dict(hydra_config.runtime.choices),
            list(map(str, folders)),
            origin,
            overwrite=settings.overwrite,
        )
        if experiment.engine.starts_processes:
            record = import_module("vflbench.hosts.run").record_with_remote_parties  # a room above
        outcome: JobOutcome = record(started, experiment, folder, in_sweep=in_sweep)
    if not in_sweep:
        print(result_text(folder, colour=sys.stdout.isatty()), flush=True)
    return outcome


def show_finished(folder: Path, device: str) -> None:
    """Print the results of a run that was finished before. device: an option."""
    from vflbench.report.terminal import result_text
    from vflbench.run.settings import choose_device

    print(f"finished before, so not computed again (overwrite=true would): {path_text(folder)}")
    for notice in rounding_notices(folder, str(choose_device(device))):
        print(notice)
    print(result_text(folder, colour=sys.stdout.isatty()), flush=True)
