"""A run that diverges names the options that decide a step."""

import re

import pytest
from support.builders import run_in

from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.defenses.label_dp import LabelDp
from vflbench.errors import UserError
from vflbench.models.optimizers import Sgd
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


def test_the_rate_of_federated_training_is_named_and_not_the_optimiser(tmp_path):
    settings = Settings(epochs=300, batch_size="auto", audit=Audit(batches=1, epochs="last", probe=False))
    protocol = FederatedLr(rate=20.0)
    text = reason(tmp_path, dataset=Bernoulli(), protocol=protocol, settings=settings)
    assert text.startswith("protocol: ")
    assert "protocol.rate=20.0" in text
