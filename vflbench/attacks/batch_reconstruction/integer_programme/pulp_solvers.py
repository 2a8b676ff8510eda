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
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation, write
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import KEY, Budget, Outcome, run_program
from vflbench.errors import UserError

# What HiGHS and CBC say where they came to an end: with a batch, or with a proof that there is none.
ENDED = {"Optimal": True, "Infeasible": False, "Primal infeasible or unbounded": False, "Integer infeasible": False}
GRACE = 5  # seconds that CBC may take beyond its limit: it looks at the clock between its steps


class PulpProgramme:
    """A programme in PuLP: `formulation.Language`."""

    def __init__(self, budget: Budget):
        self.budget, self.unknowns = budget, 0
        self.problem = pulp.LpProblem("batch")
        self.problem += 0  # any batch that fits will do

    def binary(self, low: int = 0, high: int = 1) -> pulp.LpVariable:
        return self._variable(low, high, pulp.LpInteger)

    def share(self) -> pulp.LpVariable:
        return self._variable(0, 1, pulp.LpContinuous)

    def total(self, terms: Iterable[Any]) -> pulp.LpAffineExpression:
        return pulp.lpSum(terms)

    def add(self, constraint: pulp.LpConstraint) -> None:
        self.budget.check()
        self.problem += constraint

    def _variable(self, low: int, high: int, kind: str) -> pulp.LpVariable:
        self.unknowns += 1
        return self.problem.add_variable(f"v{self.unknowns}", low, high, kind)


def highs(gram: Gram, formulation: Formulation, budget: Budget) -> Outcome:
    """HiGHS through PuLP, inside this program. PuLP calls what it has at the time limit optimal: HiGHS itself is asked."""
    if not pulp.HiGHS().available():
        why = "is not installed: pip install highspy, or take solver exact"
        if "ortools" in sys.modules:
            why = "cannot be loaded beside OR-Tools: each brings a libhighs.so.1 of its own"
        raise UserError(f"HiGHS {why}", key=KEY, value="highs")
    programme = PulpProgramme(budget)
    wanted = write(programme, gram, formulation).all
    adapter = _highs_adapter(budget)(msg=False, threads=budget.threads, random_seed=budget.seed)
    programme.problem.solve(adapter)
    model = programme.problem.solverModel
    status = model.modelStatusToString(model.getModelStatus())
    values = [value.varValue for value in wanted]
    return Outcome(None if None in values else values, ENDED.get(status), f"HiGHS: {status}")


def _highs_adapter(budget: Budget) -> type:
    class Interruptible(pulp.HiGHS):
        """PuLP's HiGHS, but Ctrl-C stops it, and it gives values only where HiGHS calls them feasible."""

        def callSolver(self, lp):  # noqa: N802 - PuLP's name
            model = lp.solverModel
            model.setOptionValue("time_limit", budget.left)  # here, since PuLP's own writing takes time too
            model.HandleUserInterrupt = True

            def run() -> None:
                model.run()
                model.resetGlobalScheduler(False)  # else a later programme could not ask for other threads

            interruptible(run, model.cancelSolve)

        def findSolutionValues(self, lp):  # noqa: N802 - PuLP's name
            model = lp.solverModel
            if model.solutionStatusToString(model.getInfo().primal_solution_status) != "Feasible":
                return pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound
            values = list(model.getSolution().col_value)
            for variable in lp.variables():
                variable.varValue = values[variable.index]
            return pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible

    return Interruptible


def interruptible(run: Callable[[], Any], cancel: Callable[[], Any]) -> None:
    """Run what holds on to its thread for long; on Ctrl-C cancel it, wait until it has stopped, and pass Ctrl-C on.

    A signal reaches Python only between two of its own steps, and a solver's run is one such step.
    """
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as failure:  # handed on below, to the thread that asked
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


def cbc(gram: Gram, formulation: Formulation, budget: Budget) -> Outcome:
    """CBC, the program that PuLP brings along (or one on the PATH), on the file that PuLP writes.

    Run from here and not by PuLP, so that Ctrl-C ends it too, its files lie in a folder that goes with it, and a run past
    its limit is killed. The first line of its answer says whether it came to an end. Raises RuntimeError if it breaks.
    """
    program = cbc_program()
    if program is None:
        raise UserError("no CBC comes with this PuLP, nor is one on the PATH: take solver highs", key=KEY, value="cbc")
    programme = PulpProgramme(budget)
    wanted = write(programme, gram, formulation).all
    with TemporaryDirectory(prefix="vflbench-cbc-") as folder:
        model, answer = Path(folder, "batch.mps"), Path(folder, "batch.sol")
        variables, names, _, _ = programme.problem.writeMPS(str(model), rename=True)
        command = [program, str(model), "-sec", f"{budget.left:.2f}", "-timeMode", "elapsed"]
        command += ["-randomSeed", str(budget.seed), "-randomCbcSeed", str(budget.seed)]
        command += ["-threads", str(budget.threads)] if budget.threads > 1 else []
        command += ["-solve", "-printingOptions", "all", "-solution", str(answer)]
        if run_program(command, budget.left + GRACE) is None:
            return Outcome(None, None, f"CBC: killed, {GRACE} seconds after the time limit")
        status, values = read_cbc(answer)
    found = {name: values.get(names[name]) for name in (variable.name for variable in variables)}
    in_order = [found[unknown.name] for unknown in wanted]
    ended = ENDED.get(status.split(" - ")[0])
    usable = ended is not False and "continuous" not in status and None not in in_order
    return Outcome(in_order if usable else None, ended, f"CBC: {status}")


def cbc_program() -> str | None:
    """Where CBC is, or None."""
    bundled = getattr(pulp.PULP_CBC_CMD, "pulp_cbc_path", None)
    return next((found for name in (bundled, "cbc") if name and (found := which(name))), None)


def read_cbc(answer: Path) -> tuple[str, dict[str, float]]:
    """The first line of CBC's answer, and the value of each column. `**` before a line marks a broken bound."""
    status, *lines = answer.read_text().splitlines()
    fields = [line.removeprefix("**").split() for line in lines]
    return status.strip(), {field[1]: float(field[2]) for field in fields if len(field) >= 3}
