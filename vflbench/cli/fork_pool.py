"""Gives the runs of a sweep to processes, several at once, and gathers what they come to."""

import os
import pickle  # nosec  (what our own processes answer)
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from tqdm import tqdm

from vflbench.cli.fork_processes import Process, name_of
from vflbench.cli.fork_server import FORK, WORKER
from vflbench.cli.workers import LostRunError, NoClusterError
from vflbench.run.interruption import Interrupted, Interruption

_LOOK_SECONDS = 0.2
_MOST_SERVERS = 3
"""How many warm processes may be lost, with all that they have at work, before their runs count as lost."""


@dataclass(frozen=True)
class Work:
    """A job, made when it is begun. payload: what a process unpickles. on_gpu: not in a fork; by itself, one at a time."""

    payload: bytes
    on_gpu: bool = False


class Pool:
    """width: how many jobs at once; on_gpus: how many of them on GPUs. environment: of the processes, beside this one's.

    forks: whether jobs may be forks of a warm process, where it turns out to be safe.
    """

    def __init__(self, width: int, *, on_gpus: int, forks: bool, environment: Mapping[str, str]):
        self.width, self.on_gpus, self.forks, self.environment = width, on_gpus, forks, environment
        self.processes: list[Process] = []
        self._lost_servers = 0
        self._paused = False

    def compute(self, jobs: Sequence[Callable[[], Work]], names: Sequence[str]) -> list[Any]:
        """What each job returns; for one that failed, or whose process was lost, an exception. names: of the jobs.

        After Ctrl-C or SIGTERM, those at work are asked to save what they have. Raises Interrupted when they have ended.
        """
        batch = _Batch(jobs, names)
        try:
            with Interruption() as interruption, self._pausable():
                while not batch.is_complete:
                    if interruption.asked:
                        self._stop(interruption.asked)
                    self._begin(batch)
                    self._listen(batch)
        except BaseException:
            self.close(at_once=True)
            raise
        return batch.results

    def warm_up(self) -> None:
        """Begin a process before there are jobs."""
        if not self.processes:
            self.processes.append(Process(FORK if self.forks else WORKER, self.environment))

    def close(self, *, at_once: bool = False) -> None:
        """End the processes. at_once: with what they have at work. Those that are not ready yet are not waited for."""
        while self.processes:
            process = self.processes.pop()
            process.close(at_once=at_once or not (process.ready or process.at_work))

    @property
    def at_work(self) -> int:
        return sum(len(process.at_work) for process in self.processes)

    def _begin(self, batch: "_Batch") -> None:
        """Give jobs to processes, as far as there is room."""
        while self.at_work < self.width and (job := batch.next(idle=self.at_work == 0)) is not None:
            number, work = job
            process = self._process(work)
            if process is None:
                return
            batch.taken()
            process.begin(number, work.payload)

    def _process(self, work: Work) -> Process | None:
        """A process that can begin this job now; None if that takes a while. Begins a process where one is missing."""
        kind = FORK if self.forks and not work.on_gpu else WORKER
        alike = [process for process in self.processes if process.kind == kind and not process.retired]
        if kind == FORK:
            free = alike
        else:
            free = [process for process in alike if not process.at_work]
            if work.on_gpu and sum(bool(process.at_work) for process in alike) >= self.on_gpus:
                return None
        if not free:
            self.processes.append(Process(kind, self.environment))
            return None
        return next((process for process in free if process.ready), None)

    def _listen(self, batch: "_Batch") -> None:
        """Wait a little for what processes say, and act on it."""
        for process in self._speaking():
            match process.receive():
                case None:
                    self._gone(process, batch)
                case ("ready", _, ""):
                    process.ready = True
                case ("ready", _, problem):
                    self._fork_no_more(process, problem)
                case ("unsafe", number, problem):
                    process.at_work.remove(number)
                    batch.again(number)
                    self._fork_no_more(process, problem)
                case ("refused", number, problem):
                    process.at_work.remove(number)
                    if self.at_work:
                        self.width = self.at_work
                        batch.again(number)
                        tqdm.write(f"no more than {self.width} runs at once: {problem}")
                    else:
                        batch.results[number] = LostRunError(f"no process could be started for it: {problem}")
                case ("ended", number, code, answer):
                    process.at_work.remove(number)
                    batch.ended(number, code, answer)

    def _speaking(self) -> list[Process]:
        """The processes that have something to say, after a little while at most."""
        if self._paused:
            self._pause()
        speaking = wait([process.connection for process in self.processes], _LOOK_SECONDS)
        return [process for process in self.processes if process.connection in speaking]

    def _fork_no_more(self, process: Process, problem: str) -> None:
        if self.forks:
            tqdm.write(f"runs are computed in processes that were not forked: {problem}")
        self.forks, process.retired = False, True

    def _gone(self, process: Process, batch: "_Batch") -> None:
        """A process has ended, with what it had at work."""
        self.processes.remove(process)
        process.close()
        if not process.ready and not process.retired:
            raise NoClusterError(f"a process of the sweep could not begin ({name_of(process.code)})", key="hydra/launcher")
        if process.kind == FORK and process.at_work:
            self._lost_servers += 1
            tqdm.write(f"the process that runs were forked from is gone ({name_of(process.code)}); they are begun again")
        for number in sorted(process.at_work, reverse=True):
            if process.kind == FORK and self._lost_servers <= _MOST_SERVERS:
                batch.again(number)
            else:
                batch.ended(number, process.code, b"")

    def _stop(self, asked: signal.Signals) -> None:
        """Let what is at work save itself, and raise Interrupted."""
        for process in self.processes:
            process.signal(signal.SIGTERM)
            process.signal(signal.SIGCONT)  # one that was stopped
        while self.at_work:
            for process in self._speaking():
                match process.receive():
                    case None:
                        process.at_work.clear()
                    case (_, number, *_):
                        process.at_work.discard(number)
        raise Interrupted("the runs that were at work go on from what they saved last", 128 + asked)

    @contextmanager
    def _pausable(self) -> Iterator[None]:
        """While entered, Ctrl-Z stops what is at work too: the terminal reaches this process alone."""
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTSTP) != signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTSTP, self._note_pause)
        try:
            yield
        finally:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _note_pause(self, *_: Any) -> None:
        self._paused = True

    def _pause(self) -> None:
        self._paused = False
        for process in self.processes:
            process.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)  # until the shell's `fg`
        for process in self.processes:
            process.signal(signal.SIGCONT)


class _Batch:
    """Jobs that wait, and what became of the others."""

    def __init__(self, jobs: Sequence[Callable[[], Work]], names: Sequence[str]):
        self.jobs, self.names = jobs, names
        self.results: list[Any] = [_OPEN] * len(jobs)
        self._waiting = deque(range(len(jobs)))
        self._alone: deque[int] = deque()
        self._killed: set[int] = set()
        self._made: tuple[int, Work] | None = None

    @property
    def is_complete(self) -> bool:
        return all(result is not _OPEN for result in self.results)

    def next(self, *, idle: bool) -> tuple[int, Work] | None:
        """The job that comes next; one that was killed only when nothing else is at work or waits."""
        if self._made is None and (self._waiting or (idle and self._alone)):
            number = (self._waiting or self._alone).popleft()
            self._made = number, self.jobs[number]()
        return self._made

    def taken(self) -> None:
        """The job that `next` returned has been begun."""
        self._made = None

    def again(self, number: int) -> None:
        """Begin it once more, before those that wait."""
        self._waiting.appendleft(number)

    def ended(self, number: int, code: int, answer: bytes) -> None:
        """answer: what the process pickled before it ended; empty if it was lost."""
        if answer:
            self.results[number] = pickle.loads(answer)  # nosec  (what our own process made)
        elif code == -signal.SIGKILL and number not in self._killed:
            self._killed.add(number)
            self._alone.append(number)
            name = self.names[number]
            tqdm.write(f"{name}: its process was killed, as where memory runs out; begun again after the others, alone")
        else:
            self.results[number] = LostRunError(f"its process ended before the run did ({name_of(code)})")


_OPEN = object()
