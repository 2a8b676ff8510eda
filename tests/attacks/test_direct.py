import pytest
import torch
from attacks.views import gradients, scores_of, shares, view_of
from torch.nn import functional as F

from vflbench.attacks.direct import Direct
from vflbench.messages.facts import ClassShares, Gradients
from vflbench.numerics.auc import auc


def labels(rng, n=400, positive=0.25):
    return torch.rand(n, generator=rng) < positive


def read(g, prior, attack=None):
    return scores_of(attack or Direct(), gradients(g), shares(prior))


def without_top(rng, y, weights):
    """Gradients of the mean logistic loss by the embeddings of several parties, whose concatenation w reads."""
    embeddings = [torch.randn(len(y), len(w), generator=rng, requires_grad=True) for w in weights]
    logits = sum(h @ w for h, w in zip(embeddings, weights, strict=True)) - 1.0
    F.binary_cross_entropy_with_logits(logits, y.float()).backward()
    return [h.grad for h in embeddings]


@pytest.mark.parametrize("positive", [0.1, 0.8])
def test_without_a_top_the_label_is_read_exactly_by_each_of_several_parties(rng, positive):
    y = labels(rng, positive=positive)
    for scale in (1.0, -1.0):
        weights = [scale * torch.randn(width, generator=rng) for width in (128, 4, 1)]
        for g in without_top(rng, y, weights):
            assert auc(read(g, positive), y) == 1.0


def test_through_one_hidden_layer_the_shared_direction_still_reads_the_label(rng):
    y = labels(rng)
    h = torch.randn(400, 16, generator=rng).abs().requires_grad_()
    hidden = F.relu(h @ torch.randn(16, 32, generator=rng) + 1)
    logits = hidden @ torch.rand(32, generator=rng) / 8 - 2
    F.binary_cross_entropy_with_logits(logits, y.float()).backward()
    assert auc(read(h.grad, 0.25), y) > 0.9


def test_of_more_classes_the_linear_part_alone_is_read(rng):
    y = torch.randint(3, (300,), generator=rng)
    z = torch.randn(300, 3, generator=rng, requires_grad=True)
    F.cross_entropy(z, y).backward()
    facts = Gradients({"f1": torch.randn(300, 8, generator=rng), "wide": z.grad}), ClassShares((1 / 3,) * 3)
    answer = Direct().batch(view_of(Direct.threat, *facts)).layers
    assert torch.equal(answer["wide"].argmax(1), y)
    assert list(answer) == ["wide"]  # elsewhere the classes have no names


def test_the_linear_part_is_read_exactly_and_turns_the_other_layers(rng):
    """Balanced classes, or a wrong prior: only the linear part tells which side is positive."""
    y = labels(rng, positive=0.5)
    (g,) = without_top(rng, y, [torch.randn(8, generator=rng)])
    wide = torch.where(y, -0.5, 0.5)[:, None] / len(y)
    for prior in (0.2, 0.5, 0.8):
        for turned in (g, -g):
            facts = Gradients({"f1": turned, "wide": wide}), shares(prior)
            answer = Direct().batch(view_of(Direct.threat, *facts)).layers
            assert auc(answer["f1"], y) == auc(answer["wide"], y) == 1.0


def test_balanced_classes_keep_one_reading_through_the_run(rng):
    w, attack, leaks = torch.randn(8, generator=rng), Direct(), set()
    for _ in range(12):
        y = labels(rng, n=60, positive=0.5)
        (g,) = without_top(rng, y, [w + 0.1 * torch.randn(8, generator=rng)])
        leaks.add(auc(read(g, 0.5, attack), y))
    assert leaks in ({0.0}, {1.0})


def test_evidence_adds_up_over_batches(rng):
    """With 0.4 of positives a batch of 21 often has more of them than others; the run as a whole doesn't."""
    w, attack, alone, joined = torch.randn(8, generator=rng), Direct(), [], []
    for _ in range(60):
        y = labels(rng, n=21, positive=0.4)
        (g,) = without_top(rng, y, [w])
        alone.append(auc(read(g, 0.4), y))
        joined.append(auc(read(g, 0.4, attack), y))
    assert 0.0 in alone
    assert set(joined[20:]) == {1.0}
