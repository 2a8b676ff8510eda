import os

import pytest
import torch
from support.builders import run_in

from vflbench.cli.main import prepare_environment
from vflbench.data.synthetic import Synthetic
from vflbench.run import settings, setup
from vflbench.run.settings import Audit, Settings, product_error, set_threads, tune


def test_tuning_never_costs_accuracy():
    """Whatever was chosen, a float32 product is one: bfloat16 would be off by a thousandth."""
    before = torch.get_float32_matmul_precision()
    try:
        facts = tune()
        assert product_error() < 1e-5
        assert facts["matmul"] == torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.fixture
def four_threads(monkeypatch):
    """As on a machine with four cores where nobody chose a number of threads."""
    monkeypatch.setattr(settings, "_AVAILABLE", 4)
    monkeypatch.delenv("OMP_NUM_THREADS")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_threads")
def test_small_batches_use_one_thread_and_larger_ones_up_to_those_of_the_machine():
    for rows, width, threads in ((512, 128, 1), (2048, 128, 2), (128, 512, 2), (1 << 20, 1024, 4), (32, 16, 1)):
        assert tune()["threads"] == torch.get_num_threads() == 4  # data are loaded alike in each run of a sweep
        assert set_threads(rows, width) == torch.get_num_threads() == threads


@pytest.mark.usefixtures("four_threads")
def test_a_number_of_the_users_is_kept_and_one_of_a_launchers_is_a_limit(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("VFLBENCH_THREADS", raising=False)
    assert set_threads(32, 16) == tune()["threads"] == 4
    monkeypatch.setenv("VFLBENCH_THREADS", "given")
    assert set_threads(32, 16) == 4
    monkeypatch.setenv("VFLBENCH_THREADS", "auto")
    assert set_threads(32, 16) == 1
    assert set_threads(1 << 20, 1024) == 4


ALWAYS = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "PYTHONSAFEPATH": "1"}


def test_a_command_says_who_chose_the_number_and_lets_threads_sleep(monkeypatch):
    given = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "ACTIVE"}
    for before, after in (
        ({"VFLBENCH_THREADS": "given"}, {"OMP_WAIT_POLICY": "PASSIVE", "VFLBENCH_THREADS": "auto"}),
        (given, given | {"VFLBENCH_THREADS": "given"}),
    ):
        monkeypatch.setattr(os, "environ", dict(before))
        prepare_environment()
        assert os.environ == after | ALWAYS


def test_how_slow_bfloat16_is_is_measured_and_said_and_decides_nothing(tmp_path, monkeypatch):
    ticks = iter([0, 6, 10, 13, *[20, 29] * 5, 30, 32, 40, 41, *[50, 59] * 5])  # 3 at best, then 1
    assert settings.bf16_slowness(torch.device("cpu"), 4, 3, lambda: float(next(ticks))) == 3.0
    parts = {"dataset": Synthetic(rows=1000, vocabulary=200), "attacks": {}}
    for times, said in ((2.34, True), (1.05, False)):
        monkeypatch.setattr(setup, "bf16_slowness", lambda *_, times=times: times)
        asked = Settings(precision="bf16", epochs=1, batch_size=64, audit=Audit())
        run_in(tmp_path / str(said), settings=asked, **parts)
        line = f"precision=bf16: here, products of a layer take {times:.1f} times as long as in float32"
        assert (line in (tmp_path / str(said) / "train.log").read_text().splitlines()) is said
