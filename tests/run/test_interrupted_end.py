"""A signal that comes while attacks are asked at the end of an epoch: nothing is counted twice."""

import os
import signal

import pytest
import torch
from builders import run_in

from vflbench.attacks.base import Attack, Scores
from vflbench.messages.facts import OwnModel
from vflbench.messages.threat import Threat
from vflbench.run.interruption import Interrupted


class Stopper(Attack):
    """Scores the length of embeddings, and asks the run to stop while it does, once."""

    threat = Threat(knows={OwnModel})
    stops = False

    def epoch(self, view):
        if view.epoch == 0 and Stopper.stops:
            Stopper.stops = False
            os.kill(os.getpid(), signal.SIGTERM)
        return Scores(view.ids, {layer: h.norm(dim=1) for layer, h in view[OwnModel].embed(view.ids).items()})


def test_a_run_that_is_stopped_while_an_epoch_is_concluded_goes_on_to_the_same_bytes(tmp_path):
    Stopper.stops = True
    with pytest.raises(Interrupted):
        run_in(tmp_path / "stopped", attacks={"stopper": Stopper()})
    resumed = run_in(tmp_path / "stopped", attacks={"stopper": Stopper()})
    whole = run_in(tmp_path / "whole", attacks={"stopper": Stopper()})
    rows = [
        [line for line in (tmp_path / name / "metrics.csv").read_text().splitlines() if ",seconds," not in line]
        for name in ("stopped", "whole")
    ]
    assert rows[0] == rows[1]
    assert resumed["leaks"] == whole["leaks"]
    assert torch.tensor([leak["batches"] for leak in whole["leaks"]]).min() > 5
