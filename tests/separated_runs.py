"""The same run with all parties in one process, and with each at the end of a channel."""

from builders import every_attack, experiment, run_in
from loopback import apart

from vflbench.data.synthetic import Synthetic
from vflbench.generators import Generators
from vflbench.messages.threat import Seat
from vflbench.models.wide_deep import WideDeep
from vflbench.run.settings import Audit, Settings

HERE = {name: attack for name, attack in every_attack().items() if attack.threat.seat is Seat.NON_LABEL}
"""Attacks at a non-label party."""


def parts(attacks, parties=1, **changes):
    return {
        "dataset": Synthetic(rows=700, vocabulary=100, parties=parties),
        "model": WideDeep(bottom_layers=2, top_layers=1, width=8),
        "settings": Settings(epochs=2, batch_size=64, audit=Audit(batches=2)),
        "attacks": attacks,
        **changes,
    }


def separated(folder, whole):
    """The same experiment with parties at the ends of channels."""
    made = experiment(**whole)
    return apart(made, made.dataset.load(Generators(0)["data"]), folder / "parties")


def both(tmp_path, attacks, **changes):
    """Summaries of the run in one process and of the other; and its channels."""
    whole = parts(attacks, **changes)
    here = run_in(tmp_path / "here", **whole)
    engine = separated(tmp_path / "apart", whole).engine
    there = run_in(tmp_path / "apart", **{**whole, "engine": engine})
    return here, there, engine.links


def figures(folder):
    """Rows of metrics.csv, times aside."""
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds" not in line]


def same(tmp_path):
    return figures(tmp_path / "here") == figures(tmp_path / "apart")
