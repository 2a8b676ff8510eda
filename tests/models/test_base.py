import pytest
import torch
from builders import session, table

from vflbench.models.cnn import Cnn
from vflbench.models.optimizers.adam import Adam
from vflbench.models.optimizers.lazy_adam import LazyAdam
from vflbench.models.wide_deep import WideDeep
from vflbench.numerics.pixels import pixel_names


@pytest.mark.parametrize("optimizer", [Adam(lr=0.1), LazyAdam(lr=0.1, kernel="torch")])
def test_a_frozen_copy_stays_what_the_model_was(rng, optimizer):
    rows = table(rng)
    started = session(rows, model=WideDeep(bottom_layers=2, width=8, wide=True), optimizer=optimizer)
    (party,) = started.parties
    block = rows.features["a"]
    for _ in range(2):
        started.round(rows.rows(slice(0, 20)), None)
    before = {name: h.detach().clone() for name, h in party.bottom(block.numeric, block.categorical).items()}
    frozen = party.bottom.frozen()
    for _ in range(3):
        started.round(rows.rows(slice(20, 60)), None)
    x = block.numeric.clone().requires_grad_()
    after = frozen(x, block.categorical)
    for name, h in before.items():
        torch.testing.assert_close(after[name], h)
    assert not torch.allclose(party.bottom(block.numeric, block.categorical)["f2"], before["f2"])
    after["f2"].sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None for p in frozen.parameters())


def test_vectors_of_the_ids_give_what_the_ids_give(rng):
    rows = table(rng)
    bottom = WideDeep(bottom_layers=2, width=8).bottom(("I1", "I2"), (5, 7), 1, rng)
    block = rows.features["a"]
    tables = bottom.tables()
    assert [t.shape for t in tables] == [(5, 4), (7, 4)]
    vectors = torch.stack([t[block.categorical[:, j].long()] for j, t in enumerate(tables)], dim=1)
    torch.testing.assert_close(bottom.from_vectors(block.numeric, vectors), bottom(block.numeric, block.categorical))


def test_a_model_without_categories_has_no_tables(rng):
    assert Cnn().bottom(pixel_names(4, 4), (), 10, rng).tables() == ()
