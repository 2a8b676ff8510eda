"""A time limit that a search checks at every step."""

import time


class TimeLimitReached(Exception):  # noqa: N818 (not an error)
    """The search reached its time limit."""


class TimeLimit:
    """Starts when it is created. `check` raises TimeLimitReached after `limit` seconds (None: never)."""

    def __init__(self, limit: float | None):
        self._start = time.perf_counter()
        self._limit = float("inf") if limit is None else limit

    @property
    def seconds(self) -> float:
        """Elapsed so far."""
        return time.perf_counter() - self._start

    def check(self) -> None:
        if self.seconds > self._limit:
            raise TimeLimitReached
