import torch

from vflbench.defenses.base import Chain, Defense


class Affine(Defense):
    def __init__(self, factor, shift):
        self.factor, self.shift = factor, shift

    def embedding(self, h, rng):
        return h * self.factor + self.shift

    def gradient(self, g, y, rng):
        return g * self.factor + self.shift

    def labels(self, y, ids, logits, rng):
        return y * self.factor + self.shift

    def penalty(self, embeddings, y):
        return self.factor * sum(h.sum() for h in embeddings)


def test_a_defense_that_overrides_nothing_changes_nothing(rng):
    x, y = torch.randn(4, 2, generator=rng), torch.tensor([0, 1, 1, 0])
    for idle in (Defense(), Chain({})):
        assert torch.equal(idle.embedding(x, rng), x)
        assert torch.equal(idle.labels(y, torch.arange(4), x[:, :1], rng), y)
        assert torch.equal(idle.gradient(x, y, rng), x)
        assert idle.penalty([x], y) == 0
        assert idle.loss(x[:, :1], y) is None


def test_a_chain_applies_in_the_order_given_and_adds_penalties(rng):
    chain = Chain({"first": Affine(2, 1), "second": Affine(3, 5)})
    x, y = torch.ones(2, 2), torch.tensor([0, 1])
    assert torch.equal(chain.embedding(x, rng), (x * 2 + 1) * 3 + 5)
    assert torch.equal(chain.gradient(x, y, rng), (x * 2 + 1) * 3 + 5)
    assert torch.equal(chain.labels(y, torch.arange(2), x[:, :1], rng), (y * 2 + 1) * 3 + 5)
    assert chain.penalty([x, x], y) == (2 + 3) * 8


def test_the_first_of_a_chain_that_gives_a_loss_is_trained_on():
    class Constant(Defense):
        def __init__(self, value):
            self.value = value

        def loss(self, logits, y):
            return logits.mean() * 0 + self.value

    chain = Chain({"none": Defense(), "first": Constant(2.0), "second": Constant(3.0)})
    assert chain.loss(torch.ones(4, 1), torch.zeros(4)) == 2
