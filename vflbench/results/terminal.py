"""What a run prints: lines of a terminal's width, and how far it has come, with the time that is left."""

import importlib
import math
import os
import shlex
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

from vflbench.errors import printable

if TYPE_CHECKING:
    from tqdm import tqdm

WIDTH = 80
"""Columns of a terminal."""


def wrapped(text: str, indent: str = "", width: int = WIDTH, most: int | None = None) -> list[str]:
    """Lines of at most `width` columns; a number stays with its percent sign, and long names and paths stay whole.

    indent: of every line but the first. most: lines; what is left out is a ` ...`.
    """
    kept = printable(text).replace(" %", "\u00a0%")
    options = {"break_long_words": False, "break_on_hyphens": False, "max_lines": most, "placeholder": " ..."}
    made = textwrap.wrap(kept, width, subsequent_indent=indent, **options)  # type: ignore[arg-type]
    return [line.replace("\u00a0", " ") for line in made]


def for_stream(text: str, stream: TextIO | None) -> str:
    """A message as it is printed: wrapped at a terminal; elsewhere, where it may be searched, each paragraph is a line."""
    if stream is None or not stream.isatty():
        return text
    return "\n".join("\n".join(wrapped(line)) for line in text.split("\n"))


def path_text(path: Path) -> str:
    """As it is typed from the working folder, if it lies in it, else whole; quoted for the shell."""
    inside = os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
    return shlex.quote(printable(inside))


SECONDS = 10.0
"""Between lines, where there is no terminal."""
_BAR_SECONDS = 1.0
_BAR = "{percentage:3.0f}%|{bar}| {desc}"


@dataclass
class Work:
    """One kind of work: how often it was done and in how many seconds, and how often it is still to come."""

    done: int = 0
    seconds: float = 0.0
    left: int = 0

    def add(self, seconds: float) -> None:
        self.done, self.seconds, self.left = self.done + 1, self.seconds + seconds, max(0, self.left - 1)

    @property
    def to_come(self) -> float:
        """Seconds, as the mean so far has it; nan if it is still to come and was never done."""
        if not self.left:
            return 0.0
        return self.left * self.seconds / self.done if self.done else math.nan


class Meter:
    """Keeps what was done and what is left to do: batches that are trained on, batches that are attacked, ends of epochs.

    Nothing that a run computes depends on it: the clock decides when a line is printed, and never a number.

    shown: whether anything is printed. clock: of seconds. audit_seconds: that attacks took in this epoch.
    """

    def __init__(self, *, shown: bool = True, clock: Callable[[], float] = perf_counter):
        self.shown, self._clock = shown, clock
        self.batches, self.audits, self.ends = Work(), Work(), Work()
        self.audit_seconds = 0.0
        self._doing, self._epoch, self._began = "reading the data", "", clock()
        self._batch_began = self._end_began = self._began
        self._bar: tqdm[Any] | None = None

    def doing(self, what: str) -> None:
        """Name the work in hand, for whoever waits for it."""
        self._doing = what

    def epoch(self, number: int, epochs: int, *, batches: int, audits: int) -> None:
        """An epoch, counted from 0, begins or goes on. batches, audits: that are still to come, of all epochs."""
        self._epoch = f"epoch {number + 1}/{epochs}"
        self.batches.left, self.audits.left, self.ends.left = batches, audits, epochs - number
        self.audit_seconds, self._batch_began = 0.0, self._clock()
        self.doing("training")

    @contextmanager
    def audit(self, *, counts: bool) -> Iterator[None]:
        """What follows a batch that was trained on. counts: whether it is attacked."""
        began = self._clock()
        self.batches.add(began - self._batch_began)
        if counts:
            self.doing("attacking a batch")
        yield
        self._batch_began = self._clock()
        self.audit_seconds += self._batch_began - began
        if counts:
            self.audits.add(self._batch_began - began)
            self.doing("training")

    @contextmanager
    def audit_at_the_end(self) -> Iterator[None]:
        """After the last batch of an epoch, which is over with `ended`."""
        self._end_began = self._clock()
        self.doing("attacking at its end")
        yield
        self.audit_seconds += self._clock() - self._end_began

    def ended(self) -> None:
        """An epoch is over, and what it came to is measured."""
        self.ends.add(self._clock() - self._end_began)

    @property
    def seconds_left(self) -> float:
        """As the work so far has it; nan before any batch was trained on. Work that was never done counts as none."""
        parts = [work.to_come for work in (self.batches, self.audits, self.ends)]
        return math.fsum(part for part in parts if not math.isnan(part)) if self.batches.done else math.nan

    @property
    def is_complete(self) -> bool:
        """Whether every kind of work was done before, so that `seconds_left` lacks nothing."""
        return not any(math.isnan(work.to_come) for work in (self.batches, self.audits, self.ends))

    @property
    def share(self) -> float:
        """Of the time that all takes, if that is known; else of the batches."""
        spent, left = math.fsum(work.seconds for work in (self.batches, self.audits, self.ends)), self.seconds_left
        if self.is_complete and spent + left > 0:
            return spent / (spent + left)
        total = self.batches.done + self.batches.left
        return self.batches.done / total if total else 0.0

    def line(self) -> str:
        """`31 % done, epoch 12/30: training, 12 min so far, about 27 min left`, in 80 columns."""
        start = f"{self._epoch}: " if self._epoch else ""
        start = f"{100 * self.share:.0f} % done, {start}" if self._epoch and self.is_complete else start
        spent, left = f", {duration(self._clock() - self._began)} so far", self._left()
        whole = f"{start}{self._doing}{spent}{left}"
        return whole if len(whole) <= WIDTH or not left else f"{start}{self._doing}{left}"

    def _left(self) -> str:
        seconds = self.seconds_left
        if math.isnan(seconds) or (not self.is_complete and seconds < SECONDS):
            return ""
        return f", {'about' if self.is_complete else 'more than'} {duration(seconds)} left"

    @contextmanager
    def running(self) -> Iterator[None]:
        """While entered, a thread prints `line`, also while the run is busy with one long piece of work."""
        if not self.shown:
            yield
            return
        importlib.import_module("vflbench.numerics.special")  # beside another thread, it would load all of scipy's

        def look() -> None:
            with suppress(OSError, ValueError):  # nobody reads it any more
                self._show()

        try:
            with repeated(look, _BAR_SECONDS if _is_terminal() else SECONDS):
                yield
        finally:
            if self._bar is not None:
                self._bar.close()

    def _show(self) -> None:
        if not _is_terminal():
            print(self.line(), file=sys.stderr, flush=True)
            return
        if self._bar is None:
            from tqdm import tqdm  # late: short runs need none

            self._bar = tqdm(total=1.0, bar_format=_BAR, leave=False, dynamic_ncols=True)
        self._bar.n = self.share
        what = f"{self._epoch}: {self._doing}" if self._epoch else self._doing
        self._bar.set_description_str(f"{what}, {duration(self._clock() - self._began)}{self._left()}")


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    whole = math.ceil(max(0.0, seconds))
    if whole < 100:
        return f"{whole} s"
    minutes = math.ceil(whole / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def repeated(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """While entered, a thread calls `look` every so many seconds, first after so many. It has ended when this is left."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=work, name="repeated look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
