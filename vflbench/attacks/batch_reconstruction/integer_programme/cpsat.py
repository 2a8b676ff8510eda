"""CP-SAT of OR-Tools on the same programmes: an independent check, from an extra.

It runs in a process of its own: OR-Tools and highspy 1.15 (not 1.13) each bring a shared library libhighs.so.1, of
different versions, and a process can load only the first of the two. This module therefore imports nothing that loads HiGHS.
"""

import importlib.util
import os
import pickle
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation, write
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import KEY, Budget, Outcome, run_program
from vflbench.errors import UserError

START = 30  # seconds that a process may take to start and end beyond its limit


def cpsat(gram: Gram, formulation: Formulation, budget: Budget) -> Outcome:
    """CP-SAT, in a process of its own. Raises UserError where OR-Tools is not installed."""
    if importlib.util.find_spec("ortools") is None:
        raise UserError("OR-Tools is not installed: pip install 'vflbench[cpsat]'", key=KEY, value="cpsat")
    task = pickle.dumps((gram, formulation, budget.left, budget.threads, budget.seed))
    package = str(Path(__file__).resolve().parents[4])
    paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "vflbench.attacks.batch_reconstruction.integer_programme.cpsat"]
    answer = run_program(command, budget.left + START, task, {**os.environ, "PYTHONPATH": paths})
    if answer is None:
        return Outcome(None, None, f"CP-SAT: killed, {START} seconds after the time limit")
    return pickle.loads(answer)


class CpProgramme:
    """A programme in CP-SAT: `formulation.Language`. All its unknowns are integers."""

    def __init__(self, cp_model, budget: Budget):
        self.cp_model, self.budget = cp_model, budget
        self.model = cp_model.CpModel()

    def binary(self, low: int = 0, high: int = 1) -> Any:
        return self.model.new_int_var(low, high, "")

    def share(self) -> Any:
        return self.model.new_bool_var("")

    def total(self, terms: Iterable[Any]) -> Any:
        return self.cp_model.LinearExpr.sum(list(terms))

    def add(self, constraint: Any) -> None:
        self.budget.check()
        self.model.add(constraint)


def solve_here(gram: Gram, formulation: Formulation, budget: Budget) -> Outcome:
    """CP-SAT in this process, which must not have loaded HiGHS."""
    from ortools.sat.python import cp_model

    programme = CpProgramme(cp_model, budget)
    try:
        wanted = write(programme, gram, formulation).all
    except TimeoutError as late:
        return Outcome(None, None, str(late))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = budget.left
    solver.parameters.num_workers = budget.threads
    solver.parameters.random_seed = budget.seed
    solver.parameters.catch_sigint_signal = False  # it would take Ctrl-C for a time limit
    status = solver.status_name(solver.solve(programme.model))
    values = [float(solver.value(unknown)) for unknown in wanted] if status in ("OPTIMAL", "FEASIBLE") else None
    note = f"CP-SAT: {status.capitalize()} after {solver.wall_time:.3f} s"
    return Outcome(values, {"OPTIMAL": True, "INFEASIBLE": False}.get(status), note)


def _answer() -> None:
    """Read a task from stdin, write its outcome to stdout."""
    gram, formulation, seconds, threads, seed = pickle.load(sys.stdin.buffer)
    outcome = solve_here(gram, formulation, Budget(time.monotonic() + seconds, threads, seed))
    sys.stdout.buffer.write(pickle.dumps(outcome))


if __name__ == "__main__":
    _answer()
