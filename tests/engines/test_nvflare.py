"""engine=nvflare from outside: the numbers of engine=local, and an end of all processes whatever becomes of one of them."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec

import pytest
from support.builders import figures
from support.warm_command import OPEN, SMALL, command

from vflbench.engines.nvflare import NvFlare
from vflbench.errors import UserError
from vflbench.hosts.run import workspace

TINY = ("dataset=breast_cancer", "model=mlp", "model.width=8", "model.bottom_layers=2", "epochs=1", "audit.batches=2")
PATIENCE = 240
"""Seconds after which a test gives a process up. No test asserts a time."""


def test_without_flare_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install .*\[nvflare\]'"):
        NvFlare().require_installed()


psutil = pytest.importorskip("psutil", reason="no nvflare here")
if find_spec("nvflare") is None:  # imported where it is needed: half a second
    pytest.skip("no nvflare here", allow_module_level=True)


def train(cwd, run, *words):
    result = command("train", *words, f"hydra.run.dir={run}", cwd=cwd)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def assert_same_but_for_attacks(apart, local):
    """Attacks at parties that live elsewhere are left to the recordings of these; all other figures are the same."""
    measured = figures(apart)
    assert [line for line in figures(local) if line in set(measured)] == measured
    assert len(measured) > 10


@pytest.mark.slow
def test_a_simulated_run_makes_the_numbers_of_a_run_in_one_process(tmp_path):
    words = (*SMALL, "epochs=2", "dataset.parties=2", "defense=[label_dp,dcor,quantize,binomial]")
    train(tmp_path, "local", *words)
    train(tmp_path, "apart", *words, "engine=nvflare")
    assert_same_but_for_attacks(tmp_path / "apart", tmp_path / "local")
    assert not (tmp_path / "apart" / "parties").exists()  # nobody goes on from a run that is complete


class Running:
    """A run that goes on until something happens to it."""

    def __init__(self, cwd, *words):
        self.cwd, self.folder = cwd, cwd / "run"
        arguments = ["-m", "vflbench", "train", *TINY, *words, "engine=nvflare", "engine.timeout=15", "hydra.run.dir=run"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.mark = ""
        self.process = subprocess.Popen([sys.executable, *arguments], cwd=cwd, env=OPEN, start_new_session=True, **pipes)

    def begin(self):
        """Wait for something to go on from."""
        self.wait(lambda: (self.folder / "checkpoint.pt").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.stdout.read()
        self.mark = next(one.environ()["VFLBENCH_RUN"] for one in psutil.Process(self.process.pid).children())
        return self

    def wait(self, happened):
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    def others(self):
        """Its processes, other than the one that was called."""
        others = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get("VFLBENCH_RUN") == self.mark and one.status() != psutil.STATUS_ZOMBIE:
                    others.append(one)
        return others

    def party(self):
        return next(one for one in self.others() if "--client" in one.cmdline())

    def clean(self):
        """Leave none of them behind a test that failed."""
        for one in [self.process, *(self.others() if self.mark else [])]:
            with suppress(psutil.Error, OSError):
                one.kill()
        self.process.stdout.close()

    def end(self):
        """What it said. None of its processes is left."""
        said = self.process.communicate(timeout=PATIENCE)[0]
        self.wait(lambda: not self.others())
        return said


@pytest.fixture
def running(tmp_path):
    """Starts runs, and leaves nothing of them."""
    started = []

    def start(*words):
        started.append(Running(tmp_path, *words))
        return started[-1].begin()

    yield start
    for run in started:
        run.clean()


LONG = ("epochs=2000", "audit.epochs=last")


def assert_named(run, said, why):
    assert run.process.returncode == 1
    (line,) = [line for line in said.splitlines() if line.startswith("engine: ")]
    assert "party a" in line
    assert why in line
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_party_that_hangs_is_named(running):
    run = running(*LONG)
    run.party().suspend()
    assert_named(run, run.end(), "engine.timeout")


@pytest.mark.slow
def test_a_party_that_dies_is_named_and_the_run_goes_on_to_the_same_bytes(tmp_path, running):
    words = ("epochs=12", "audit.epochs=last")
    train(tmp_path, "whole", *TINY, *words)
    run = running(*words)
    run.party().kill()
    assert_named(run, run.end(), "has ended")
    train(tmp_path, "run", *TINY, *words, "engine=nvflare", "engine.timeout=15")
    assert_same_but_for_attacks(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_when_the_label_party_is_killed_all_end(running):
    run = running(*LONG)
    run.party().suspend()  # a process that can't end by itself
    run.process.kill()
    run.end()


@pytest.mark.slow
def test_another_protocol_is_refused(tmp_path):
    result = command("train", "protocol=federated_lr", "engine=nvflare", cwd=tmp_path)
    assert result.returncode == 1
    assert "protocol=federated_lr: only protocol=split" in result.stderr
    assert not (tmp_path / "outputs").exists() or not os.listdir(tmp_path / "outputs")


def test_a_workspace_that_is_there_is_not_touched(tmp_path):
    (tmp_path / "mine").mkdir()
    problem = "engine.workspace=.*File exists; name a new folder"
    with pytest.raises(UserError, match=problem), workspace(str(tmp_path / "mine")):
        pass
    assert list((tmp_path / "mine").iterdir()) == []
