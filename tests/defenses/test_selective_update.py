import torch
from defenses.contexts import drawing

from vflbench.defenses.selective_update import SelectiveUpdate


def test_so_many_coordinates_are_shared_as_they_are(rng):
    for fraction, shared in ((0.1, 2), (0.11, 3), (1.0, 20)):
        u = torch.randn(20, generator=rng)
        for choose in ("largest", "random"):
            sent = SelectiveUpdate(fraction=fraction, choose=choose).update(u, drawing(rng))
            assert (sent != 0).sum() == shared, (fraction, choose)
            assert torch.equal(sent[sent != 0], u[sent != 0]), (fraction, choose)


def test_the_largest_are_the_largest_and_random_ones_change(rng):
    u = torch.arange(-10.0, 10)
    assert SelectiveUpdate(fraction=0.1).update(u, drawing(rng)).nonzero()[:, 0].tolist() == [0, 1]
    random = SelectiveUpdate(fraction=0.1, choose="random")
    drawn = {tuple(random.update(u + 0.5, drawing(rng)).nonzero()[:, 0].tolist()) for _ in range(50)}
    assert len(drawn) > 20
