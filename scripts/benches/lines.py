"""What a benchmark says: lines with a named alternative and a limit, and how their costs are measured. Stdlib alone, as
the interpreters of alternatives import it too.

A topic is a module of this folder. Its docstring says what is measured and beside what; `arguments(parser)` adds its
options, `bench(options)` yields lines, and `work(options)`, if there is one, runs in the processes that it starts by
`command(topic, "--worker", NAME, ...)`.
"""

import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "bench.py"


@dataclass(frozen=True)
class Cost:
    """Seconds of the clock; CPU seconds of the process and what it started; largest resident memory in MB. nan: unknown."""

    wall: float
    cpu: float = math.nan
    memory: float = math.nan

    def per(self, count: float) -> "Cost":
        """Of one among so many steps, rows or calls."""
        return Cost(self.wall / count, self.cpu / count, self.memory)


@dataclass(frozen=True)
class Line:
    """What was measured; our cost; a named alternative's; and a limit's, which nothing that does the work can beat.

    faster: the goal for alternative / ours. within: the goal for ours / limit. cpu: the goal in CPU seconds. by_clock: the
    ratios are of the clock, where both cores are to be used. note: what else there is to know, such as an error.
    """

    what: str
    ours: Cost
    alternative: str = ""
    theirs: Cost | None = None
    limit: str = ""
    least: Cost | None = None
    faster: float | None = None
    within: float | None = None
    cpu: float | None = None
    by_clock: bool = False
    note: str = ""

    def clocked(self, above: Cost, below: Cost) -> bool:
        """Whether a ratio is of the clock, as it also is where CPU seconds are not known."""
        return self.by_clock or math.isnan(above.cpu + below.cpu)

    def ratio(self, above: Cost, below: Cost) -> float:
        upper, lower = (above.wall, below.wall) if self.clocked(above, below) else (above.cpu, below.cpu)
        return upper / lower if lower else math.nan

    def verdict(self) -> str:
        """The goals, and whether they were met."""
        goals: list[tuple[str, bool | None]] = []
        if self.faster is not None:
            times_faster = None if self.theirs is None else self.ratio(self.theirs, self.ours) >= self.faster
            goals.append((f">= {self.faster:g} x faster", times_faster))
        if self.within is not None:
            times_limit = None if self.least is None else self.ratio(self.ours, self.least) <= self.within
            goals.append((f"<= {self.within:g} x limit", times_limit))
        if self.cpu is not None:
            goals.append((f"<= {self.cpu:g} CPU s", None if math.isnan(self.ours.cpu) else self.ours.cpu <= self.cpu))
        said = {None: "not measured", True: "met", False: "missed"}
        return "; ".join(f"{goal}: {said[met]}" for goal, met in goals)

    def cells(self) -> list[str]:
        cells = [self.what, seconds(self.ours.cpu), seconds(self.ours.wall), known(self.ours.memory, ".0f")]
        for name, other, turned in ((self.alternative, self.theirs, False), (self.limit, self.least, True)):
            if other is None:
                cells += [name, "", "", ""]
                continue
            pair = (self.ours, other) if turned else (other, self.ours)
            ratio = known(self.ratio(*pair), ".3g")
            ratio += " by the clock" * (self.clocked(*pair) and bool(ratio))
            cells += [name, seconds(other.cpu), seconds(other.wall), ratio]
        return [*cells, self.verdict(), self.note]


HEAD = [
    *("what", "CPU", "wall", "MB", "alternative", "its CPU", "its wall", "times faster"),
    *("limit", "its CPU", "its wall", "of limit", "goal", "note"),
]


def seconds(value: float) -> str:
    """Three digits, in s, ms or us; empty for nan."""
    if math.isnan(value):
        return ""
    unit, size = next((pair for pair in (("s", 1.0), ("ms", 1e-3)) if value >= pair[1]), ("us", 1e-6))
    return f"{value / size:.3g} {unit}"


def known(value: float, digits: str) -> str:
    """In this format; empty for nan."""
    return "" if math.isnan(value) else f"{value:{digits}}"


def table(lines: Iterable[Line]) -> str:
    """The lines under their heads; columns that all lines leave empty are left out."""
    rows = [HEAD, *(line.cells() for line in lines)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    padded = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return "\n".join("  ".join(row).rstrip() for row in zip(*padded, strict=True))


def command(topic: str, *words: str) -> list[str]:
    """What runs a topic in another process."""
    return [sys.executable, str(BENCH), topic, *words]


def measured(
    words: Sequence[str], *, folder: Path | None = None, environment: Mapping[str, str] | None = None, code: int | None = 0
) -> Cost:
    """Run a command in a process of its own, output thrown away. Raises RuntimeError if it ends with another exit code."""
    began = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, words)),
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if code is not None and process.returncode != code:
        last = said.decode(errors="replace").strip()[-500:]
        raise RuntimeError(f"{' '.join(map(str, words))} ended with {process.returncode}: {last}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def timed(call: Callable[[], object]) -> Cost:
    """One call in this process, with all its threads, and the processes that it started and waited for."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    call()
    return Cost(time.perf_counter() - wall, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """Of this process so far, and of those that it has waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def in_turns(calls: Mapping[str, Callable[[], Cost]], rounds: int) -> dict[str, Cost]:
    """Each call's cost in its quietest round, by CPU seconds. Which goes first changes from round to round."""
    names, costs = list(calls), {name: list[Cost]() for name in calls}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            costs[name].append(calls[name]())
    return {name: quietest(of) for name, of in costs.items()}


def quietest(costs: Sequence[Cost]) -> Cost:
    """Of several rounds: what else runs on a machine only adds."""
    best = min(costs, key=lambda cost: cost.wall if math.isnan(cost.cpu) else cost.cpu)
    return Cost(min(cost.wall for cost in costs), best.cpu, best.memory)


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*((c.wall, c.cpu, c.memory) for c in costs), strict=True)))


def peak_memory() -> float:
    """The largest resident memory of this process so far, in MB. What getrusage says begins with that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def each(lines: Iterator[Line], say: Callable[[str], object]) -> list[Line]:
    """All lines, with a word on each as it comes."""
    kept = []
    for line in lines:
        kept.append(line)
        say(f"  {line.what}: {seconds(line.ours.cpu)} CPU, {seconds(line.ours.wall)}")
    return kept
