import math

import pytest
import torch
from script_runs import load, run


def test_without_a_card_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("check_gpu")
    assert done.returncode == 2
    assert "there is no CUDA device here" in done.stderr
    assert not done.stdout


def test_a_difference_and_a_failed_run_are_failures():
    line = load("check_gpu").Line
    assert not line("auc", 0.7, 0.71, 0.02).fails
    assert line("auc", 0.7, 0.73, 0.02).fails
    assert line("auc", math.nan, math.nan, 0.02).fails


@pytest.mark.slow
def test_it_trains_defends_rebuilds_and_resumes():
    done = run("check_gpu", "--device", "cpu", "--only", "train,max_norm,inversion,resume")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("train ", "max_norm ", "inversion of pictures ", "resume, beside in one go "):
        assert f"\n{part}" in done.stdout
    assert "all numbers are the same" in done.stdout
