"""`hydra/launcher=fork`: who gets which run when, with processes that compute nothing; and what is refused."""

import pickle
import signal
from functools import partial
from types import SimpleNamespace

import pytest

from vflbench.cli import fork_launcher, fork_pool
from vflbench.cli.fork_launcher import ForkLauncher, may_use_gpu
from vflbench.cli.fork_pool import Pool, Work
from vflbench.cli.fork_safety import unsafe
from vflbench.cli.fork_server import FORK, WORKER
from vflbench.cli.workers import LostRunError, NoClusterError
from vflbench.errors import UserError

KILLED = -int(signal.SIGKILL)


class Scripted:
    """Says what its script holds for a payload: an exit code, a problem, or the death of the whole process."""

    begun: list["Scripted"]
    scripts: dict[bytes, list]
    greeting = ""

    def __init__(self, kind, environment):
        self.kind, self.environment, self.connection = kind, environment, self
        self.ready = self.retired = self.closed = False
        self.at_work, self.code, self.received, self.most = set(), 0, [], 0
        self.said = [("ready", -1, Scripted.greeting)]
        Scripted.begun.append(self)

    def begin(self, number, payload):
        self.at_work.add(number)
        self.received.append(payload)
        self.most = max(self.most, len(self.at_work))
        what = self.scripts.get(payload, []) and self.scripts[payload].pop(0)
        match what:
            case str():
                self.said.append((*what.split(":")[:1], number, "why"))
            case None:
                self.said.append(None)
            case code if isinstance(code, int) and not isinstance(code, bool):
                self.said.append(("ended", number, code, b""))
            case _:
                self.said.append(("ended", number, 0, pickle.dumps(payload)))

    def receive(self):
        said = self.said.pop(0)
        if said is None:
            self.code = KILLED
        return said

    def signal(self, number):
        self.said += [("ended", job, 1, b"") for job in sorted(self.at_work)] if number == signal.SIGTERM else []

    def close(self, *, at_once=False):
        self.closed = True


@pytest.fixture
def compute(monkeypatch):
    monkeypatch.setattr(fork_pool, "Process", Scripted)
    monkeypatch.setattr(fork_pool, "wait", lambda connections, _: [one for one in connections if one.said])

    def of(count, scripts=None, *, width=2, on_gpu=(), forks=True, greeting="", on_gpus=1):
        Scripted.begun, Scripted.greeting = [], greeting
        Scripted.scripts = {f"{number}".encode(): list(script) for number, script in (scripts or {}).items()}
        pool = Pool(width, on_gpus=on_gpus, forks=forks, environment={})
        jobs = [partial(Work, f"{number}".encode(), on_gpu=number in on_gpu) for number in range(count)]
        return pool, pool.compute(jobs, [f"seed={number}" for number in range(count)])

    return of


def received():
    return [(process.kind, [int(payload) for payload in process.received]) for process in Scripted.begun]


def test_one_warm_process_gets_all_and_no_more_at_once_than_there_are_cores(compute):
    pool, results = compute(7, width=3)
    assert results == [f"{number}".encode() for number in range(7)]
    assert received() == [(FORK, list(range(7)))]
    assert Scripted.begun[0].most == 3
    pool.close()
    assert Scripted.begun[0].closed


def test_a_run_that_ends_its_process_is_lost_and_no_other(compute):
    _, results = compute(3, {1: [3]})
    assert [type(one) for one in results] == [bytes, LostRunError, bytes]
    assert str(results[1]) == "its process ended before the run did (exit code 3)"


def test_a_killed_run_is_begun_once_more_when_all_others_have_ended(compute, capsys):
    _, results = compute(4, {0: [KILLED], 1: [KILLED, KILLED]})
    assert received() == [(FORK, [0, 1, 2, 3, 0, 1])]
    assert results[0] == b"0"
    assert str(results[1]) == "its process ended before the run did (killed by SIGKILL)"
    assert "seed=1: its process was killed" in capsys.readouterr().out


def test_runs_of_a_warm_process_that_is_lost_are_begun_in_another_until_that_helps_no_more(compute):
    _, results = compute(3, {0: [None]}, width=1)
    assert received() == [(FORK, [0]), (FORK, [0, 1, 2])]
    assert results == [b"0", b"1", b"2"]
    _, results = compute(2, {0: [None] * 9}, width=1)
    assert isinstance(results[0], LostRunError)
    assert results[1] == b"1"


def test_where_no_more_processes_can_be_begun_there_are_fewer_at_once(compute, capsys):
    pool, results = compute(5, {2: ["refused:", "refused:"]}, width=4)
    assert None not in results
    assert pool.width < 4
    assert "runs at once: why" in capsys.readouterr().out
    _, results = compute(1, {0: ["refused:"]})
    assert isinstance(results[0], LostRunError)


@pytest.mark.parametrize("when", ["ready", "later"])
def test_where_forking_is_not_safe_workers_compute_many_runs_each(compute, when, capsys):
    scripts, greeting = ({}, "a thread is at work") if when == "ready" else ({2: ["unsafe:"]}, "")
    if when == "ready":
        Scripted.begun = []
    pool, results = compute(6, scripts, greeting=greeting) if when == "later" else compute(6, forks=False)
    assert len(set(results)) == 6
    workers = [numbers for kind, numbers in received() if kind == WORKER]
    assert 1 <= len(workers) <= 2
    assert not (pool.forks and when == "later")
    assert ("not forked: why" in capsys.readouterr().out) == (when == "later")


def test_runs_on_a_gpu_come_one_at_a_time_and_never_in_a_fork(compute):
    _, results = compute(5, width=3, on_gpu={1, 2, 4})
    assert len(set(results)) == 5
    assert sorted(received()) == [(FORK, [0, 3]), (WORKER, [1, 2, 4])]


def test_a_process_that_can_not_begin_ends_the_sweep(monkeypatch, compute):
    monkeypatch.setattr(Scripted, "receive", lambda _: None)
    with pytest.raises(NoClusterError, match="could not begin"):
        compute(2)


def test_a_stop_asks_those_at_work_to_save_and_waits_for_them(monkeypatch, compute):
    real, asked = Scripted.begin, []

    def begin(self, number, payload):
        real(self, number, payload)
        if number == 1:
            self.said.clear()  # both go on
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Scripted, "begin", begin)
    monkeypatch.setattr(Scripted, "signal", lambda self, n: asked.append(n) or (n == signal.SIGTERM and self.say_ended()))
    monkeypatch.setattr(
        Scripted,
        "say_ended",
        lambda self: self.said.extend(("ended", n, 1, b"") for n in sorted(self.at_work)),
        raising=False,
    )
    with pytest.raises(KeyboardInterrupt) as stopped:
        compute(4)
    assert stopped.value.exit_code == 143
    assert asked == [signal.SIGTERM, signal.SIGCONT]
    assert Scripted.begun[0].received == [b"0", b"1"]


@pytest.mark.parametrize(
    "given", [{"n_jobs": 0}, {"n_jobs": -1}, {"n_jobs": 2000}, {"n_jobs": 1.5}, {"start": "x"}, {"x": 1}]
)
def test_options_out_of_range_are_refused(given):
    with pytest.raises(UserError, match=f"hydra.launcher.{next(iter(given))}="):
        fork_launcher.fork_launcher(given)


def test_processes_share_the_cores_and_a_larger_batch_gets_more_of_them(monkeypatch):
    monkeypatch.setattr(fork_launcher, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    launcher = fork_launcher.fork_launcher({})
    assert isinstance(launcher, ForkLauncher)
    pool = launcher._pool_for(2)
    assert (pool.width, pool.environment["OMP_NUM_THREADS"]) == (2, "4")
    assert launcher._pool_for(1) is pool
    assert launcher._pool_for(100).environment["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "OMP_NUM_THREADS" not in fork_launcher.fork_launcher({"n_jobs": 2})._pool_for(9).environment


@pytest.mark.usefixtures("compute")
def test_what_trains_is_loaded_while_configs_are_composed(monkeypatch):
    monkeypatch.setattr(fork_launcher, "usable_cores", lambda: 4)
    launcher, Scripted.begun = fork_launcher.fork_launcher({"n_jobs": None, "start": "auto"}), []
    launcher.warm_up({"device": "cpu"})
    (early,) = Scripted.begun
    assert launcher._pool_for(9).processes == [early]
    assert launcher._pool_for(2).processes == [early]
    launcher.close()
    launcher.warm_up({"device": "cpu"})
    assert launcher._pool_for(2).width == 2  # fewer runs than it was made for have more threads each
    assert Scripted.begun[1].closed
    launcher.close()
    launcher.warm_up({"device": "cuda"})
    assert len(Scripted.begun) == 2


def test_what_may_begin_cuda_is_not_forked(monkeypatch):
    monkeypatch.setattr(fork_launcher, "glob", lambda pattern: ["/dev/nvidia0"] if "nvidia" in pattern else [])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [may_use_gpu(device) for device in ("auto", "cpu", "cuda")] == [True, False, True]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not may_use_gpu("auto")


def test_a_process_with_a_thread_is_not_forked(monkeypatch):
    threads = [SimpleNamespace(name="MainThread"), SimpleNamespace(name="tqdm_monitor")]
    monkeypatch.setattr("threading.active_count", lambda: 2)
    monkeypatch.setattr("threading.enumerate", lambda: threads)
    assert "MainThread, tqdm_monitor" in unsafe()
