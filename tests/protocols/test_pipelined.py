"""With staleness=1, embeddings are of networks that have not learned from the batch before; nothing else changes."""

import copy
import signal

import pytest
import torch
from support.builders import figures, run_in, session, table
from torch.nn import functional as F

from vflbench.data.synthetic import Synthetic
from vflbench.defenses.split_guard import SplitGuard
from vflbench.errors import UserError
from vflbench.models.optimizers import Sgd
from vflbench.protocols.split import Foreseen, Split
from vflbench.run.interruption import Interrupted, Interruption
from vflbench.run.settings import Audit, Settings


class InOrder:
    """Rounds of given rows."""

    batch_size = 4

    def __init__(self, batches):
        self.of = batches

    def __len__(self):
        return len(self.of)

    def __iter__(self):
        return iter(self.of)


def test_each_gradient_is_of_an_embedding_one_step_old():
    """By hand: h_t = f(w_(t-1)), and the gradient goes back through f(w_t)."""
    rows, rate = table(torch.Generator().manual_seed(0), rows=16), 0.3
    split = session(rows, protocol=Split(staleness=1), optimizer=Sgd(lr=rate))
    bottom = copy.deepcopy(split.parties[0].bottom)
    top = copy.deepcopy(split.label_party.network)
    split._foreseen = Foreseen(InOrder(list(torch.arange(16).view(4, 4))))
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
    for own, theirs in ((bottom, split.parties[0].bottom), (top, split.label_party.network)):
        for mine, other in zip(own.parameters(), theirs.parameters(), strict=True):
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
