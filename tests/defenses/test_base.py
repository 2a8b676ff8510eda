import torch
from defenses.contexts import drawing

from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense
from vflbench.defenses.chain import Chain, claims_of
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell


def test_a_defense_that_overrides_nothing_changes_nothing(rng):
    x, y, context = torch.randn(4, 2, generator=rng), torch.tensor([0, 1, 1, 0]), drawing(rng)
    before = rng.get_state()
    for sender in (NonLabelDefense(), Chain({})):
        assert torch.equal(sender.embedding(x, context), x)
        assert torch.equal(sender.received(x, 2 * x, context), x)
    for owner in (LabelDefense(), Chain({})):
        assert torch.equal(owner.labels(y, x[:, :1], context), y)
        assert torch.equal(owner.gradient(x, y, context), x)
        assert owner.penalty([x], y) == 0
        assert owner.loss(x[:, :1], y) is None
    for participant in (ParticipantDefense(), Chain({})):
        assert torch.equal(participant.order(y, context), y)
        assert torch.equal(participant.update(x[0], context), x[0])
    assert torch.equal(rng.get_state(), before)


def test_only_label_dp_promises_an_eps_about_labels():
    assert claims_of({"marvell": Marvell(), "label_dp": LabelDp()}).label_privacy
    assert not claims_of({"marvell": Marvell(), "embedding_noise": EmbeddingNoise()}).label_privacy
