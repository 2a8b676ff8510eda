"""A head of the label party that learns from true labels: it changes no message, predicts, and goes on where it stood."""

import copy

import pytest
import torch
from support.builders import TappedWire, run_in, session, table
from torch import nn

from vflbench.data.synthetic import Synthetic
from vflbench.defenses.fake_labels import FakeLabels
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.marvell import Marvell
from vflbench.generators import Generators
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.protocols.split import Split
from vflbench.run.settings import Audit, Settings

DEFENSES = {
    "none": list,
    "noise on labels and on gradients": lambda: [LabelDp(eps=1.0), Marvell()],
    "another number of outputs": lambda: [FakeLabels(width=8)],
    "targets of its own": lambda: [LabelGdp(mu=0.5)],
}


class OneTop(WideDeep):
    """Whose tops are one and the same module, with dropout."""

    def top(self, inputs, outputs, rng):
        self.__dict__.setdefault("module", nn.Sequential(nn.Dropout(0.3), nn.Linear(inputs, outputs)))
        return self.module


def trained(rows, defense, model=WideDeep, *, head, **options):
    """A session after four rounds and a prediction, and all that crossed."""
    crossed = []

    def tap(message):
        crossed.extend((message.sender, layer, values.clone()) for layer, values in message.tensors.items())

    network = model(bottom_layers=2, top_layers=2, width=8, cut_width=6)
    protocol = Split(private_head=head)
    parties = session(rows, protocol=protocol, wire=TappedWire(tap), model=network, defenses=DEFENSES[defense](), **options)
    for step in range(4):
        parties.round(rows.ids[step % 2 :: 2].contiguous(), step=step)
    parties.predict(rows.ids)
    return parties, crossed


@pytest.mark.parametrize(
    ("model", "defense"), [*((WideDeep, name) for name in DEFENSES), (OneTop, "none"), (OneTop, "targets of its own")]
)
def test_no_message_depends_on_it(rng, model, defense):
    rows = table(rng, parties=("a", "b", "label"))
    (_, without), (parties, crossed) = (trained(rows, defense, model, head=head) for head in (False, True))
    assert len(crossed) == len(without) > 0
    for (sender, layer, values), (*place, expected) in zip(crossed, without, strict=True):
        assert [sender, layer] == place
        assert torch.equal(values, expected), place
    assert parties.predict(rows.ids).shape == (len(rows), 1)


@pytest.mark.parametrize("model", [WideDeep, OneTop])
def test_it_goes_on_where_it_stood(rng, model):
    rows, generators = table(rng, parties=("a", "label")), [Generators(0), Generators(0)]
    first, second = (trained(rows, "none", model, head=True, generators=one)[0] for one in generators)
    first.round(rows.ids)
    second.restore(copy.deepcopy(first.state()))
    generators[1].restore(generators[0].state())
    for one in (first, second):
        one.round(rows.ids, step=1)
    assert torch.equal(first.predict(rows.ids), second.predict(rows.ids))


def test_its_predicted_rates_are_right_where_those_of_noisy_labels_are_not(tmp_path):
    runs = {}
    for head in (False, True):
        parts = {
            "protocol": Split(private_head=head),
            "defenses": {"label_dp": LabelDp(eps=0.5)},
            "dataset": Synthetic(rows=6000, vocabulary=300),
            "optimizer": Adam(lr=1e-2),
            "settings": Settings(epochs=2, batch_size=128, audit=Audit(batches=5, canaries=0)),
        }
        runs[head] = run_in(tmp_path / str(head), **parts)
    assert runs[False]["test_calibration"] > 1.7
    assert runs[True]["test_calibration"] == pytest.approx(1, abs=0.4)
    assert runs[True]["test_log_loss"] < runs[False]["test_log_loss"] - 0.05
    assert runs[True]["leak_auc_two_sided"] == runs[False]["leak_auc_two_sided"]
