"""`vflbench reproduce`: published tables and figures again, within a budget of time; and no_defense, measured by itself."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.cli.main import Words
from vflbench.errors import UserError, nearest
from vflbench.files import config_folder
from vflbench.report.published import PublishedExperiment, read_experiments

if TYPE_CHECKING:
    from vflbench.numerics.interval import Interval
    from vflbench.run.experiment import Experiment


DEFENSES: dict[str, tuple[str, ...]] = {
    "none": (),
    "dcor, alpha_d 0.02": ("defense=dcor", "defense.dcor.alpha_d=0.02"),
    "label_gdp, mu 0.661": ("defense=label_gdp", "defense.label_gdp.mu=0.661"),
    "zero_sum, eps 0.753": ("defense=label_dp", "defense.label_dp.mechanism=zero_sum", "defense.label_dp.eps=0.753"),
    "label_dp, eps 0.753": ("defense=label_dp", "defense.label_dp.eps=0.753"),
}
"""Row of the table -> the options of its defense."""
KNOWN = (5, 10, 20, 50, 100, 200, 400, 1000)
_NO_DEFENSE = """What no defense can do: new rows ranked by whoever has the embeddings and k labelled rows.

The label party has no columns of its own. For each defense and seed it trains one network; KEY=VALUE are options of
`vflbench train`. Then it takes k training rows at random, of both classes. It fits the head of `completion` to their labels
and to what the non-label party's own network makes of them. With that it ranks the test rows, on which nobody trained, and
training rows, up to 20,000 each. Beside it stands the model itself. k = 0 is `directions`: no label, but the gradients of
the last epoch, two-sided. "Own columns" is the same head on the party's raw columns, which takes no label party at all.

Prints two Markdown tables, of test rows and of training rows: AUC, means over the seeds with Student's 95 % intervals of
means over --draws draws of labelled rows.

examples:
  vflbench reproduce no_defense dataset.rows=4000 --seeds 0 --draws 3     # quickly, on synthetic rows
  vflbench reproduce no_defense dataset=criteo dataset.path=train.txt.gz
"""
_Key = tuple[str, str, int | str]


def no_defense(arguments: Sequence[str]) -> None:
    """Print the tables, and on stderr a line for each network that was trained."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Words(prog="vflbench reproduce no_defense", description=_NO_DEFENSE, formatter_class=form)
    of_train = "options of vflbench train, as dataset=criteo epochs=2"
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help=of_train)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10, help="random draws of labelled rows, for each number of rows")
    parser.add_argument("--known", type=int, nargs="+", default=list(KNOWN))
    options = parser.parse_intermixed_args(arguments)
    if options.draws < 1:
        raise UserError("at least 1", key="--draws", value=options.draws)
    if min(options.known) < 2:
        raise UserError("at least 2, one of each class", key="--known", value=min(options.known))
    from vflbench.numerics.interval import UNIT, over_runs  # late, as the next: --help waits for nothing that trains
    from vflbench.run.no_defense import MODEL, Readings, readings

    runs: list[Readings] = []
    for seed in options.seeds:
        measured: Readings = {}
        for name, overrides in DEFENSES.items():
            experiment = _configured(*options.options, *overrides, f"seed={seed}")
            measured |= readings(experiment, name, options.known, options.draws)
            print(f"seed {seed}, {name}: test AUC {measured[name, 'test', MODEL]:.4f}", file=sys.stderr, flush=True)
        runs.append(measured)
    means = {key: over_runs((run[key] for run in runs), UNIT) for key in runs[0]}
    for split in ("test", "train"):
        print(f"\n{split} rows\n\n{markdown(means, split, options.known)}")


def _configured(*overrides: str) -> "Experiment":
    """Without attacks, and on all labels as they are."""
    from vflbench.cli.build import build
    from vflbench.cli.config import composed, current_config, run_options

    config = composed("train", ["attack=none", "audit.canaries=0", "name=no_defense", *overrides])
    with current_config(config):
        return build(run_options(config))


def markdown(means: "Mapping[_Key, Interval]", split: str, known: Sequence[int]) -> str:
    """A line for each defense, and one for the party's own columns."""
    from vflbench.numerics.interval import interval_text
    from vflbench.run.no_defense import COLUMNS_ONLY, MODEL, NO_LABEL

    columns: list[int | str] = [MODEL, NO_LABEL, *known]
    header = ["defense", MODEL, *(f"{k} labels" for k in columns[1:])]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name in (*DEFENSES, COLUMNS_ONLY):
        cells = [interval_text(means[name, split, column]) if (name, split, column) in means else "" for column in columns]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


LEAST_SCALE = 0.05
SPENT = 0.7
"""The share of the budget for the expected costs; the rest is for starting, drawing and errors of the estimate."""
START = 0.1  # minutes until a sweep's first run begins
_CLICKS = ("criteo", "avazu")
_LIST = "vflbench list experiments"


@dataclass(frozen=True)
class ReproductionPlan:
    """data: the folder with a folder for each data set, or None. dataset: for experiments that name none, or None.

    scale: share of the rows. jobs: experiments at once. words: options for all of them.
    """

    out: Path
    data: Path | None
    dataset: str | None
    scale: float
    jobs: int
    words: tuple[str, ...] = ()

    @property
    def default_dataset(self) -> str:
        """That of experiments that name none: the given one, else Criteo if its file is there, else synthetic rows."""
        return self.dataset or ("criteo" if self.data and (self.data / "criteo").is_dir() else "synthetic")


def chosen_experiments(names: Sequence[str] | None, others: Sequence[str] = ()) -> list[PublishedExperiment]:
    """The experiments of these names; None: all. others: names of no experiments, which a mistyped one may mean."""
    experiments = read_experiments()
    for name in names or ():
        if name not in experiments:
            hint = nearest(name, [*experiments, *others]) or f"; there are {', '.join(experiments)}"
            raise UserError(f"there is no such experiment{hint}", key=f"vflbench reproduce {name}", see=_LIST)
    return [experiments[name] for name in dict.fromkeys(names if names is not None else experiments)]


def parse_minutes(text: str) -> float:
    """`2h`, `90m`, `1h30m` -> minutes."""
    number = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    match = re.fullmatch(f"(?:{number}h)?(?:{number}m)?", text)
    if not match or not text:
        raise UserError("this is not a time; write 90m, 2h or 1h30m", key="--budget", value=text)
    return 60 * float(match[1] or 0) + float(match[2] or 0)


def known(minutes: float) -> float:
    """The expected minutes; five if an experiment does not state its cost."""
    return minutes if minutes == minutes else 5.0


def fitting_scale(chosen: Sequence[PublishedExperiment], minutes: float, jobs: int) -> float:
    """The share of the rows at which all experiments are expected to end within the budget.

    The costs are stated for 2 cores, on which two jobs with one thread each run as fast as one job.
    """
    left = SPENT * minutes * min(jobs, 2) / 2 - START * len(chosen)
    return min(1.0, max(LEAST_SCALE, left / sum(known(e.minutes) for e in chosen)))


def overrides(experiment: PublishedExperiment, plan: ReproductionPlan) -> list[str]:
    """The words of the command line beside the experiment's name. Raises UserError where its data are not there."""
    import yaml  # late: --help waits for nothing

    if experiment.reproduce:
        if plan.data is None and any("{data}" in word for word in experiment.reproduce):
            raise UserError("it needs files of its data set; name their folder", key="--data")
        return [word.replace("{data}", str(plan.data)) for word in experiment.reproduce]
    name = experiment.dataset or plan.default_dataset
    words = [] if experiment.dataset else [f"dataset={name}"]
    file = config_folder() / "dataset" / f"{name}.yaml"
    if not file.is_file():
        raise UserError("there is no such data set", key="--dataset", value=name, see="vflbench list datasets")
    dataset = yaml.safe_load(file.read_text()) or {}
    chosen = experiment.config.get("dataset") or {}
    if dataset.get("path") == "???" and "path" not in chosen:
        if plan.data is None:
            raise UserError(f"it needs the files of {name}; name their folder", key="--data")
        words.append(f"dataset.path={data_file(plan.data / name)}")
    if "sample" in dataset and plan.scale < 1:
        words.append(f"dataset.sample={plan.scale:.3g}")
    if "min_count" in dataset and not experiment.dataset and name in _CLICKS:
        words += ["dataset.min_count=5", "dataset.numeric_transform=log"]  # with few rows, rare values are noise
    seeds = str(experiment.sweep.get("seed", "")).split(",")
    if plan.scale < 1 / 3 and len(seeds) > 2:
        words.append(f"seed={','.join(seeds[:-1])}")
    return words


def data_file(folder: Path) -> Path:
    """The file called train.*, or else the largest."""
    files = filter(Path.is_file, folder.glob("*"))
    largest = max(files, key=lambda file: (file.name.startswith("train."), file.stat().st_size), default=None)
    if largest is None:
        raise UserError("there is no file for this data set", key="--data", value=folder)
    return largest.resolve()


PATIENCE = 60.0  # seconds that a stopped sweep has to save its state


@dataclass(frozen=True)
class _Outcome:
    """How one experiment ended. state: done | stopped | failed | skipped."""

    name: str
    state: str
    minutes: float
    detail: str = ""

    def line(self) -> str:
        return f"{self.name:<26} {self.state:<8} {self.minutes:6.1f} min  {self.detail}".rstrip()


def repeat(experiment: PublishedExperiment, plan: ReproductionPlan, deadline: float) -> _Outcome:
    """Run it with its share of the cores. deadline: of `time.monotonic`."""
    start = time.monotonic()
    if start >= deadline:
        return _Outcome(experiment.name, "skipped", 0.0, "the time was up")
    try:
        words = [*overrides(experiment, plan), *plan.words]
    except (UserError, OSError) as error:
        outcome = _Outcome(experiment.name, "skipped", 0.0, str(error))
        print(outcome.line(), flush=True)
        return outcome
    folder = plan.out / experiment.name
    folder.mkdir(exist_ok=True)
    into = "hydra.sweep.dir=." if experiment.is_sweep else "hydra.run.dir=${name}_${digest:}"
    command = [sys.executable, "-m", "vflbench", "train", f"experiment={experiment.name}", *words, into]
    log = plan.out / f"{experiment.name}.log"
    state = "done"
    with log.open("a") as file:
        print(" ".join(command), file=file, flush=True)
        process = subprocess.Popen(  # nosec B603  # our own command line, without a shell
            command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=_environment(plan)
        )
        for signal_, seconds in ((None, deadline - time.monotonic()), (signal.SIGINT, PATIENCE), (signal.SIGKILL, None)):
            if signal_ is not None:
                state = "stopped"
                process.send_signal(signal_)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
    if process.returncode and state != "stopped":
        state = "failed"
    details = {"stopped": "the time was up; the same command continues", "failed": f"see {log.name}"}
    outcome = _Outcome(experiment.name, state, (time.monotonic() - start) / 60, details.get(state, ""))
    print(outcome.line(), flush=True)
    return outcome


def _environment(plan: ReproductionPlan) -> dict[str, str]:
    """Of the process: its share of the cores, the package that this one runs, and the data."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // plan.jobs))}
    data = {} if plan.data is None else {"VFLBENCH_DATA": str(plan.data)}
    return {**threads, **os.environ, "PYTHONPATH": path, **data}


CLICKS = "On Criteo and Avazu, values seen less than 5 times share an id, and numbers are replaced by their logarithms."
_EPILOG = """
NAME is an experiment (`vflbench list experiments` shows them all, with what
they cost), or no_defense, which has options of its own (`vflbench reproduce
no_defense --help`): what no defense can do, that is, how well new rows are
ranked by a party with embeddings and some labels.

Each experiment is run by `vflbench train experiment=NAME`, --jobs of them at
once, and the same command continues where an earlier one stopped. The expected
costs and the budget determine the scale: the share of the rows that each run
trains on. Below a third of the rows, there is also one seed less. An experiment
that has not ended when the time is up is stopped, and the page says so. DATA
has a folder for each data set, as DATA/criteo/train.txt.gz.

OUT then has, for each experiment, the folder NAME with its runs, NAME/report
and NAME.log, and index.html with all experiments.

examples:
  vflbench reproduce bytedance_max_norm --budget 10m
  vflbench reproduce marvell_sumkl forward_figure2 --data data --scale 0.2 \\
    epochs=1
  vflbench reproduce --all --data data --budget 2h
"""


def reproduce(arguments: Sequence[str]) -> None:
    """The command. Exit code 1 unless every experiment ended."""
    if arguments[:1] == ["no_defense"]:  # measured by itself: no sweep of `vflbench train`
        no_defense(arguments[1:])
        return
    options = _parser().parse_intermixed_args(arguments)
    names = [word for word in options.words if "=" not in word]
    if options.everything == bool(names):
        problem = "name experiments, or all of them with --all" if not names else "it is all of them or some, not both"
        raise UserError(problem, key=" ".join(["vflbench reproduce", *names]), see="vflbench list experiments")
    if options.data is not None and not options.data.is_dir():
        raise UserError("there is no such folder", key="--data", value=options.data)
    if options.jobs < 1:
        raise UserError("at least 1", key="--jobs", value=options.jobs)
    if options.scale is not None and not 0 < options.scale <= 1:
        raise UserError("a share of the rows, above 0 and at most 1", key="--scale", value=options.scale)
    chosen = chosen_experiments(None if options.everything else names, ["no_defense"])
    minutes = parse_minutes(options.budget)
    scale = options.scale or fitting_scale(chosen, minutes, options.jobs)
    words = tuple(word for word in options.words if "=" in word)
    plan = ReproductionPlan(
        options.out.resolve(), options.data and options.data.resolve(), options.dataset, scale, options.jobs, words
    )
    plan.out.mkdir(parents=True, exist_ok=True)
    expected = sum(known(e.minutes) for e in chosen) * scale
    what = "1 experiment" if len(chosen) == 1 else f"{len(chosen)} experiments"
    print(f"{what} at {scale:.0%} of the rows, {options.jobs} at once, some {expected:.0f} minutes of runs")
    print(f"on {plan.default_dataset} where an experiment names no data set", flush=True)
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(repeat, e, plan, start + 60 * minutes) for e in sorted(chosen, key=lambda e: -known(e.minutes))]
        outcomes = sorted((job.result() for job in work), key=lambda outcome: outcome.name)
    print("\n".join(["", *(outcome.line() for outcome in outcomes)]))
    print(f"\n{(time.monotonic() - start) / 60:.1f} minutes altogether")
    notes = [f"vflbench reproduce at {scale:.0%} of the rows.", CLICKS, *(f"Set for all: {word}" for word in words)]
    print(pages(plan.out, outcomes, notes))
    if any(outcome.state != "done" for outcome in outcomes):
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Words(
        prog="vflbench reproduce",
        description="Repeat published tables and figures, and put them beside the published\nvalues on one page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = "names of experiments, and options for all of them, as epochs=1"
    data = "a folder with a subfolder for each data set; by default only embedded data"
    dataset = "data set of experiments that name none; by default criteo if DATA has it, else synthetic"
    out, jobs = Path("outputs/reproduced"), max(1, min(4, os.cpu_count() or 1))
    parser.add_argument("words", nargs="*", metavar="NAME | KEY=VALUE", help=named)
    parser.add_argument("--all", action="store_true", dest="everything", help="every experiment")
    parser.add_argument("--data", type=Path, help=data)
    parser.add_argument("--dataset", help=dataset)
    parser.add_argument("--budget", default="1h", help="time for all experiments, as 90m or 2h; by default 1h")
    parser.add_argument("--scale", type=float, help="share of the rows; by default the share that fits the budget")
    parser.add_argument("--jobs", type=int, default=jobs, help="number of experiments at once")
    parser.add_argument("--out", type=Path, default=out, help=f"the folder for all results; by default {out}")
    return parser


def pages(out: Path, outcomes: Sequence[_Outcome], notes: Sequence[str]) -> Path:
    """Write a report for each experiment with runs, and one page with all of them. Raises UserError if there are none."""
    from vflbench.report.page import Wishes, write_report
    from vflbench.results.folder import finished_folders

    notes = [*notes]
    notes += [" ".join(outcome.line().split()) for outcome in outcomes if outcome.state != "done"]
    folders = [out / outcome.name for outcome in outcomes if (out / outcome.name).is_dir()]
    if not any(map(finished_folders, folders)):
        raise UserError("no run has finished, so there is no page; the logs in it say why", key="--out", value=out)
    for folder in folders:
        if finished_folders(folder):
            write_report([folder], folder / "report", Wishes(title=folder.name))
    return write_report(folders, out, Wishes(title="Published experiments, repeated", notes=tuple(notes), page="index.html"))
