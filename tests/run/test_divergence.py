"""A run that diverges names the column or the tensor that isn't finite, and the options that decide a step."""

import re

import numpy as np
import pytest
import torch
from support.builders import run_in

from vflbench.data.base import Dataset
from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.data.table import raw_table
from vflbench.defenses.label_dp import LabelDp
from vflbench.errors import UserError
from vflbench.models.mlp import Mlp
from vflbench.models.optimizers.sgd import Sgd
from vflbench.options import options
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


def reason(folder, epochs=3, **changes):
    settings = Settings(epochs=epochs, batch_size="auto", audit=Audit(batches=1, probe=False))
    with pytest.raises(UserError) as stopped:
        run_in(folder / "run", attacks={}, **{"dataset": SMALL, "settings": settings, **changes})
    return str(stopped.value)


SMALL = Synthetic(rows=1000, vocabulary=100)


def test_the_tensor_and_the_options_of_the_step_are_named(tmp_path):
    text = reason(tmp_path, epochs=5, optimizer=Sgd(lr=1e4), defenses={"label_dp": LabelDp()})
    assert text.startswith("optimizer: the loss became ")
    assert re.search(r"at epoch 0, step \d+; what decides the size of a step is", text)
    assert "optimizer.lr=10000.0, optimizer.momentum=0.0, optimizer.weight_decay=0.0, defense=label_dp" in text
    assert text.endswith("Completed epochs are in metrics.csv")
    assert (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_column_that_is_not_finite_is_named_before_anything_else(tmp_path, monkeypatch):
    @options
    class Broken(Dataset):
        def read(self, rng):
            x = np.random.default_rng(0).random((400, 2))
            return raw_table({"good": x[:, 0], "bad": x[:, 1]}, (x[:, 0] > 0.5).astype(np.int8)), {}

    original = Broken.load

    def load(self, rng):
        data = original(self, rng)
        data.aligned().parties["a"]._values.numeric[7, 1] = torch.nan
        return data

    monkeypatch.setattr(Broken, "load", load)
    text = reason(tmp_path, dataset=Broken(), model=Mlp(bottom_layers=2, top_layers=1, width=8), optimizer=Sgd(lr=1e4))
    assert text.startswith("dataset: ")
    assert "column bad of party a has nan in a training row" in text


def test_the_rate_of_federated_training_is_named_and_not_the_optimiser(tmp_path):
    settings = Settings(epochs=300, batch_size="auto", audit=Audit(batches=1, epochs="last", probe=False))
    protocol = FederatedLr(rate=20.0)
    text = reason(tmp_path, dataset=Bernoulli(), protocol=protocol, settings=settings)
    assert text.startswith("protocol: ")
    assert "protocol.rate=20.0" in text
