import pytest
import torch
from attacks.views import view_of

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.norm import Norm
from vflbench.messages.transcript import Transcript
from vflbench.numerics.auc import auc


def ask(attack, ids, hints=()):
    transcript = Transcript(ids, epoch=0, step=9, class_ratios=(0.75, 0.25), hints=torch.tensor(hints, dtype=torch.int64))
    return attack.infer(transcript.view("a", attack.knows, torch.Generator(), hints=len(hints)))


def test_means_are_joined_by_id_whatever_the_order_and_the_batch(rng):
    attack, ids = Averaging(base="norm"), torch.tensor([50, -7, 12, 3, 99])
    messages = torch.randn(4, 5, 2, generator=rng)
    for epoch, message in enumerate(messages):
        order = torch.randperm(5, generator=rng)
        for part in order.split(2):  # ids that come later find places among the others
            attack.observe(view_of(attack.knows, gradients={"f1": message[part], "f2": 2 * message[part]}, ids=ids[part]))
        expected = messages[: epoch + 1].mean(0).double().norm(dim=1)
        found = ask(attack, ids[[4, 0, 2]])
        assert torch.allclose(found["f1"], expected[[4, 0, 2]], atol=1e-6)
        assert torch.allclose(found["f2"], 2 * expected[[4, 0, 2]], atol=1e-6)


def test_a_row_that_was_seen_less_often_has_the_mean_of_what_was_seen():
    attack, ids = Averaging(base="norm"), torch.tensor([1, 2])
    attack.observe(view_of(attack.knows, gradients={"f1": torch.tensor([[2.0], [4.0]])}, ids=ids))
    attack.observe(view_of(attack.knows, gradients={"f1": torch.tensor([[4.0]])}, ids=ids[:1]))
    assert ask(attack, ids)["f1"].tolist() == [3.0, 4.0]


def test_fresh_noise_averages_out(rng):
    y = torch.rand(600, generator=rng) < 0.25
    clean = torch.where(y, -0.75, 0.25)[:, None] * torch.nn.functional.normalize(torch.ones(1, 16))
    attack, leaks = Averaging(base="cosine", k=5), []
    for _ in range(40):
        noisy = clean + 2.0 * torch.randn(600, 16, generator=rng)
        attack.observe(view_of(attack.knows, gradients={"f1": noisy}))
        leaks.append(auc(ask(attack, torch.arange(600), y.nonzero()[:5, 0].tolist())["f1"], y))
    assert leaks[0] < 0.68
    assert leaks[-1] > 0.9


@pytest.mark.parametrize(("base", "hints"), [("norm", 0), ("cosine", 5), ("hints", 5)])
def test_it_follows_rows_and_asks_for_what_its_base_needs(base, hints):
    attack = Averaging(base=base, rows=100)
    assert (attack.follows, attack.hints) == (100, hints)
    assert Norm().follows == 0


def test_state_puts_the_sums_back(rng):
    first, second = Averaging(base="norm"), Averaging(base="norm")
    view = view_of(first.knows, gradients={"f1": torch.randn(6, 3, generator=rng)})
    first.observe(view)
    state = first.state()
    second.restore(state)
    second.observe(view)
    assert torch.allclose(ask(second, view.ids)["f1"], ask(first, view.ids)["f1"])
    assert torch.equal(state["counts"]["f1"], torch.ones(6, 1))  # copies, not the file's tensors
