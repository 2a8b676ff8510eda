"""`hydra/launcher=ray`, and what becomes of a sweep whose workers and machines die."""

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from sweep_processes import OPEN, at_work, begin, descendants, ended, kill, kill_all, stamps, training, wait_until

from vflbench.cli import hydra_internals
from vflbench.cli.ray_launcher import RayLauncher, RayOptions, _set_environment, ray_launcher
from vflbench.cli.trust import LAUNCHERS
from vflbench.errors import UserError
from vflbench.places import config_folder

RAY = "hydra/launcher=ray"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cpus": 0}, "hydra.launcher.cpus=0: it must be a whole number from 1 to 1,024"),
        ({"retries": 101}, "hydra.launcher.retries=101: it must be a whole number from 0 to 100"),
        ({"memory_gb": 0}, "hydra.launcher.memory_gb=0: it must be a number from 0.1 to 100000"),
        ({"gpus": 1.5}, "hydra.launcher.gpus=1.5: above 1 it must be a whole number"),
        ({"address": "ray://head:10001"}, "hydra.launcher.address=ray://head:10001: a sweep is started on a machine of"),
        ({"ray": {"init": {"num_cpus": 1}}}, "RayOptions has address, cpus, gpus, memory_gb, retries"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_may_be(given, says):
    with pytest.raises(UserError, match=re.escape(says)):
        ray_launcher(given)


def test_the_yaml_has_the_options_and_their_defaults():
    given = yaml.safe_load((config_folder() / "hydra" / "launcher" / "ray.yaml").read_text())
    assert given.pop("_target_") == LAUNCHERS["ray"] == f"{RayLauncher.__module__}.{RayLauncher.__name__}"
    assert ray_launcher(given).options == RayOptions()
    assert set(given) == set(RayOptions.__dataclass_fields__)


@pytest.mark.parametrize(
    ("local", "before", "added"),
    [
        (True, {}, {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}),
        (True, {"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "disabled"}),
        (False, {}, {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": None}),
        (False, {"RAY_AUTH_TOKEN": "a"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a"}),
    ],
)
def test_a_ray_of_the_sweeps_own_listens_here_only_and_with_a_token(local, before, added, monkeypatch, tmp_path):
    environment = {"HOME": str(tmp_path), **before}
    monkeypatch.setattr("os.environ", environment)
    _set_environment(local)
    assert {name: environment.get(name) for name in added} == added
    assert ("RAY_AUTH_TOKEN" in environment) == (local or "RAY_AUTH_TOKEN" in before)


@contextmanager
def node(log, *words):
    """`ray start --block` with one core, in a process group of its own: a machine of a cluster."""
    ray = Path(sys.executable).with_name("ray")
    command = [ray, "start", "--block", "--num-cpus=1", "--object-store-memory=80000000", *words]
    with log.open("w") as output:
        environment = OPEN | {"RAY_AUTH_MODE": "token"}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: "Ray runtime started" in log.read_text(), process, log.read_text)
        yield process
    finally:
        kill_all(process)


@pytest.fixture
def cluster(tmp_path_factory):
    """Two machines, by their addresses on the loopback device: the head's address, and the process of each."""
    pytest.importorskip("ray", reason="no Ray here")
    logs = tmp_path_factory.mktemp("logs")
    with socket.socket() as one:
        one.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{one.getsockname()[1]}"
    head = (f"--port={address.partition(':')[2]}", "--node-ip-address=127.0.0.2", "--include-dashboard=false")
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as place,  # a socket's path must be short
        node(logs / "head", "--head", *head, f"--temp-dir={place}") as first,
        node(logs / "second", f"--address={address}", "--node-ip-address=127.0.0.3") as second,
    ):
        yield address, first, second


@pytest.mark.slow
def test_a_machine_and_a_worker_that_die_cost_no_finished_run(cluster, tmp_path):
    address, first, second = cluster
    words = (RAY, "epochs=4", "seed=0,1,2,3,4,5", f"hydra.launcher.address={address}")
    sweep = begin(tmp_path, *words)
    wait_until(lambda: len(stamps(tmp_path)) >= 1 and set(training(tmp_path)) & set(descendants(first.pid)), sweep)
    before, of_first = stamps(tmp_path), set(descendants(first.pid))
    kill(next(number for number in training(tmp_path) if number in of_first))
    wait_until(lambda: len(stamps(tmp_path)) >= 2 and set(training(tmp_path)) & set(descendants(second.pid)), sweep)
    before = stamps(tmp_path) | before
    kill_all(second)
    said = ended(sweep)
    assert sweep.returncode == 0, said
    lost = re.findall(r"^seed=\d: its worker was lost \(.*\); begun again, 1 of 3$", said, re.MULTILINE)
    assert len(lost) == 2, said
    assert {name: stamps(tmp_path)[name] for name in before} == before
    assert len(stamps(tmp_path)) == 6
    again = begin(tmp_path, *words)
    assert ended(again).count("finished before, so not computed again") == 6


PLUGIN = """
import os
import signal

from vflbench import Attack, Gradients, Threat


class Deadly(Attack):
    threat = Threat(knows={Gradients})

    def batch(self, view):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_run_that_always_dies_fails_with_a_line_and_the_others_do_not(tmp_path):
    pytest.importorskip("ray", reason="no Ray here")
    (tmp_path / "mine" / "attack").mkdir(parents=True)
    (tmp_path / "mine" / "deadly.py").write_text(PLUGIN)
    (tmp_path / "mine" / "attack" / "deadly.yaml").write_text("deadly:\n  _target_: deadly.Deadly\n")
    for name in ("torch.py", "numpy.py", "ray.py", "json.py"):  # which workers must not import
        (tmp_path / name).write_text("open('imported', 'w')\nraise ImportError\n")
    words = ("--plugins", "mine", RAY, "hydra.launcher.retries=1", "epochs=1", "attack=norm,deadly")
    sweep = begin(tmp_path, *words)
    said = ended(sweep)
    assert sweep.returncode == 1, said
    assert len(re.findall(r"^attack=deadly: its worker was lost .*; begun again, 1 of 1$", said, re.MULTILINE)) == 1
    assert re.search(r"failed: attack=deadly\n  its worker was lost \(.*\), 2 times", said), said
    assert re.search(r"done +1\n +skipped +0 .*\n +failed +1\n", said), said
    (error,) = tmp_path.glob("outputs/*/error.txt")
    assert "2 times" in error.read_text()
    (finished,) = tmp_path.glob("outputs/*/summary.json")
    assert json.loads((finished.parent / "manifest.json").read_text())["threads"] == 1
    assert not list(tmp_path.rglob("imported"))


@pytest.mark.slow
def test_a_sweep_on_ray_that_is_stopped_saves_what_it_has_and_leaves_no_process(tmp_path):
    pytest.importorskip("ray", reason="no Ray here")
    words = (RAY, "epochs=60", "seed=0,1,2,3")
    sweep = begin(tmp_path, *words)
    wait_until(lambda: len(training(tmp_path)) == 2, sweep)
    below = descendants(sweep.pid)
    sweep.send_signal(signal.SIGINT)
    said = ended(sweep)
    assert sweep.returncode == 128 + signal.SIGINT, said
    assert "sweep stopped: of 4 runs 0 are finished" in said
    assert at_work(tmp_path) == {}
    wait_until(lambda: not any(Path(f"/proc/{number}").exists() for number in below))
    assert len(list(tmp_path.glob("outputs/*/checkpoint*"))) == 2
    assert len(list(tmp_path.glob("outputs/*/error.txt"))) == 0


@pytest.mark.slow
def test_a_cluster_that_is_not_there_ends_the_sweep_in_one_paragraph(tmp_path):
    pytest.importorskip("ray", reason="no Ray here")
    sweep = begin(tmp_path, RAY, "seed=0,1", "hydra.launcher.address=127.0.0.2:9")
    said = ended(sweep)
    assert sweep.returncode == 1
    assert said.splitlines()[-1].startswith("hydra.launcher.address=127.0.0.2:9: Ray does not answer there (")
    assert list(tmp_path.glob("outputs/*/error.txt")) == []


def test_hydra_makes_a_launcher_of_ours_from_its_options():
    made = []
    with hydra_internals.wrapped_launchers(
        lambda launcher, *_: launcher, {"ours": lambda given: made.append(given) or Own()}
    ):
        from hydra.core.plugins import Plugins
        from omegaconf import OmegaConf

        config = OmegaConf.create({"hydra": {"launcher": {"_target_": "ours", "cpus": 2}}})
        launcher = Plugins.instance().instantiate_launcher(hydra_context=None, task_function=print, config=config)
    assert made == [{"cpus": 2}]
    assert launcher.config is config


class Own:
    def setup(self, *, hydra_context, task_function, config):
        self.config = config
