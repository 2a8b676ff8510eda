"""What a solver of an integer programme is given, and what it answers."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Solver = Literal["highs", "cbc", "cpsat"]
KEY = "attack.batch_reconstruction.solver"


@dataclass(frozen=True)
class Outcome:
    """values: one number an unknown, in the order asked for, not yet rounded or verified; None where there are none.

    ended: True if the solver calls them optimal, False if it proved that there are none, None if it was stopped.
    note: its own words. A solver's word is no proof: see `programme.solve`.
    """

    values: list[float] | None
    ended: bool | None
    note: str


@dataclass(frozen=True)
class Budget:
    """deadline: on time.monotonic(). threads, seed: for the solver."""

    deadline: float
    threads: int
    seed: int

    @property
    def left(self) -> float:
        """Seconds, never 0: solvers take 0 for no limit."""
        return max(self.deadline - time.monotonic(), 0.01)

    def check(self) -> None:
        """Raises TimeoutError when the time is up."""
        if time.monotonic() > self.deadline:
            raise TimeoutError("the time was up before the programme was written down")


def run_program(
    command: Sequence[str], seconds: float, given: bytes = b"", env: Mapping[str, str] | None = None
) -> bytes | None:
    """What a program writes to stdout, given this on stdin; None if it was killed after so many seconds.

    It does not outlive this call: Ctrl-C kills it, and waits until it has gone, which subprocess.run does not. Raises
    RuntimeError, with what it wrote to stderr, if it fails.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as program:
        try:
            written, errors = program.communicate(given, timeout=seconds)
        except BaseException as end:
            program.kill()
            program.wait()
            if isinstance(end, subprocess.TimeoutExpired):
                return None
            raise
    if program.returncode:
        raise RuntimeError(f"{command[0]} ended with {program.returncode}: {errors.decode(errors='replace').strip()}")
    return written
