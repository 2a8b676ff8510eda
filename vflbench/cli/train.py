"""`vflbench train` and `vflbench.train`: one run, or with -m a sweep."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from vflbench.cli.components import check_options
from vflbench.cli.config import (
    check_folder,
    check_others,
    composed,
    current_config,
    others,
    own_options,
    plain,
    recorded_folders,
    searched,
    split_plugins,
    use_plugins,
    with_privacy,
)
from vflbench.cli.main import Words, fail, fail_with, prepare_process, wants_traceback
from vflbench.cli.mistakes import describe
from vflbench.cli.sweep import JobOutcome, Status, finished_before, outcome_line, outcome_of
from vflbench.errors import UserError
from vflbench.places import config_folder, pip_install
from vflbench.results.folder import (
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
    "hydra/launcher=joblib": ("joblib", "hydra_plugins.hydra_joblib_launcher"),
    "hydra/launcher=submitit_local": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
    "hydra/launcher=submitit_slurm": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
}
"""Choice of a launcher -> its extra, and the package without which it can't begin."""


def command(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line and call `train_one` once or, with -m, many times."""
    named, words = split_plugins(arguments)
    use_plugins(named)
    sys.argv = ["vflbench train", *with_quoted_marks(with_privacy(words))]
    hand_over_to_hydra(train_one)


def hydra_words(words: Sequence[str], command: str) -> argparse.Namespace:
    """The words of a command that Hydra reads: flags, and the `overrides` among them. Raises UserError for other flags."""
    parser = Words(prog=command, add_help=False)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    for name, short in (("help", "h"), ("run", "r"), ("multirun", "m"), ("shell-completion", "sc")):
        parser.add_argument(f"--{name}", f"-{short}", action="store_true")
    parser.add_argument("--hydra-help", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    for name, short in (("config-path", "cp"), ("config-name", "cn"), ("config-dir", "cd"), ("package", "p")):
        parser.add_argument(f"--{name}", f"-{short}")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    kinds = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=kinds)
    return parser.parse_intermixed_args(list(words))


def hydra_flags(typed: argparse.Namespace) -> list[str]:
    """The flags as Hydra takes them, but for those that name configs."""
    set_ = [name for name in ("run", "multirun", "shell_completion", "hydra_help", "resolve") if getattr(typed, name)]
    valued = [(name, getattr(typed, name)) for name in ("package", "cfg", "info") if getattr(typed, name)]
    return [f"--{name.replace('_', '-')}" for name in set_] + [f"--{name}={value}" for name, value in valued]


_NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "bar": "|"}
_MARK = re.compile(
    rf"(\+{{0,2}}dataset\.(?:delimiter|decimal)=)([^\w\s'\"\\]|\t|{'|'.join(map(re.escape, _NAMED))})", re.ASCII
)


def with_quoted_marks(words: Sequence[str]) -> list[str]:
    """The same words with quotes around a delimiter or decimal mark: the shell took those that were typed, and to Hydra a
    bare comma is a list of nothing. The mark is one sign, or named in a word.
    """
    matches = [(word, _MARK.fullmatch(word)) for word in words]
    return [f"{match[1]}'{_NAMED.get(match[2], match[2])}'" if match else word for word, match in matches]


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
    for extra, package in (_EXTRAS[word] for word in overrides if word in _EXTRAS):
        if find_spec(package) is None:
            raise UserError(f"it needs an extra: {pip_install(extra)}", key="hydra/launcher")
    if others:
        check_others(name, overrides)
    if typed.help:
        from vflbench.cli.help import options_text  # late: runs need none

        print(options_text(composed(name, overrides, RunMode.MULTIRUN), [config_folder(), *searched]))
        return
    sys.argv[1:] = [*overrides, *hydra_flags(typed)]
    hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=name)(task)()


def train_one(config: DictConfig) -> Any:
    """One run, in the folder that Hydra chose. Returns its test AUC; in a sweep, its JobOutcome."""
    prepare_process()  # workers of a sweep begin here
    import_from(recorded_folders(config))
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
                outcome = run_and_report(own_options(config), folder, in_sweep=False)
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
    check_options(config)

    from tqdm import tqdm  # late, as the rest: it imports what trains

    from vflbench.cli.build import Started, build, record
    from vflbench.report.terminal import result_text

    experiment = build(config)
    settings, hydra_config = experiment.settings, HydraConfig.get()
    if not in_sweep:
        check_folder(hydra_config.run.dir, folder)
    with alone_in(folder):
        earlier = Earlier.NOTHING if settings.overwrite else look(folder, resolved, origin)
        if earlier is Earlier.FINISHED:  # since we looked first
            return replace(outcome_of(read_summary(folder)), status=Status.SKIPPED)
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
            record = import_module("vflbench.hosts.one_machine").record_elsewhere  # a room above: it starts runs of this one
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
