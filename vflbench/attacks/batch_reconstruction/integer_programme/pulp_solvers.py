"""HiGHS and CBC, through PuLP."""

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import pulp

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation, write_programme
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import (
    SOLVER_KEY,
    SolverBudget,
    SolverResult,
    run_program,
)
from vflbench.errors import UserError

# The statuses of HiGHS and CBC that mean an end: True with a batch, False with a proof that there is none.
ENDED = {"Optimal": True, "Infeasible": False, "Primal infeasible or unbounded": False, "Integer infeasible": False}
GRACE_SECONDS = 5  # beyond CBC's time limit: it checks the time between its steps


class PulpProgramme:
    """A programme in PuLP: `formulation.ModellingLanguage`."""

    def __init__(self, budget: SolverBudget):
        self.budget, self.count = budget, 0
        self.problem = pulp.LpProblem("batch")
        self.problem += 0  # no objective: any matching batch

    def binary(self, low: int = 0, high: int = 1) -> pulp.LpVariable:
        return self._variable(low, high, pulp.LpInteger)

    def fraction(self) -> pulp.LpVariable:
        return self._variable(0, 1, pulp.LpContinuous)

    def total(self, terms: Iterable[Any]) -> pulp.LpAffineExpression:
        return pulp.lpSum(terms)

    def add(self, constraint: pulp.LpConstraint) -> None:
        self.budget.check()
        self.problem += constraint

    def _variable(self, low: int, high: int, kind: str) -> pulp.LpVariable:
        self.count += 1
        return self.problem.add_variable(f"v{self.count}", low, high, kind)


def highs(gram: Gram, formulation: Formulation, budget: SolverBudget) -> SolverResult:
    """HiGHS through PuLP, in this process. The status comes from HiGHS: PuLP calls a batch at the time limit optimal."""
    if not pulp.HiGHS().available():
        why = "is not installed: pip install highspy, or use solver exact"
        if "ortools" in sys.modules:
            why = "cannot be loaded beside OR-Tools: each includes its own libhighs.so.1"
        raise UserError(f"HiGHS {why}", key=SOLVER_KEY, value="highs")
    programme = PulpProgramme(budget)
    unknowns = write_programme(programme, gram, formulation).all
    adapter = _highs_adapter(budget)(msg=False, threads=budget.threads, random_seed=budget.seed)
    programme.problem.solve(adapter)
    model = programme.problem.solverModel
    status = model.modelStatusToString(model.getModelStatus())
    values = [value.varValue for value in unknowns]
    return SolverResult(None if None in values else values, ENDED.get(status), f"HiGHS: {status}")


def _highs_adapter(budget: SolverBudget) -> type:
    class Interruptible(pulp.HiGHS):  # type: ignore[misc]
        """PuLP's HiGHS, but Ctrl-C stops it, and it returns values only if HiGHS calls them feasible."""

        def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802 - PuLP's name
            model = lp.solverModel
            model.setOptionValue("time_limit", budget.left)  # only here: PuLP takes time to write the model
            if budget.steps is not None:
                model.setOptionValue("mip_max_nodes", budget.steps)
            model.HandleUserInterrupt = True

            def run() -> None:
                model.run()
                model.resetGlobalScheduler(False)  # otherwise a later programme could not change the number of threads

            run_interruptible(run, model.cancelSolve)

        def findSolutionValues(self, lp: pulp.LpProblem) -> tuple[int, int]:  # noqa: N802 - PuLP's name
            model = lp.solverModel
            if model.solutionStatusToString(model.getInfo().primal_solution_status) != "Feasible":
                return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound
            values = list(model.getSolution().col_value)
            for variable in lp.variables():
                variable.varValue = values[variable.index]
            return pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible

    return Interruptible


def run_interruptible(run: Callable[[], Any], cancel: Callable[[], Any]) -> None:
    """Run a call that does not return to Python for long; on Ctrl-C cancel it, wait until it has stopped, and re-raise.

    Python handles a signal only between two of its own steps, and a solver's run is one such step.
    """
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as failure:  # raised below, in the calling thread
            failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        cancel()
        thread.join(10)
        raise
    if failures:
        raise failures[0]


def cbc(gram: Gram, formulation: Formulation, budget: SolverBudget) -> SolverResult:
    """CBC, the program that PuLP includes (or one on the PATH), on the file that PuLP writes.

    It is started here and not by PuLP, so that Ctrl-C ends it too, its files are in a folder that is removed, and a run past
    its limit is killed. The first line of its solution says whether it ended. Raises RuntimeError if it fails.
    """
    program = cbc_program()
    if program is None:
        raise UserError("PuLP includes no CBC, and none is on the PATH: use solver highs", key=SOLVER_KEY, value="cbc")
    programme = PulpProgramme(budget)
    unknowns = write_programme(programme, gram, formulation).all
    with TemporaryDirectory(prefix="vflbench-cbc-") as folder:
        model, solution = Path(folder, "batch.mps"), Path(folder, "batch.sol")
        variables, names, _, _ = programme.problem.writeMPS(str(model), rename=True)
        command = [program, str(model), "-sec", f"{budget.left:.2f}", "-timeMode", "elapsed"]
        command += ["-randomSeed", str(budget.seed), "-randomCbcSeed", str(budget.seed)]
        command += [] if budget.steps is None else ["-maxNodes", str(budget.steps)]
        command += ["-threads", str(budget.threads)] if budget.threads > 1 else []
        command += ["-solve", "-printingOptions", "all", "-solution", str(solution)]
        if run_program(command, budget.left + GRACE_SECONDS) is None:
            return SolverResult(None, None, f"CBC: killed {GRACE_SECONDS} seconds after the time limit")
        status, values = read_cbc(solution)
    by_name = {name: values.get(names[name]) for name in (variable.name for variable in variables)}
    values_in_order = [by_name[unknown.name] for unknown in unknowns]
    ended = ENDED.get(status.split(" - ")[0])
    usable = ended is not False and "continuous" not in status and None not in values_in_order
    return SolverResult(values_in_order if usable else None, ended, f"CBC: {status}")


def cbc_program() -> str | None:
    """The path of CBC, or None."""
    bundled = getattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", None)
    return next((path for name in (bundled, "cbc") if name and (path := which(name))), None)


def read_cbc(solution: Path) -> tuple[str, dict[str, float]]:
    """The first line of CBC's solution file, and the value of each column. `**` before a line marks a violated bound."""
    status, *lines = solution.read_text().splitlines()
    fields = [line.removeprefix("**").split() for line in lines]
    return status.strip(), {field[1]: float(field[2]) for field in fields if len(field) >= 3}
