"""Runs one experiment of `vflbench reproduce` in a process of its own, until it ends or the time is up."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vflbench.cli.reproduce_plan import Plan, overrides
from vflbench.errors import UserError
from vflbench.report.published import PublishedExperiment

PATIENCE = 60.0  # seconds that a stopped sweep has to save its state


@dataclass(frozen=True)
class Outcome:
    """How one experiment ended. state: done | stopped | failed | skipped."""

    name: str
    state: str
    minutes: float
    detail: str = ""

    def line(self) -> str:
        return f"{self.name:<26} {self.state:<8} {self.minutes:6.1f} min  {self.detail}".rstrip()


def repeat(experiment: PublishedExperiment, plan: Plan, deadline: float) -> Outcome:
    """Run it with its share of the cores. deadline: of `time.monotonic`."""
    start = time.monotonic()
    if start >= deadline:
        return Outcome(experiment.name, "skipped", 0.0, "the time was up")
    try:
        words = [*overrides(experiment, plan), *plan.words]
    except (UserError, OSError) as error:
        outcome = Outcome(experiment.name, "skipped", 0.0, str(error))
        print(outcome.line(), flush=True)
        return outcome
    folder = plan.out / experiment.name
    folder.mkdir(exist_ok=True)
    into = "hydra.sweep.dir=." if experiment.is_sweep else "hydra.run.dir=${name}_${digest:}"
    command = [sys.executable, "-m", "vflbench", "train", f"experiment={experiment.name}", *words, into]
    log = plan.out / f"{experiment.name}.log"
    with log.open("a") as file:
        print(" ".join(command), file=file, flush=True)
        process = subprocess.Popen(  # nosec B603  # our own command line, without a shell
            command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, env=_environment(plan)
        )
        stopped = not _ends_before(process, deadline)
    minutes = (time.monotonic() - start) / 60
    state = "stopped" if stopped else "failed" if process.returncode else "done"
    details = {"stopped": "the time was up; the same command continues", "failed": f"see {log.name}"}
    outcome = Outcome(experiment.name, state, minutes, details.get(state, ""))
    print(outcome.line(), flush=True)
    return outcome


def _environment(plan: Plan) -> dict[str, str]:
    """Of the process: its share of the cores, the package that this one runs, and the data."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // plan.jobs))}
    data = {} if plan.data is None else {"VFLBENCH_DATA": str(plan.data)}
    return {**threads, **os.environ, "PYTHONPATH": path, **data}


def _ends_before(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    """Whether the process ends in time; otherwise it is asked to stop as by Ctrl-C, so that it saves its state."""
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return False
