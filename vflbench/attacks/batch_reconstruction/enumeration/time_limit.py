"""A time limit that a search asks about at every step."""

import time


class TimeIsUp(Exception):  # noqa: N818 (not a mistake of anybody's)
    """The search reached its time limit."""


class Clock:
    """Counts from its making. `tick` raises TimeIsUp after `limit` seconds (None: never)."""

    def __init__(self, limit: float | None):
        self._start = time.perf_counter()
        self._limit = float("inf") if limit is None else limit

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def tick(self) -> None:
        if self.seconds > self._limit:
            raise TimeIsUp
