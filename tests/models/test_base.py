import torch
from support.builders import session, table

from vflbench.models.base import layer_names
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import Mlp, WideDeep
from vflbench.models.optimizers import Adam


def test_a_frozen_copy_stays_what_the_model_was(rng):
    for optimizer in (Adam(lr=0.1), LazyAdam(lr=0.1, kernel="torch")):
        rows = table(rng)
        started = session(rows, model=WideDeep(bottom_layers=2, width=8, wide=True), optimizer=optimizer)
        (party,) = started.parties
        block = rows.features["a"]
        for _ in range(2):
            started.round(rows.ids[:20])
        before = {name: h.detach().clone() for name, h in party.bottom(block.numeric, block.categorical).items()}
        frozen = party.bottom.frozen()
        for _ in range(3):
            started.round(rows.ids[20:60])
        x = block.numeric.clone().requires_grad_()
        after = frozen(x, block.categorical)
        for name, h in before.items():
            torch.testing.assert_close(after[name], h)
        assert not torch.allclose(party.bottom(block.numeric, block.categorical)["f2"], before["f2"]), optimizer
        after["f2"].sum().backward()
        assert x.grad.abs().sum() > 0, optimizer
        assert all(p.grad is None for p in frozen.parameters())


def test_vectors_of_the_ids_give_what_the_ids_give(rng):
    rows = table(rng)
    bottom = WideDeep(bottom_layers=2, width=8).bottom(("I1", "I2"), (5, 7), 1, rng)
    block = rows.features["a"]
    tables = bottom.tables()
    assert [t.shape for t in tables] == [(5, 4), (7, 4)]
    vectors = torch.stack([t[block.categorical[:, j].long()] for j, t in enumerate(tables)], dim=1)
    torch.testing.assert_close(bottom.from_vectors(block.numeric, vectors), bottom(block.numeric, block.categorical))


def test_a_top_adds_what_linear_parts_send(rng):
    embeddings = [torch.randn(5, 3, generator=rng), torch.randn(5, 4, generator=rng)]
    wide = [torch.randn(5, 2, generator=rng) for _ in range(3)]
    for layers in (0, 2):
        top = Mlp(top_layers=layers, width=6).top(7, 2, rng)
        activations, logits = top(embeddings, wide)
        assert tuple(activations) == top.layers == layer_names("h", layers)
        torch.testing.assert_close(logits, top(embeddings, [])[1] + sum(wide))
        assert logits.shape == (5, 2)
