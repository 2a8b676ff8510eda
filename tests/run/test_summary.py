import math

import pytest
import torch

from vflbench.metrics.leak import Leak
from vflbench.numerics.interval import Estimate, Interval
from vflbench.run.grade_scores import Findings
from vflbench.run.setup import Epoch
from vflbench.run.summary import EPOCHS, trees


def leak(party, value, *, visible=True):
    interval = Interval(value, math.nan, math.nan)
    batches = 0 if math.isnan(value) else 5
    estimates = {name: [Estimate(interval.mean, math.nan, 1)] for name in ("auc", "square", "oriented")}
    return Leak("norm", "gradient", party, "f2", visible, interval, interval, interval, batches, 0, estimates=estimates)


def test_a_layer_of_several_parties_stands_for_the_attacker_that_learns_most():
    orders = [
        [leak("a", 0.6), leak("b", 0.8), leak("label", 0.99, visible=False)],
        [leak("label", 0.99, visible=False), leak("b", 0.8), leak("a", 0.6)],
        [leak("a", math.nan), leak("b", 0.8)],
        [leak("b", 0.8), leak("a", math.nan)],
    ]
    for leaks in orders:
        assert trees(leaks)["leak_auc_two_sided"] == {"norm": {"gradient": {"f2": 0.8}}}, [one.party for one in leaks]


def test_the_loss_log_has_a_line_for_each_hundred_steps():
    losses = [1.0] * 100 + [0.5] * 99 + [0.25] + [9.0] * 50
    epoch = Epoch(2, torch.empty(0), losses=losses, penalties=[0.0] * 250)
    result = epoch.result(Findings())
    assert result.losses == pytest.approx([1.0, 0.4975])
    assert result.loss_lines() == ["epoch 2 step 100/250 loss: 1.000000", "epoch 2 step 200/250 loss: 0.497500"]
    assert EPOCHS.validate_python(EPOCHS.dump_python([result])) == [result]
