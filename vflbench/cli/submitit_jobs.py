"""The jobs of `hydra/launcher=submitit_slurm` and `submitit_local`: what one of them comes to costs the others nothing.

By itself, hydra-submitit-launcher gives up at the first job without a result, while others wait in the queue or compute, and
leaves all of them there when the sweep is stopped. Here every job is waited for, one that ended without a result is
submitted once more, and those that have not ended when the sweep stops are cancelled.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from tqdm import tqdm

from vflbench.cli.hydra_internals import executor_of_submitit, is_submitits
from vflbench.cli.workers import LostRunError, distinct_words, failed

_LOOK_SECONDS = 0.5
_RETRIES = 1


@contextmanager
def gathered(launcher: Launcher) -> Iterator[None]:
    """While entered, a launcher of submitit's gets the results of all its jobs, whatever became of some."""
    if not is_submitits(launcher):
        yield
        return
    import submitit

    class Executor(submitit.AutoExecutor):
        def map_array(self, fn: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
            rows = list(zip(*columns, strict=True))
            jobs = super().map_array(fn, *zip(*rows, strict=True))
            overrides = [row[0] for row in rows]
            return [_Ended(one) for one in gather(jobs, overrides, lambda number: self.submit(fn, *rows[number]))]

    with executor_of_submitit(Executor):
        yield


class _Ended:
    """A job that has ended, to hydra-submitit-launcher."""

    def __init__(self, returned: JobReturn):
        self.returned = returned

    def results(self) -> list[JobReturn]:
        return [self.returned]


def gather(jobs: Sequence[Any], overrides: Sequence[Sequence[str]], again: Callable[[int], Any]) -> list[JobReturn]:
    """What each of submitit's jobs returned. again: submits the job of this number once more."""
    names, attempts = distinct_words(overrides), [1] * len(jobs)
    returned: dict[int, JobReturn] = {}
    at_work = dict(enumerate(jobs))
    try:
        while at_work:
            for number, job in list(at_work.items()):
                if not job.done():
                    continue
                del at_work[number]
                one = _result(job)
                if isinstance(one, JobReturn):
                    returned[number] = one
                elif attempts[number] > _RETRIES:
                    returned[number] = failed(LostRunError(f"{one}, {attempts[number]} times"))
                else:
                    tqdm.write(f"{names[number]}: {one}; begun again, {attempts[number]} of {_RETRIES}")
                    attempts[number] += 1
                    at_work[number] = again(number)
            time.sleep(_LOOK_SECONDS if at_work else 0)
    finally:
        for job in at_work.values():
            with suppress(OSError):
                job.cancel(check=False)
    return [returned[number] for number in range(len(jobs))]


def _result(job: Any) -> JobReturn | str:
    """What a job returned or failed with; where there is neither, in words."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return job.results()[0]
    except FailedJobError as error:
        lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exception)\b", line)]
        return failed(RuntimeError(lines[-1] if lines else str(error)))
    except UncompletedJobError:
        return f"job {job.job_id} ended without a result (state: {job.state}; its log is {job.paths.stderr})"
