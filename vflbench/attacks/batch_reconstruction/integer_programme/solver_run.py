"""The interface of the solvers of an integer programme: what they get, what they return, and how their programs run."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Solver = Literal["highs", "cbc", "cpsat"]
SOLVER_KEY = "attack.batch_reconstruction.solver"


@dataclass(frozen=True)
class SolverResult:
    """values: one number for each unknown, in the requested order, not yet rounded or verified; None if there are none.

    ended: True if the solver reports them as optimal, False if it reports infeasibility, None if it was stopped.
    note: its own words. They prove nothing without the verification in `solve`.
    """

    values: list[float] | None
    ended: bool | None
    note: str


@dataclass(frozen=True)
class SolverBudget:
    """deadline: on time.monotonic(). threads, seed: for the solver. steps: nodes (CP-SAT: conflicts), None for no limit."""

    deadline: float
    threads: int
    seed: int
    steps: int | None = None

    @property
    def left(self) -> float:
        """Seconds, never 0: for solvers 0 means no limit."""
        return max(self.deadline - time.monotonic(), 0.01)

    def check(self) -> None:
        """Raises TimeoutError after the deadline."""
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time limit was reached before the programme was written")


def run_program(
    command: Sequence[str], seconds: float, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> bytes | None:
    """What a program writes to stdout, given this stdin; None if it was killed after `seconds`.

    The program never outlives this call: Ctrl-C kills it and waits for its end, which subprocess.run does not. Raises
    RuntimeError with the program's stderr if it fails.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as program:  # nosec B603  # a list, no shell; made by our own solvers
        try:
            written, errors = program.communicate(stdin, timeout=seconds)
        except BaseException as end:
            program.kill()
            program.wait()
            if isinstance(end, subprocess.TimeoutExpired):
                return None
            raise
    if program.returncode:
        raise RuntimeError(f"{command[0]} ended with {program.returncode}: {errors.decode(errors='replace').strip()}")
    return written
