"""What a solver of an integer programme is given, and what it answers."""

import time
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
