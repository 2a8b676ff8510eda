"""Attacks that are asked in the process of their party: the numbers of a run in one process, and nothing that crosses beside."""

import pytest
import torch
from builders import every_attack, run_in
from parties_apart import Apart

from vflbench.data.synthetic import Synthetic
from vflbench.messages.threat import Seat
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

HERE = {name: attack for name, attack in every_attack().items() if attack.threat.seat is Seat.NON_LABEL}


def figures(folder):
    """Rows of metrics.csv, times aside."""
    lines = (folder / "metrics.csv").read_text().splitlines()
    return [line for line in lines if "seconds" not in line]


def parts(attacks, parties=1, **changes):
    return {
        "dataset": Synthetic(rows=1500, vocabulary=100, parties=parties),
        "model": WideDeep(bottom_layers=2, top_layers=1, width=8),
        "settings": Settings(epochs=2, batch_size=128, audit=Audit(batches=3)),
        "attacks": attacks,
        **changes,
    }


def both(tmp_path, attacks, **changes):
    here, apart = (
        run_in(tmp_path / name, **parts(attacks, **changes), **protocol)
        for name, protocol in {"here": {}, "apart": {"protocol": Apart(attacks)}}.items()
    )
    return here, apart


def test_numbers_are_those_of_one_process(tmp_path):
    attacks = {name: HERE[name] for name in ("norm", "cosine", "spectral", "completion", "no_message", "averaging")}
    here, apart = both(tmp_path, attacks, parties=2)
    assert figures(tmp_path / "here") == figures(tmp_path / "apart")
    assert here["leak_auc_two_sided"] == apart["leak_auc_two_sided"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_each_attack(tmp_path, name):
    both(tmp_path, {name: HERE[name]})
    assert figures(tmp_path / "here") == figures(tmp_path / "apart")
