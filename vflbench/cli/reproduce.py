"""`vflbench reproduce NAME ... | --all`: repeats published tables and figures within a budget of time, on one page."""

import argparse
import importlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vflbench.cli.reproduce_plan import Plan, chosen_experiments, fitting_scale, known, longest_first, parse_minutes
from vflbench.cli.reproduce_runs import Outcome, repeat
from vflbench.cli.words import Words
from vflbench.errors import UserError

MEASUREMENTS = {
    "asynchronous_range": ("vflbench.cli.asynchronous_range", "asynchronous_range"),
    "no_defense": ("vflbench.cli.no_defense", "no_defense"),
}
"""Name -> module and function of what is measured by itself, and is no sweep of `vflbench train`."""
CLICKS = "On Criteo and Avazu, values seen less than 5 times share an id, and numbers are replaced by their logarithms."
_EPILOG = """
NAME is an experiment (`vflbench list experiments` shows them all, with what
they cost), or one of these, which are measured separately and have options
of their own (`vflbench reproduce NAME --help`):
  asynchronous_range   the local step sizes at which asynchronous training
                       reveals its batches
  no_defense           what no defense can do: how well new rows are ranked
                       by a party with embeddings and some labels

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
  vflbench reproduce asynchronous_range --rates 0.1,0.5
"""


def reproduce(arguments: Sequence[str]) -> None:
    """The command. Exit code 1 unless every experiment ended."""
    if arguments and arguments[0] in MEASUREMENTS:
        module, name = MEASUREMENTS[arguments[0]]
        getattr(importlib.import_module(module), name)(arguments[1:])
        return
    options = _parser().parse_intermixed_args(arguments)
    names = [word for word in options.words if "=" not in word]
    if options.everything == bool(names):
        problem = "name experiments, or all of them with --all" if not names else "it is all of them or some, not both"
        raise UserError(problem, key="reproduce", value=" ".join(names), see="vflbench list experiments")
    if options.data is not None and not options.data.is_dir():
        raise UserError("there is no such folder", key="--data", value=options.data)
    if options.jobs < 1:
        raise UserError("at least 1", key="--jobs", value=options.jobs)
    if options.scale is not None and not 0 < options.scale <= 1:
        raise UserError("a share of the rows, above 0 and at most 1", key="--scale", value=options.scale)
    chosen = chosen_experiments(None if options.everything else names, list(MEASUREMENTS))
    minutes = parse_minutes(options.budget)
    scale = options.scale or fitting_scale(chosen, minutes, options.jobs)
    words = tuple(word for word in options.words if "=" in word)
    plan = Plan(options.out.resolve(), options.data and options.data.resolve(), options.dataset, scale, options.jobs, words)
    plan.out.mkdir(parents=True, exist_ok=True)
    expected = sum(known(e.minutes) for e in chosen) * scale
    what = "1 experiment" if len(chosen) == 1 else f"{len(chosen)} experiments"
    print(f"{what} at {scale:.0%} of the rows, {options.jobs} at once, some {expected:.0f} minutes of runs")
    print(f"on {plan.default_dataset} where an experiment names no data set", flush=True)
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        work = [pool.submit(repeat, e, plan, start + 60 * minutes) for e in longest_first(chosen)]
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
    parser.add_argument(
        "words", nargs="*", metavar="NAME | KEY=VALUE", help="names of experiments, and options for all of them, as epochs=1"
    )
    parser.add_argument("--all", action="store_true", dest="everything", help="every experiment")
    parser.add_argument(
        "--data", type=Path, help="a folder with a subfolder for each data set; by default only embedded data"
    )
    parser.add_argument(
        "--dataset", help="data set of experiments that name none; by default criteo if DATA has it, else synthetic"
    )
    parser.add_argument("--budget", default="1h", help="time for all experiments, as 90m or 2h; by default 1h")
    parser.add_argument("--scale", type=float, help="share of the rows; by default the share that fits the budget")
    jobs = max(1, min(4, os.cpu_count() or 1))
    parser.add_argument("--jobs", type=int, default=jobs, help="number of experiments at once")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outputs/reproduced"),
        help="the folder for all results; by default outputs/reproduced",
    )
    return parser


def pages(out: Path, outcomes: Sequence[Outcome], notes: Sequence[str]) -> Path:
    """Write a report for each experiment with runs, and one page with all of them. Raises UserError if there are none."""
    from vflbench.report.site import Wishes, write_report
    from vflbench.results.files import finished_folders

    notes = [*notes]
    notes += [" ".join(outcome.line().split()) for outcome in outcomes if outcome.state != "done"]
    folders = [out / outcome.name for outcome in outcomes if (out / outcome.name).is_dir()]
    if not any(map(finished_folders, folders)):
        raise UserError("no run has finished, so there is no page; the logs in it say why", key="--out", value=out)
    for folder in folders:
        if finished_folders(folder):
            write_report([folder], folder / "report", Wishes(title=folder.name))
    return write_report(folders, out, Wishes(title="Published experiments, repeated", notes=tuple(notes), page="index.html"))
