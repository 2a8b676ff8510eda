"""Runs on a device that isn't there: nothing mixes it with the CPU, and a step reads few numbers from it."""

import copy

import pytest
import torch
from support.builders import defenses, run_in, session, table
from support.pretend_device import CARD, CardGenerator, PretendCard

from vflbench.defenses.chain import Chain
from vflbench.defenses.gaussian import Gaussian
from vflbench.errors import UserError
from vflbench.files import config_folder
from vflbench.generators import Generators
from vflbench.models.lazy_adam import LazyAdam
from vflbench.run.settings import Audit, Settings

FILES = (config_folder() / "defense").glob("*.yaml")
DEFENSES = sorted(file.stem for file in FILES if file.stem not in ("none", "binomial"))
UNDEFENDED = 1  # the loss
READS = {
    **dict.fromkeys(("batch_average", "gaussian", "label_dp", "fake_labels", "split_guard"), 1),
    **dict.fromkeys(("alibi", "label_gdp", "mid", "tpsl", "vector_quantize"), 2),
    **dict.fromkeys(("binomial", "quantize"), 3),
    "pe_loss": 4,
    "marvell": 6,
    "nopeek": 8,
    "dcor": 9,
}
"""Of a defended step, besides; docs/performance.md says which."""


@pytest.fixture(autouse=True)
def generators_of_the_card(monkeypatch):
    on = Generators.on

    def pretended(self, device, name):
        if device.type == "cpu":
            return on(self, device, name)
        return self._made.setdefault((str(device), name), CardGenerator().manual_seed(len(self._made)))

    monkeypatch.setattr(Generators, "on", pretended)


def reads_of_a_step(rng, chosen):
    """In the third round: some learn in the first."""
    with PretendCard() as card:
        rows = table(rng, rows=128).to(CARD)
        parties = session(rows, new_defense=lambda: Chain(copy.deepcopy(chosen)), device=CARD)
        for _ in range(3):
            card.reads.clear()
            parties.round(torch.arange(64, device=CARD))
    return card.reads


def test_an_undefended_step_reads_one_number(rng):
    assert reads_of_a_step(rng, {}) == ["item"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*DEFENSES, "binomial"])
def test_a_defended_step_mixes_no_devices_and_reads_few_numbers(name, rng):
    names = ("quantize", "binomial") if name == "binomial" else (name,)
    assert len(reads_of_a_step(rng, defenses(*names))) == UNDEFENDED + READS.get(name, 0)


def test_tables_that_are_updated_lazily_stay_on_the_card(rng):
    with PretendCard() as card:
        parties = session(table(rng, rows=128).to(CARD), optimizer=LazyAdam(), device=CARD)
        for _ in range(3):
            card.reads.clear()
            parties.round(torch.arange(64, device=CARD))
    assert card.reads == ["unique", "item"]  # besides the loss, the ids of a batch, each once
    with PretendCard(), pytest.raises(UserError, match="runs on the CPU"):
        session(table(rng, rows=128).to(CARD), optimizer=LazyAdam(kernel="numba"), device=CARD)


@pytest.mark.slow
def test_a_run_mixes_no_devices(tmp_path, monkeypatch):
    """With its audit, its probe, its predictions and its checkpoint."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = Settings(device="cuda", epochs=1, batch_size=128, audit=Audit(batches=2, dcor=True))
    with PretendCard():
        summary = run_in(tmp_path, settings=settings, defenses={"g": Gaussian()})
    assert 0.3 < summary["test_auc"] < 0.9
