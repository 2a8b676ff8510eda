"""Attacks that are asked in the process of their party: the numbers of a run in one process, and no fact that crosses."""

import pytest
from builders import every_attack, experiment, run_in
from loopback import apart

from vflbench.data.synthetic import Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.generators import Generators
from vflbench.messages.threat import Seat
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings
from vflbench.run.setup import Experiment

HERE = {name: attack for name, attack in every_attack().items() if attack.threat.seat is Seat.NON_LABEL}
QUICK = ("norm", "cosine", "spectral", "completion", "no_message", "averaging")


def figures(folder):
    """Rows of metrics.csv, times aside."""
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in line]


def parts(attacks, parties=1, **changes):
    return {
        "dataset": Synthetic(rows=1500, vocabulary=100, parties=parties),
        "model": WideDeep(bottom_layers=2, top_layers=1, width=8),
        "settings": Settings(epochs=2, batch_size=128, audit=Audit(batches=3)),
        "attacks": attacks,
        **changes,
    }


def separated(folder, **changes) -> Experiment:
    whole = experiment(**changes)
    return apart(whole, whole.dataset.load(Generators(0)["data"]), folder / "parties")


def both(tmp_path, attacks, **changes):
    """Summaries of the run in one process, and of that with parties at the ends of channels; and the channels."""
    whole = parts(attacks, **changes)
    here = run_in(tmp_path / "here", **whole)
    far = separated(tmp_path / "apart", **whole)
    there = run_in(tmp_path / "apart", **{**whole, "engine": far.engine})
    return here, there, far.engine.links


def test_numbers_are_those_of_one_process(tmp_path):
    here, there, _ = both(tmp_path, {name: HERE[name] for name in QUICK}, parties=2)
    assert figures(tmp_path / "here") == figures(tmp_path / "apart")
    assert {leak["attack"] for leak in there["leaks"]} >= set(QUICK)
    assert here["leak_auc_two_sided"] == there["leak_auc_two_sided"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_each_attack(tmp_path, name):
    both(tmp_path, {name: HERE[name]})
    assert figures(tmp_path / "here") == figures(tmp_path / "apart")


@pytest.mark.slow
@pytest.mark.parametrize("defense", [Marvell(), LabelDp(eps=1.0)], ids=lambda defense: type(defense).__name__)
def test_all_attacks_behind_a_defense(tmp_path, defense):
    both(tmp_path, HERE, parties=2, defenses={"defense": defense})
    assert figures(tmp_path / "here") == figures(tmp_path / "apart")
