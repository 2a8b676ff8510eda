import torch
from attacks.views import gradients, positives, view_of

from vflbench.attacks.averaging import Averaging
from vflbench.messages.facts import Gradients
from vflbench.numerics.auc import auc


def show(attack, message, ids=None):
    attack.observe(view_of(attack.threat, message, ids=ids))


def answer(attack, ids, known=()):
    """Layer -> scores of these rows at the end of an epoch."""
    return attack.epoch(view_of(attack.threat, positives(list(known)), ids=ids, step=None)).layers


def test_means_are_joined_by_id_whatever_the_order_and_the_batch(rng):
    attack, ids = Averaging(base="norm"), torch.tensor([50, -7, 12, 3, 99])
    messages = torch.randn(4, 5, 2, generator=rng)
    for epoch, message in enumerate(messages):
        order = torch.randperm(5, generator=rng)
        for part in order.split(2):  # ids that come later find places among the others
            show(attack, Gradients({"f1": message[part], "f2": 2 * message[part]}), ids[part])
        expected = messages[: epoch + 1].mean(0).double().norm(dim=1)
        scores = answer(attack, ids[[4, 0, 2]])
        assert torch.allclose(scores["f1"], expected[[4, 0, 2]], atol=1e-6), epoch
        assert torch.allclose(scores["f2"], 2 * expected[[4, 0, 2]], atol=1e-6), epoch


def test_a_row_that_was_met_less_often_has_the_mean_of_what_arrived():
    attack, ids = Averaging(base="norm"), torch.tensor([1, 2])
    show(attack, gradients(torch.tensor([[2.0], [4.0]])), ids)
    show(attack, gradients(torch.tensor([[4.0]])), ids[:1])
    assert answer(attack, ids)["f1"].tolist() == [3.0, 4.0]


def test_fresh_noise_averages_out(rng):
    y = torch.rand(600, generator=rng) < 0.25
    clean = torch.where(y, -0.75, 0.25)[:, None] * torch.nn.functional.normalize(torch.ones(1, 16))
    attack, leaks = Averaging(base="cosine", k=5), []
    for _ in range(40):
        show(attack, gradients(clean + 2.0 * torch.randn(600, 16, generator=rng)))
        leaks.append(auc(answer(attack, torch.arange(600), y.nonzero()[:5, 0].tolist())["f1"], y))
    assert leaks[0] < 0.68
    assert leaks[-1] > 0.9
