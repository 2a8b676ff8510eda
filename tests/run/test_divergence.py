"""A run that diverges names the option behind it, by what it measured; and says so where it doesn't know."""

import numpy as np
import pytest
import torch
from builders import run_in
from torch import nn

from vflbench.data.base import Dataset
from vflbench.data.bernoulli import Bernoulli
from vflbench.data.raw import RawNumeric, raw_table
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import NonLabelDefense
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.pe_loss import PeLoss
from vflbench.defenses.tpsl import Tpsl
from vflbench.defenses.trace import Trace
from vflbench.errors import UserError
from vflbench.models.mlp import Mlp
from vflbench.models.optimizers.adam import Adam
from vflbench.models.optimizers.sgd import Sgd
from vflbench.models.torch import Torch
from vflbench.options import options
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


def reason(folder, epochs=3, **changes):
    settings = Settings(epochs=epochs, batch_size="auto", audit=Audit(batches=1, probe=False))
    with pytest.raises(UserError) as stopped:
        run_in(folder / "run", attacks={}, **{"dataset": SMALL, "settings": settings, **changes})
    return str(stopped.value)


SMALL = Synthetic(rows=1000, vocabulary=100)


@pytest.mark.parametrize(
    ("optimizer", "key"),
    [
        (Sgd(lr=1e4), "optimizer.lr=10000.0"),
        (Sgd(lr=0.1, weight_decay=1e3), "optimizer.weight_decay=1000.0"),
        (Sgd(lr=0.1, weight_decay=1e4), "optimizer.weight_decay=10000.0"),
        (Adam(lr=0.1, beta2=0.0), "optimizer.beta2=0.0"),
    ],
)
def test_an_option_of_the_optimiser_outside_its_usual_range_is_named(tmp_path, optimizer, key):
    text = reason(tmp_path, epochs=5, optimizer=optimizer)
    assert text.startswith(
        (f"{key}: the loss became nan at epoch 0, step ", f"{key}: the loss became inf at epoch 0, step ")
    )
    assert "the likely cause is this option, usually from" in text


def test_two_unusual_options_are_both_named(tmp_path):
    text = reason(tmp_path, optimizer=Sgd(lr=100.0, weight_decay=1e4))
    assert text.startswith("optimizer.weight_decay=10000.0: ")
    assert "optimizer.lr=100.0 is unusual as well" in text


@pytest.mark.parametrize(
    "defense",
    [
        Gaussian(sigma=1e6),
        EmbeddingNoise(eps=1e-6, norm=1e6),
        PeLoss(alpha=1e6),
        Dcor(alpha_d=1e6),
        Tpsl(eps=1e-6),
        LabelDp(eps=1e-6, debias=True),
    ],
    ids=lambda defense: type(defense).__name__,
)
def test_a_defense_that_makes_numbers_huge_is_named_with_its_options(tmp_path, defense):
    text = reason(tmp_path, defenses={"mine": defense, "other": Gaussian(ratio=0.1)}, optimizer=Sgd(lr=0.1))
    assert text.startswith("defense.mine: ")
    assert "the likely cause is mine, which made numbers or a loss " in text
    assert any(f"{name}=" in text for name in ("sigma", "eps", "alpha", "alpha_d"))


@pytest.mark.parametrize(
    "defense", [Gaussian(), EmbeddingNoise(), LabelDp(), PeLoss(), Dcor()], ids=lambda d: type(d).__name__
)
def test_a_defense_is_not_blamed_for_a_step_size(tmp_path, defense):
    dataset, seed = Synthetic(rows=3000, vocabulary=300), Settings(epochs=20, batch_size=128, audit=Audit(probe=False))
    try:
        text = reason(tmp_path, dataset=dataset, settings=seed, defenses={"mine": defense}, optimizer=Sgd(lr=1e4))
    except pytest.fail.Exception:
        return  # every ReLU died before, which is no divergence
    assert text.startswith("optimizer.lr=10000.0: "), text


def test_a_defense_that_makes_infinity_of_finite_numbers_is_named(tmp_path):
    class Breaks(NonLabelDefense):
        def embedding(self, h, context):
            return h / (h * 0)

    text = reason(tmp_path, defenses={"good": EmbeddingNoise(), "bad": Breaks()})
    assert text.startswith("defense.bad: ")
    assert "bad made numbers that are not finite of finite ones, with no options" in text


def test_a_column_that_is_not_finite_is_named_before_anything_else(tmp_path, monkeypatch):
    @options
    class Broken(Dataset):
        def read(self, rng):
            x = np.random.default_rng(0).random((400, 2))
            return raw_table([RawNumeric("good", x[:, 0]), RawNumeric("bad", x[:, 1])], (x[:, 0] > 0.5).astype(np.int8)), {}

    original = Broken.load

    def load(self, rng):
        data = original(self, rng)
        data.train._resident.features["a"].numeric[7, 1] = torch.nan
        return data

    monkeypatch.setattr(Broken, "load", load)
    text = reason(tmp_path, dataset=Broken(), model=Mlp(bottom_layers=2, top_layers=1, width=8), optimizer=Sgd(lr=1e4))
    assert text.startswith("dataset: ")
    assert "column bad of party a has nan in a training row" in text


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_rate_of_federated_training_is_named_and_not_the_optimiser(tmp_path, reduction):
    settings = Settings(epochs=300, batch_size="auto", audit=Audit(batches=1, epochs="last", probe=False))
    protocol = FederatedLr(rate=20.0, reduction=reduction)
    text = reason(tmp_path, dataset=Bernoulli(), protocol=protocol, settings=settings)
    assert text.startswith("protocol.rate=20.0: ")


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.LazyLinear(1)

    def forward(self, embeddings):
        return self.linear(torch.cat(embeddings, dim=1))


class Explodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, 1), 1.0))
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return x * self.weight * (torch.inf if self.calls > 9 else 1)


def test_an_unknown_cause_is_said_to_be_unknown_with_candidates(tmp_path):
    model = Torch(bottom=Explodes, top=Joined)
    text = reason(tmp_path, model=model)
    assert text.startswith("optimizer: the loss became ")
    assert "the cause isn't known" in text
    assert "candidates are optimizer.lr=0.001, " in text
    assert "the model's own modules" in text


def test_a_trace_takes_the_first_message_for_the_usual_size():
    trace, one = Trace(), torch.ones(2, 3)
    trace.change("a", one, 2 * one)
    trace.change("a", 0 * one, 2 * one)  # dead units are no sign of noise
    assert (trace.size("a"), trace.broke) == (2, set())
    trace.change("a", one * torch.nan, one * torch.nan)  # somebody else's fault
    assert (trace.size("a"), trace.broke) == (2, set())
    trace.change("a", one, one * torch.inf)
    assert (trace.size("a"), trace.broke) == (torch.inf, {"a"})
    assert trace.size("other") == 0
