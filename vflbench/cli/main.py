"""The front door: `vflbench train | prepare | report | list`."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import vflbench.cli.resolvers  # noqa: F401  (the configs need it, in worker processes as well)

COMMANDS = ("train", "prepare", "report", "list")

OWN_CONFIG = [
    "hydra/job_logging=disabled",
    "hydra/hydra_logging=disabled",
    "hydra.output_subdir=null",
    "hydra.job.name=vflbench",
    "hydra.run.dir=outputs/${name}_${digest:}",
    "hydra.sweep.dir=outputs",
    "hydra.sweep.subdir=${name}_${digest:}",
]
"""What train.yaml says of Hydra, for a config of another name: the config.yaml of a finished run says nothing of it."""

USAGE = """vflbench: who can read our labels, or our data, and what does protection cost?

  vflbench train                    train and attack a split network; the embedded data needs no file
  vflbench train --help             its options;  --cfg job shows them all as they would run
  vflbench prepare dataset=...      read a data set once, for all later runs; train does so by itself where it is needed
  vflbench report DIR [DIR ...]     one page on finished runs, with tables and figures; needs nothing that trains
  vflbench list [GROUP]             datasets, models, defenses, attacks, ... that can be chosen
  vflbench --version

Examples:
  vflbench train 'attack=[norm,spectral]' dataset=criteo dataset.path=train.txt.gz
  vflbench train -m defense=none,max_norm seed=0,1,2
  eval "$(vflbench -sc install=bash)"   # tab completion
"""


PREPARE_USAGE = """vflbench prepare: read a data set once, for all later runs; train does so by itself where it is needed.

  vflbench prepare dataset=criteo dataset.path='day_*.gz'
  vflbench prepare dataset=csv dataset.path=my.csv dataset.label=clicked

Takes the options of `vflbench train`, of which only dataset.* matters, and of these only what says how the text is read:
path, members, rows, bad_rows, max_bad_fraction; hour of avazu; label, positive, types and delimiter of csv. The result
lies in VFLBENCH_CACHE, or else in the platform's folder for caches.
"""


def main() -> None:
    """Entry point of the console script."""
    arguments = sys.argv[1:]
    command = arguments[0] if arguments else "--help"
    if command in ("-sc", "--shell-completion"):
        complete(arguments)
    elif command == "train":
        sys.argv = ["vflbench train", *arguments[1:]]
        report_errors(train)
    elif command == "prepare":
        sys.argv = ["vflbench prepare", *arguments[1:]]
        report_errors(prepare)
    elif command == "report":
        report_errors(lambda: report(arguments[1:]))
    elif command == "list":
        report_errors(lambda: list_choices(arguments[1:]))
    elif command == "--version":
        from vflbench import __version__

        print(f"vflbench {__version__}")
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        fail(f"vflbench {command}: there is no such command; there are {', '.join(COMMANDS)} (see: vflbench --help)")


def train() -> None:
    """Hand over to Hydra, which reads the command line and calls `train_one` once or, with -m, many times."""
    import hydra

    from vflbench.cli.launch import surviving
    from vflbench.cli.sweep import Sweep
    from vflbench.places import config_folder

    if any(word.split("=")[0] in ("--config-name", "-cn") for word in sys.argv):
        # Beside the user's overrides, which argparse wants in one run, and before them, so that theirs hold.
        is_override = [not word.startswith("-") and "=" in word for word in sys.argv]
        place = is_override.index(True) if any(is_override) else len(sys.argv)
        sys.argv[place:place] = OWN_CONFIG
    sweep = Sweep()
    try:
        with surviving(sweep):
            hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="train")(train_one)()
    except KeyboardInterrupt:
        if sweep.jobs:
            print(f"\n{sweep.told_when_stopped()}", file=sys.stderr)
        raise
    finally:
        sweep.close()
    if sweep.jobs:
        print(sweep.table(), flush=True)
    if sweep.failed:
        sys.exit(1)


def train_one(config: Any) -> Any:
    """One run, in the folder that Hydra chose. Returns its test AUC or, to a sweep, its outcome, whatever it is."""
    from hydra.core.hydra_config import HydraConfig

    from vflbench.cli.mistakes import describe
    from vflbench.cli.sweep import Outcome, Status
    from vflbench.results.folder import BusyError, FolderError, leave_error, remove_if_empty

    hydra_config = HydraConfig.get()
    make_importable([s.path for s in hydra_config.runtime.config_sources if s.schema == "file"])
    in_sweep, folder = str(hydra_config.mode).endswith("MULTIRUN"), Path(hydra_config.runtime.output_dir)
    try:
        outcome = run_and_report(config, hydra_config, in_sweep=in_sweep)
    except Exception as error:
        text = describe(error)
        if in_sweep and not isinstance(error, BrokenPipeError):
            reason = text or f"{type(error).__name__}: {error}"
            if wants_traceback():
                traceback.print_exc()
            if not isinstance(error, FolderError):
                leave_error(folder, reason, error)
            return Outcome(Status.BUSY if isinstance(error, BusyError) else Status.FAILED, reason=reason)
        remove_if_empty(folder)
        if text is None or wants_traceback() or isinstance(error, BrokenPipeError):
            raise
        fail(text)  # at once: Hydra would add lines of its own
    if in_sweep:
        return outcome
    if outcome.reason:
        fail(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return outcome.test_auc


def prepare() -> None:
    """Hydra reads the command line as for `train`; only the dataset matters."""
    import hydra

    from vflbench.cli.catalog import config_folder
    from vflbench.errors import UserError

    if any(word in ("-h", "--help") for word in sys.argv):
        print(PREPARE_USAGE)
        return
    if any(word in ("-m", "--multirun") for word in sys.argv):
        raise UserError("one data set at a time is prepared", key="-m")
    sys.argv.append("hydra.run.dir=.")  # nothing is written but the cache
    hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="train")(prepare_one)()


def prepare_one(config: Any) -> None:
    """The dataset in the cache, and a line on it."""
    from hydra.core.hydra_config import HydraConfig

    from vflbench.cli.build import build_dataset
    from vflbench.cli.mistakes import describe
    from vflbench.data.file_dataset import FileDataset
    from vflbench.errors import UserError

    make_importable([s.path for s in HydraConfig.get().runtime.config_sources if s.schema == "file"])
    try:
        dataset = build_dataset(config)
        if not isinstance(dataset, FileDataset):
            name = type(dataset).__name__
            raise UserError(f"{name} is read from no file, so there is nothing to prepare", key="dataset")
        print(dataset.prepare().line())
    except Exception as error:
        text = describe(error)
        if text is None or wants_traceback():
            raise
        fail(text)


def run_and_report(config: Any, hydra_config: Any, *, in_sweep: bool) -> Any:
    """Build and, alone in the run's folder, go on or begin, draw, print; what was finished before is only shown.

    Returns an Outcome, failed where a run came to its end and yet counts as failed. A run that began and then fails leaves
    error.txt; who only made a mistake finds the folder as it was.
    """
    from omegaconf import OmegaConf

    from vflbench.cli.build import build, build_loggers
    from vflbench.cli.mistakes import describe
    from vflbench.cli.sweep import outcome_of
    from vflbench.results.folder import Earlier, alone_in, clear_error, leave_error, look
    from vflbench.results.loggers.base import Loggers
    from vflbench.results.recorder import Recorder
    from vflbench.results.report.figures import draw
    from vflbench.results.report.table import final_table
    from vflbench.run.checkpoint import Checkpoint
    from vflbench.run.experiment import run
    from vflbench.run.provenance import provenance, source

    experiment = build(config)
    settings = experiment.settings
    # The config.yaml of a run is there to be run again, which must not replace what it stands beside.
    resolved = OmegaConf.to_container(config, resolve=True) | {"overwrite": False}
    folder = Path(hydra_config.runtime.output_dir)
    with alone_in(folder):
        earlier = Earlier.NOTHING if settings.overwrite else look(folder, resolved)
        clear_error(folder)
        if earlier is Earlier.FINISHED:
            return show_finished(folder, resolved, in_sweep=in_sweep)
        manifest = provenance(
            seed=settings.seed,
            overrides=list(hydra_config.overrides.task),
            choices=OmegaConf.to_container(hydra_config.runtime.choices),
            source=source(resolved),
        )
        quiet = in_sweep or not sys.stdout.isatty()
        recorder = Recorder(folder, OmegaConf.to_yaml(resolved), manifest, quiet=quiet, overwrite=settings.overwrite)
        recorder.bar, recorder.loggers = not in_sweep, Loggers(build_loggers(config), resolved)
        checkpoint = Checkpoint(folder, settings.checkpoint, fresh=settings.overwrite)
        try:
            summary = run(experiment, recorder, checkpoint)
            draw(folder)
            recorder.finish(summary)
            checkpoint.finish()
        except Exception as error:
            if recorder.begun:
                leave_error(folder, describe(error) or f"{type(error).__name__}: {error}", error)
            raise
        finally:
            recorder.loggers.stop()
    if not in_sweep:
        print(final_table(folder), flush=True)
    return outcome_of(summary)


def show_finished(folder: Path, config: Mapping[str, Any], *, in_sweep: bool) -> Any:
    """Say that these results are there already, and show them; in a sweep that is said once the run is over."""
    from vflbench.cli.sweep import Outcome, Status, outcome_of
    from vflbench.results.read import read_summary
    from vflbench.results.report.table import final_table, number
    from vflbench.run.provenance import changed_source

    outcome = outcome_of(read_summary(folder))
    notice = changed_source(config, folder)
    if not in_sweep:
        auc = number(outcome.test_auc)
        print(f"finished before, so not computed again (overwrite=true would): {folder}, test AUC {auc}")
    if notice:
        print(notice)
    if not in_sweep:
        print(final_table(folder), flush=True)
    return outcome if outcome.reason else Outcome(Status.SKIPPED, outcome.test_auc)


def report(arguments: Sequence[str]) -> None:
    """`vflbench report DIR [DIR ...]`."""
    from vflbench.results.report.sections import Wishes

    parser = argparse.ArgumentParser(
        prog="vflbench report", description="One page on finished runs, with tables and figures."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder with runs in or under it")
    parser.add_argument(
        "--x", default="", help="the plane's horizontal axis: test_auc, test_accuracy, seconds, bytes_sent, ..."
    )
    parser.add_argument(
        "--y", default="", help="its vertical axis: leak_auc, leak_distance, leak_auc:norm, leak_accuracy, ..."
    )
    parser.add_argument("--by", default="", help="options along which sweeps are drawn, with commas between; all that vary")
    parser.add_argument("--layer", help="where the leak is taken: a layer's name, or all; the cut layer, if left out")
    parser.add_argument("--out", type=Path, help="the folder for the page; the first DIR's `report`, if left out")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    options = parser.parse_args(arguments)
    from vflbench.results.report.site import write_report  # takes its time to import, which --help needn't wait

    by = tuple(filter(None, options.by.split(",")))
    page = write_report(
        options.folders,
        options.out or options.folders[0] / "report",
        Wishes(x=options.x, y=options.y, by=by, layer=options.layer),
    )
    print(page)
    if options.open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def list_choices(arguments: Sequence[str]) -> None:
    """`vflbench list [GROUP] [--config-dir DIR]`."""
    from vflbench.cli.catalog import catalog, config_folder, table
    from vflbench.errors import UserError

    parser = argparse.ArgumentParser(prog="vflbench list", description="What can be chosen, one line each.")
    parser.add_argument("group", nargs="?", help="dataset, model, defense, attack, ...; all if left out")
    parser.add_argument("--config-dir", "-cd", help="a folder with configs of your own")
    options = parser.parse_args(arguments)
    folders = [config_folder()]
    if options.config_dir is not None:
        if not Path(options.config_dir).is_dir():
            raise UserError("there is no such folder", key="--config-dir", value=options.config_dir)
        folders.insert(0, Path(options.config_dir))
        make_importable([options.config_dir])
    print(table(catalog(folders, options.group)))


def complete(arguments: Sequence[str]) -> None:
    """Tab completion: Hydra's, told of a command line without the word `train` or `prepare`."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    typing_command = len(words) < 2 or (len(words) == 2 and not line.endswith(" "))
    if arguments[1:] == ["query=bash"] and (typing_command or words[1] == "list"):
        from vflbench.cli.catalog import GROUPS

        print(" ".join(COMMANDS if typing_command else GROUPS))
        return
    if words[1:2] == ["report"]:
        return  # folders, which the shell knows
    if len(words) > 1:
        os.environ["COMP_LINE"] = re.sub(r"^(\s*\S+\s+)(train|prepare)\b", r"\1", line)
    report_errors(train)


def make_importable(folders: Sequence[str]) -> None:
    """Let a user's own classes be found: in the folder given as --config-dir, then in the current one."""
    for folder in [*(str(Path(f).resolve()) for f in folders), os.getcwd()]:
        if folder not in sys.path:
            sys.path.append(folder)  # last, so that nothing installed is shadowed


def wants_traceback() -> bool:
    return os.environ.get("VFLBENCH_TRACEBACK") == "1"


def report_errors(command: Callable[[], None]) -> None:
    """Run a command; what the user did wrong ends in one paragraph and exit code 1.

    Hydra would print such errors in its own way. With HYDRA_FULL_ERROR=1 it lets them through, so it is set here, and
    what the user wanted of it is kept in VFLBENCH_TRACEBACK.
    """
    os.environ.setdefault("VFLBENCH_TRACEBACK", "1" if os.environ.get("HYDRA_FULL_ERROR") == "1" else "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except SystemExit as error:
        sys.exit(1 if error.code == 2 else error.code)  # argparse says 2; here every mistake is 1
    except Exception as error:
        from vflbench.cli.mistakes import describe

        text = describe(error)
        if text is None or wants_traceback():
            raise
        fail(text)
    except KeyboardInterrupt as error:
        print(f"\n{error}" if str(error) else "\nstopped; the same command goes on from what was saved", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 130))


def fail(text: str) -> None:
    print(text, file=sys.stderr)
    sys.exit(1)
