"""`vflbench train -m`: which runs a sweep has, a line on each when it has ended, and a table of all at the end."""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, islice, product
from math import prod
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write
from tqdm import tqdm

from vflbench.cli.config import check_config, current_config, plain, recorded_folders, run_options
from vflbench.errors import UserError
from vflbench.results.terminal import for_stream, path_text
from vflbench.run.interruption import Interrupted

_MOST_RUNS = 10_000
_WIDEST_NAME = 30
"""Characters of a run's name on the bar."""
_TAIL = 4096
"""Bytes that hold the last line of metrics.csv."""
_MOST_ALIKE = 10
"""Runs that failed for the same reason, of which the folders are listed."""


class Status(StrEnum):
    """done: by this command. skipped: finished before, by any command. busy: another process is at work on it."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"
    BUSY = "busy"


@dataclass(frozen=True)
class JobOutcome:
    """How a run ended. reason: of a failure, in one paragraph. test_auc: nan where there is none. words: what it came to.

    folder: where the results are, if not where the sweep planned them: of a worker that found plug-ins or data edited.
    """

    status: Status
    test_auc: float = math.nan
    reason: str = ""
    folder: str = ""
    words: str = ""


class RunsSweeper(Sweeper):
    """`hydra/sweeper=runs`: each entry of `runs` with each combination of the values of `params` and of the command line.

    params: option -> values, separated by commas. runs: lists of options that go together, such as a defense and its
    strength. An option on the command line takes the place of the same one here. A failed run doesn't end the sweep.
    """

    def __init__(self, params: Mapping[str, Any] | None = None, runs: Sequence[Sequence[str]] | None = None):
        self.params, self.runs = params or {}, runs or ()
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> Any:
        """Bring every run to its end or its failure. Ends with exit code 1 where one failed."""
        assert self.hydra_context is not None
        assert self.config is not None
        loader = self.hydra_context.config_loader
        words = overrides_of_runs(OverridesParser.create(config_loader=loader), self.params, self.runs, arguments)
        jobs = [Job(run, loader.load_sweep_config(self.config, run), number) for number, run in enumerate(words)]
        for job in jobs:
            check_config(job.config, self.config, arguments)
        refuse_shared_folder(jobs)
        sweep = Sweep(jobs)
        try:
            sweep.skip_finished()
            refuse_shared_mistake(jobs)
            self._launch(sweep)
        except KeyboardInterrupt as error:
            raise Interrupted(sweep.stop_message(), getattr(error, "exit_code", 130)) from None
        finally:
            sweep.bar.close()
        if sweep.failed:
            print(sweep.failures(), file=sys.stderr)
        print(sweep.table(), flush=True)
        if sweep.failed:
            sys.exit(1)
        return [job.outcome.test_auc for job in jobs if job.outcome is not None]

    def _launch(self, sweep: "Sweep") -> None:
        """Launch what isn't finished."""
        from vflbench.cli.launcher import ProcessesLauncher  # late: it gives outcomes, as this module has them

        assert self.launcher is not None
        waiting = [job for job in sweep.jobs if job.outcome is None]
        if isinstance(self.launcher, ProcessesLauncher) and waiting:
            self.launcher.run(sweep)
            return
        for _, group in groupby(enumerate(waiting), lambda one: one[1].number - one[0]):  # launchers count on from the first
            part = [job for _, job in group]
            try:
                returned = self.launcher.launch([job.overrides for job in part], part[0].number)
            except UserError:
                raise
            except Exception as error:  # such as a worker that was killed
                problem = f"the launcher gave up ({type(error).__name__}: {error}); the same command goes on"
                raise UserError(problem, key="hydra/launcher") from error
            for job, one in zip(part, returned, strict=True):
                sweep.report(job, one.return_value, printed=True)


def overrides_of_runs(
    parser: OverridesParser, params: Mapping[str, Any], runs: Sequence[Sequence[str]], arguments: Sequence[str]
) -> list[list[str]]:
    """The overrides of each run, as Hydra's basic sweeper makes them of `params` and `arguments`, times `runs`."""
    typed = parser.parse_overrides(list(arguments))
    axes: dict[str, list[str]] = {}
    for override in (*parser.parse_overrides([f"{name}={value}" for name, value in params.items()]), *typed):
        axes[override.get_key_element()] = _values(override)
    chosen = {override.key_or_group for override in typed}
    entries = list(dict.fromkeys(tuple(word for word in entry if not _is_within(word, chosen)) for entry in runs)) or [()]
    if prod(map(len, axes.values())) * len(entries) > _MOST_RUNS:
        raise UserError(f"a sweep has at most {_MOST_RUNS:,} runs", key="-m")
    return [[*entry, *words] for entry in entries for words in product(*axes.values())]


def _values(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        problem = "a sweep takes values, separated by commas, or range(START,STOP,STEP)"
        raise UserError(problem, key=key, value=str(override.input_line).partition("=")[2])
    return [f"{key}={value}" for value in islice(override.sweep_string_iterator(), _MOST_RUNS + 1)]


def _is_within(word: str, keys: set[str]) -> bool:
    """Whether an override sets one of these options, or one below it."""
    name = word.partition("=")[0].lstrip("+~")
    return any(name == key or name.startswith(f"{key}.") for key in keys)


class Job:
    """One run of a sweep. options: of the run, resolved. outcome: None while it has none."""

    def __init__(self, overrides: Sequence[str], config: DictConfig, number: int):
        self.overrides, self.config, self.number = list(overrides), config, number
        with read_write(config.hydra.job), open_dict(config.hydra.job):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
        with current_config(config):
            self.folder = Path(os.path.abspath(os.path.join(str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir))))
            self.composed = run_options(config)
            self.options: dict[str, Any] = plain(self.composed)
        self.outcome: JobOutcome | None = None


def refuse_shared_folder(jobs: Sequence[Job]) -> None:
    """Raise UserError where runs of other options have the same folder."""
    first: dict[Path, Any] = {}
    for job in jobs:
        if first.setdefault(job.folder, job.options) != job.options:
            problem = "runs of other options would share this folder; it must depend on what is swept"
            raise UserError(problem, key="hydra.sweep.subdir", value=job.folder.name)


def refuse_shared_mistake(jobs: Sequence[Job]) -> None:
    """Raise UserError before the first run begins, where all would fail for the same reason, as far as options show it."""
    from vflbench.cli.components import check_options  # late, as below: Hydra loads this module to explain options

    mistakes: dict[str, UserError] = {}
    for job in jobs:
        try:
            with current_config(job.config):
                check_options(job.composed)
            return
        except UserError as error:
            mistakes[str(error)] = error
    if len(mistakes) == 1:
        raise mistakes.popitem()[1]


class Sweep:
    """All runs of one command: prints what each came to, and how far the sweep has come."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.at_work, self.began = jobs, list[Job](), time.time()
        # smoothing=0: the time left follows from the mean run, not from the last
        form = "sweep: {percentage:3.0f}%|{bar:20}| {n:.1f} of {total} runs, about {remaining} left{postfix}"
        self.bar = tqdm(total=len(jobs), bar_format=form, disable=None, smoothing=0, dynamic_ncols=True)

    def skip_finished(self) -> None:
        """Report the runs that were finished before."""
        from vflbench.cli.train import finished_before
        from vflbench.run.provenance import origin_of, rounding_notices

        notices: dict[str, None] = {}
        for job in self.jobs:
            if job.options.get("overwrite"):
                continue
            origin = origin_of(job.options, recorded_folders(job.config))
            outcome = finished_before(job.folder, job.options | {"overwrite": False}, origin)
            if outcome is None:
                continue
            self.report(job, outcome)
            if not self.bar.disable:
                self.bar.initial += 1
            notices |= dict.fromkeys(rounding_notices(job.folder))
        for notice in notices:
            tqdm.write(notice.replace("this run was", "finished runs were"))

    def watch(self, at_work: Sequence[Job]) -> None:
        """Show on the bar which runs are under way, and in which epoch; their epochs count in the time left."""
        self.at_work = [job for job in at_work if job.outcome is None]
        if self.bar.disable:
            return
        self.bar.n, texts = float(sum(job.outcome is not None for job in self.jobs)), []
        for job in self.at_work:
            name, epochs = self.distinct_overrides(job)[:_WIDEST_NAME], job.options.get("epochs")
            if type(epochs) is int and epochs > 0:
                done = min(_epochs_done(job.folder, self.began), epochs)
                self.bar.n += done / epochs
                name = f"epoch {min(done + 1, epochs)}/{epochs} of {name}"
            texts.append(name)
        self.bar.set_postfix_str("; ".join(texts))

    def report(self, job: Job, outcome: JobOutcome, *, printed: bool = False) -> None:
        """Record that a run ended, and print a line on it. printed: the run did so itself."""
        job.outcome = outcome
        if not printed:
            place = sum(job.outcome is not None for job in self.jobs)
            text = self._line(job, outcome, f"{place}/{len(self.jobs)}")
            failed = outcome.status is Status.FAILED
            tqdm.write(for_stream(text, sys.stderr) if failed else text, file=sys.stderr if failed else sys.stdout)
            sys.stdout.flush()
        self.watch(self.at_work)

    def _line(self, job: Job, outcome: JobOutcome, place: str) -> str:
        if outcome.status is Status.FAILED:
            return f"failed: {self.distinct_overrides(job)}: {outcome.reason}"
        from vflbench.cli.train import outcome_line

        which = f"; {self.distinct_overrides(job)}" if len(self.jobs) > 1 else ""
        return outcome_line(outcome, job.folder, place, which)

    def distinct_overrides(self, job: Job) -> str:
        """The overrides of a run that are not common to all runs."""
        shared = set.intersection(*(set(other.overrides) for other in self.jobs))
        return " ".join([word for word in job.overrides if word not in shared] or job.overrides)

    @property
    def failed(self) -> list[Job]:
        return [job for job in self.jobs if job.outcome and job.outcome.status in (Status.FAILED, Status.BUSY)]

    @property
    def counts(self) -> Counter[Status]:
        return Counter(job.outcome.status for job in self.jobs if job.outcome)

    def table(self) -> str:
        """How many runs are done, skipped and failed."""
        done, skipped = self.counts[Status.DONE], self.counts[Status.SKIPPED]
        lines = ["", f"{len(self.jobs)} runs", f"  done     {done:>5}", f"  skipped  {skipped:>5}  (there already)"]
        lines.append(f"  failed   {len(self.failed):>5}")
        if done or skipped:
            parents = [Path((job.outcome and job.outcome.folder) or job.folder).parent for job in self.jobs]
            lines += ["", f"next: vflbench report {path_text(Path(os.path.commonpath(parents)))} --open"]
        return "\n".join(lines)

    def failures(self) -> str:
        """Why runs failed, each reason once, and the folders of the runs that did."""
        lines: list[str] = []
        for reason in dict.fromkeys(map(_reason, self.failed)):
            runs = {self.distinct_overrides(job): job.folder for job in self.failed if _reason(job) == reason}
            if len(runs) == 1:
                lines += ["", f"failed: {next(iter(runs))}", f"  {reason}", f"  {next(iter(runs.values()))}"]
                continue
            lines += ["", f"failed: {len(runs)} runs", f"  {reason}"]
            lines += [f"  {words}: {folder}" for words, folder in islice(runs.items(), _MOST_ALIKE)]
            lines += [f"  and {len(runs) - _MOST_ALIKE} more"] * (len(runs) > _MOST_ALIKE)
        return "\n".join(lines)

    def stop_message(self) -> str:
        """What to print when the user stops a sweep."""
        finished = self.counts[Status.DONE] + self.counts[Status.SKIPPED]
        failed = f", {self.counts[Status.FAILED]} failed" if self.counts[Status.FAILED] else ""
        return (
            f"sweep stopped: of {len(self.jobs)} runs {finished} are finished{failed}; the same command goes on with the "
            "others, and resumes those that had begun"
        )


def _epochs_done(folder: Path, began: float) -> int:
    """Those of which metrics.csv has a line; 0 if it was written before `began`, as by a run that is made anew."""
    from vflbench.results.folder import METRICS

    with suppress(OSError, ValueError), open(folder / METRICS, "rb") as file:
        if os.fstat(file.fileno()).st_mtime >= began:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return 1 + int(file.read().rpartition(b"\n")[0].rpartition(b"\n")[2].partition(b",")[0])
    return 0


def _reason(job: Job) -> str:
    return "" if job.outcome is None else job.outcome.reason
