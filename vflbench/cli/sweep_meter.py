"""How far a sweep has come, as a bar on a terminal, else as a line every ten seconds."""

import sys
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from vflbench.results.meter import SECONDS, duration

if TYPE_CHECKING:
    from tqdm import tqdm


class SweepMeter:
    """Counts runs. Those that were finished before took no time, and do not count for the time that is left.

    clock: of seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter):
        self._clock, self._began = clock, clock()
        self._last = self._began
        self._total = self._ended = self._skipped = 0
        self._bar: tqdm[Any] | None = None

    def expect(self, total: int) -> None:
        """So many runs in all. A sweeper that searches chooses the next ones only when the last have ended."""
        from tqdm import tqdm  # late: of a single run, nothing is shown here

        self._total = total
        if self._bar is None:  # smoothing=0: the time left follows from the mean run, not from the last
            self._bar = tqdm(total=total, desc="sweep", unit="run", disable=None, smoothing=0, dynamic_ncols=True)
        self._bar.total = total
        self._bar.refresh()

    def ended(self, *, skipped: bool) -> None:
        """One more run has ended."""
        self._ended += 1
        self._skipped += skipped
        self._last = self._clock()
        if self._bar is not None:
            if skipped and not self._bar.disable:
                self._bar.initial += 1
            self._bar.update()

    def show(self) -> None:
        """Refresh the bar; where there is no terminal, print a line if none was printed for ten seconds."""
        if self._bar is None or not self._bar.disable:
            if self._bar is not None:
                self._bar.refresh()  # the time that passed
        elif self._clock() - self._last >= SECONDS and self._ended < self._total:
            self._last = self._clock()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """`sweep: 3 of 12 runs, 40 s so far, about 2 min left`."""
        seconds, done = self._clock() - self._began, self._ended - self._skipped
        left = f", about {duration(seconds / done * (self._total - self._ended))} left" if done else ""
        return f"sweep: {self._ended} of {self._total} runs, {duration(seconds)} so far{left}"

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
