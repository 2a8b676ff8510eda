"""Noise on labels in a training loop of one's own: what a run does with the same key."""

import pytest
import torch
from support.builders import session, table, whole_network

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.tpsl import Tpsl
from vflbench.errors import UserError

DEFENSES = {
    "label_gdp": LabelGdp(mu=0.7),
    "label_gdp, estimate": LabelGdp(mu=0.7, target="estimate"),
    "randomized response": LabelDp(eps=1.0),
    "debiased": LabelDp(eps=1.0, debias=True),
    "posterior": LabelDp(eps=1.0, target="posterior"),
    "zero_sum": LabelDp(eps=1.0, mechanism="zero_sum"),
    "alibi": Alibi(eps=1.0),
}


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_loss_of_each_batch_is_that_of_a_run(rng, name, classes):
    rows = table(rng, classes=classes)
    run = session(rows, defenses=[DEFENSES[name]])
    (inside,) = run.label_party.defense.named.values()
    inside.plan(3)
    own = None
    for epoch in range(3):
        logits = whole_network(run, rows)[1].detach()
        expected = run.round(rows.ids, epoch=epoch).training.loss
        own = own or DEFENSES[name].training_loss(epochs=3, key=inside._key)
        logits.requires_grad_()
        loss = own(logits, rows.labels, rows.ids, epoch)
        assert loss.item() == pytest.approx(expected, rel=1e-6)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient.abs().sum() > 0


def test_noise_follows_from_the_key_and_where_it_is_drawn_anew_from_nothing_that_returns(rng):
    rows, logits = table(rng), torch.randn(64, 1, generator=rng)
    for defense, returns in (
        (LabelGdp(), True),
        (LabelDp(), True),
        (Tpsl(), False),
        (LabelDp(fresh_every_epoch=True), False),
    ):
        first, again, other = (
            defense.training_loss(epochs=2, key=key)(logits, rows.labels, rows.ids, 0) for key in (5, 5, 6)
        )
        assert (first == again) == returns
        assert first != other


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.float64])
def test_types_of_numbers_change_no_noise(rng, name, kind):
    """Noise that was computed in 32 bits was none."""
    logits, y, ids = torch.randn(90, 1, generator=rng), torch.arange(90) % 2, torch.arange(90)
    loss, other = (DEFENSES[name].training_loss(epochs=2, key=5) for _ in range(2))
    assert loss(logits, y, ids, 1) == other(logits, y.to(kind), ids if kind.is_floating_point else ids.to(kind), 1)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("y", torch.tensor([0, 2, 0, 2])),
        ("y", torch.tensor([0.0, 0.5, 1.0, 1.0])),
        ("y", torch.tensor([[0], [1], [0], [1]])),
        ("ids", torch.tensor([0, 1, 2, -3])),
        ("ids", torch.tensor([0.0, 1.0, 2.0, 3.0])),  # from 2^24 on, rows would share their noise
        ("ids", torch.tensor([0, 1, 2, 2**62])),  # times 2, as Laplace noise of two classes takes it, wraps around
        ("epoch", 2),
        ("ids", torch.arange(3)),
        ("logits", torch.zeros(4, 2)),
    ],
)
def test_what_would_hide_less_than_promised_is_refused(key, changed):
    given = {"logits": torch.zeros(4, 1), "y": torch.tensor([0, 1, 0, 1]), "ids": torch.arange(4), "epoch": 0}
    loss = LabelGdp().training_loss(epochs=2, key=5)
    assert loss(**given).isfinite()
    with pytest.raises(UserError, match=rf"^{key}"):
        loss(**given | {key: changed})


@pytest.mark.parametrize(("epochs", "key"), [(0, 5), (1.5, 5), (2, None), (2, -5), (2, 2**63)])
def test_epochs_and_keys_are_whole_numbers(epochs, key):
    with pytest.raises(UserError, match=r"^(epochs|key)"):
        LabelGdp().training_loss(epochs=epochs, key=key)


def test_a_mechanism_that_remembers_rows_is_refused_and_a_claim_names_the_epochs():
    with pytest.raises(UserError, match="mechanism=lp_2st"):
        LabelDp(mechanism="lp_2st").training_loss(epochs=2, key=5)
    defense = LabelGdp()
    defense.training_loss(epochs=7, key=5)
    assert "fresh in each of 7 epochs" in defense.guarantee().claim
