"""CP-SAT of OR-Tools on the same programmes: an independent check, from an extra.

It runs in a process of its own: OR-Tools and highspy 1.15 (not 1.13) each include a shared library libhighs.so.1, in
different versions, and a process can load only the first of them. Therefore this module imports nothing that loads HiGHS.
"""

import importlib.util
import os
import pickle  # nosec B403  # only between this process and the one that it starts
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation, write_programme
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import (
    SOLVER_KEY,
    SolverBudget,
    SolverResult,
    run_program,
)
from vflbench.errors import UserError
from vflbench.places import pip_install

STARTUP_SECONDS = 30  # allowance for the start and end of the process, beyond its time limit


def cpsat(gram: Gram, formulation: Formulation, budget: SolverBudget) -> SolverResult:
    """CP-SAT, in a process of its own. Raises UserError if OR-Tools is not installed."""
    if importlib.util.find_spec("ortools") is None:
        raise UserError(f"OR-Tools is not installed: {pip_install('cpsat')}", key=SOLVER_KEY, value="cpsat")
    task = pickle.dumps((gram, formulation, budget.left, budget.threads, budget.seed, budget.steps))
    package = str(Path(__file__).resolve().parents[4])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "vflbench.attacks.batch_reconstruction.integer_programme.cpsat"]
    output = run_program(command, budget.left + STARTUP_SECONDS, task, {**os.environ, "PYTHONPATH": paths})
    if output is None:
        return SolverResult(None, None, f"CP-SAT: killed {STARTUP_SECONDS} seconds after the time limit")
    return pickle.loads(output)  # nosec B301  # from the process that was started above


class CpProgramme:
    """A programme in CP-SAT: `formulation.ModellingLanguage`. All its unknowns are integers."""

    def __init__(self, cp_model: Any, budget: SolverBudget):
        self.cp_model, self.budget = cp_model, budget
        self.model = cp_model.CpModel()

    def binary(self, low: int = 0, high: int = 1) -> Any:
        return self.model.new_int_var(low, high, "")

    def fraction(self) -> Any:
        return self.model.new_bool_var("")

    def total(self, terms: Iterable[Any]) -> Any:
        return self.cp_model.LinearExpr.sum(list(terms))

    def add(self, constraint: Any) -> None:
        self.budget.check()
        self.model.add(constraint)


def solve_in_process(gram: Gram, formulation: Formulation, budget: SolverBudget) -> SolverResult:
    """CP-SAT in this process, which must not have loaded HiGHS."""
    from ortools.sat.python import cp_model

    programme = CpProgramme(cp_model, budget)
    try:
        unknowns = write_programme(programme, gram, formulation).all
    except TimeoutError as timeout:
        return SolverResult(None, None, str(timeout))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = budget.left
    solver.parameters.num_workers = budget.threads
    if budget.steps is not None:
        solver.parameters.max_number_of_conflicts = budget.steps
    solver.parameters.random_seed = budget.seed
    solver.parameters.catch_sigint_signal = False  # it would treat Ctrl-C as a time limit
    status = solver.status_name(solver.solve(programme.model))
    values = [float(solver.value(unknown)) for unknown in unknowns] if status in ("OPTIMAL", "FEASIBLE") else None
    note = f"CP-SAT: {status.capitalize()} after {solver.wall_time:.3f} s"
    return SolverResult(values, {"OPTIMAL": True, "INFEASIBLE": False}.get(status), note)


def _worker() -> None:
    """Read a task from stdin, write its result to stdout."""
    gram, formulation, seconds, threads, seed, steps = pickle.load(sys.stdin.buffer)  # nosec B301  # of `cpsat`, above
    result = solve_in_process(gram, formulation, SolverBudget(time.monotonic() + seconds, threads, seed, steps))
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    _worker()
