"""Options of split learning.

With staleness=1, embeddings are of networks that have not learned from the batch before; nothing else changes. A private
head of the label party learns from true labels: it changes no message, predicts, and goes on where it stood.
"""

import copy
import signal

import pytest
import torch
from support.builders import TappedWire, defenses, figures, run_in, session, table
from torch import nn
from torch.nn import functional as F

from vflbench.data.synthetic import Synthetic
from vflbench.defenses.chain import Chain
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.split_guard import SplitGuard
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam, Sgd
from vflbench.protocols.split import Foreseen, Split
from vflbench.run.interruption import Interrupted, Interruption
from vflbench.run.settings import Audit, Settings


def test_each_gradient_is_of_an_embedding_one_step_old():
    """By hand: h_t = f(w_(t-1)), and the gradient goes back through f(w_t)."""
    rows, rate = table(torch.Generator().manual_seed(0), rows=16), 0.3
    split = session(rows, protocol=Split(staleness=1), optimizer=Sgd(lr=rate))
    bottom = copy.deepcopy(split.parties[0].bottom)
    top = copy.deepcopy(split.label_party.network)
    split._foreseen = Foreseen(torch.arange(16).view(4, 4))
    old = None
    for ids in split._foreseen:
        split.round(ids)
        columns, y = rows.features["a"].rows(ids), rows.labels[ids].float()
        old = copy.deepcopy(bottom) if old is None else old
        with torch.no_grad():
            sent = {layer: h for layer, h in old(columns.numeric, columns.categorical).items() if layer in bottom.sends}
        old = copy.deepcopy(bottom)  # what the next batch is embedded with
        received = {layer: h.clone().requires_grad_() for layer, h in sent.items()}
        F.binary_cross_entropy_with_logits(top([received], None)[1][:, 0], y).backward()
        layers = bottom(columns.numeric, columns.categorical)
        torch.autograd.backward([layers[layer] for layer in received], [h.grad for h in received.values()])
        with torch.no_grad():
            for network in (bottom, top):
                for parameter in network.parameters():
                    parameter -= rate * parameter.grad
                    parameter.grad = None
    for by_hand, theirs in ((bottom, split.parties[0].bottom), (top, split.label_party.network)):
        for mine, other in zip(by_hand.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(mine, other, atol=1e-6)


def made(folder):
    settings = Settings(epochs=2, batch_size=64, audit=Audit(batches=3))
    run_in(folder, dataset=Synthetic(rows=1500, vocabulary=160, parties=2), protocol=Split(staleness=1), settings=settings)
    return figures(folder)


@pytest.mark.slow
def test_a_run_stopped_amid_an_epoch_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    whole, asked = made(tmp_path / "whole"), []  # after each batch, and at the end of an epoch
    with monkeypatch.context() as patch:
        patch.setattr(
            Interruption, "asked", property(lambda _: asked.append(1) or (signal.SIGINT if len(asked) >= 32 else None))
        )
        with pytest.raises(Interrupted, match="epoch 1, step 9"):
            made(tmp_path / "stopped")
    assert made(tmp_path / "stopped") == whole


def test_what_needs_an_answer_first_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"protocol.staleness=1: a defense of party a decides by each answer"):
        run_in(tmp_path / "run", protocol=Split(staleness=1), defenses={"split_guard": SplitGuard()}, attacks={})


class OneTop(WideDeep):
    """Whose tops are one and the same module, with dropout."""

    def top(self, inputs, outputs, rng):
        self.__dict__.setdefault("module", nn.Sequential(nn.Dropout(0.3), nn.Linear(inputs, outputs)))
        return self.module


def trained(rows, names, model=WideDeep, *, head, **options):
    """A session after four rounds and a prediction, and all that crossed."""
    crossed = []

    def tap(message):
        crossed.extend((message.sender, layer, values.clone()) for layer, values in message.tensors.items())

    network = model(bottom_layers=2, top_layers=2, width=8, cut_width=6)
    protocol, made = Split(private_head=head), defenses(*names)
    parties = session(
        rows, protocol=protocol, wire=TappedWire(tap), model=network, new_defense=lambda: Chain(made), **options
    )
    for step in range(4):
        parties.round(rows.ids[step % 2 :: 2].contiguous(), step=step)
    parties.predict(rows.ids)
    return parties, crossed


CHAINS = [[], ["label_gdp"], ["label_dp", "marvell"], ["fake_labels"]]  # the last one has another number of outputs


@pytest.mark.parametrize(
    ("model", "names"), [*((WideDeep, names) for names in CHAINS), (OneTop, []), (OneTop, ["label_gdp"])]
)
def test_no_message_depends_on_it(rng, model, names):
    rows = table(rng, parties=("a", "b", "label"))
    (_, without), (parties, crossed) = (trained(rows, names, model, head=head) for head in (False, True))
    assert len(crossed) == len(without) > 0
    for (sender, layer, values), (*place, expected) in zip(crossed, without, strict=True):
        assert [sender, layer] == place
        assert torch.equal(values, expected), place
    assert parties.predict(rows.ids).shape == (len(rows), 1)


@pytest.mark.parametrize("model", [WideDeep, OneTop])
def test_it_goes_on_where_it_stood(rng, model):
    rows, generators = table(rng, parties=("a", "label")), [Generators(0), Generators(0)]
    first, second = (trained(rows, [], model, head=True, generators=one)[0] for one in generators)
    first.round(rows.ids)
    second.restore(copy.deepcopy(first.state()))
    generators[1].restore(generators[0].state())
    for one in (first, second):
        one.round(rows.ids, step=1)
    assert torch.equal(first.predict(rows.ids), second.predict(rows.ids))


def test_its_predicted_rates_are_right_where_those_of_noisy_labels_are_not(tmp_path):
    runs = {}
    for head in (False, True):
        runs[head] = run_in(
            tmp_path / str(head),
            protocol=Split(private_head=head),
            defenses={"label_dp": LabelDp(eps=0.5)},
            dataset=Synthetic(rows=6000, vocabulary=300),
            optimizer=Adam(lr=1e-2),
            settings=Settings(epochs=2, batch_size=128, audit=Audit(batches=5, canaries=0)),
        )
    assert runs[False]["test_calibration"] > 1.7
    assert runs[True]["test_calibration"] == pytest.approx(1, abs=0.4)
    assert runs[True]["test_log_loss"] < runs[False]["test_log_loss"] - 0.05
    assert runs[True]["leak_auc_two_sided"] == runs[False]["leak_auc_two_sided"]
