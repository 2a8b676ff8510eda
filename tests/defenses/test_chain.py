"""Several defenses in a row, and what each of their hooks gets and leaves."""

from collections import defaultdict

import pytest
import torch
from defenses.contexts import drawing
from support.builders import session, table, weights

from vflbench.defenses.alibi import Alibi
from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense
from vflbench.defenses.batch_average import BatchAverage
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.cae import Cae
from vflbench.defenses.chain import Chain, claims_of, refuse_unfit
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.shuffle import Shuffle
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK
from vflbench.defenses.tpsl import Tpsl
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.errors import UserError
from vflbench.messages.facts import Gradients
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.protocols.split import Split


class Affine(NonLabelDefense, LabelDefense, ParticipantDefense):
    def __init__(self, factor, shift):
        self.factor, self.shift, self.calls = factor, shift, 0

    def _applied(self, values, *_):
        self.calls += 1
        return values * self.factor + self.shift

    embedding = gradient = labels = order = update = _applied

    def received(self, g, h, context):
        return self._applied(g) + h

    def penalty(self, embeddings, y):
        return self.factor * sum(h.sum() for h in embeddings)

    def figures(self):
        return {"calls": self.calls}


def test_a_chain_applies_in_the_order_given_and_adds_penalties(rng):
    chain, context = Chain({"first": Affine(2, 1), "second": Affine(3, 5)}), drawing(rng)
    x, y = torch.ones(2, 2), torch.tensor([0, 1])
    expected = (x * 2 + 1) * 3 + 5
    assert torch.equal(chain.embedding(x, context), expected)
    assert torch.equal(chain.gradient(x, y, context), expected)
    assert torch.equal(chain.update(x, context), expected)
    assert torch.equal(chain.labels(y, x[:, :1], context), (y * 2 + 1) * 3 + 5)
    assert torch.equal(chain.order(y, context), (y * 2 + 1) * 3 + 5)
    assert torch.equal(chain.received(x, 10 * x, context), ((x * 2 + 1) + 10) * 3 + 5 + 10)
    assert chain.penalty([x, x], y) == (2 + 3) * 8
    assert chain.figures() == {"first.calls": 6, "second.calls": 6}


def test_two_losses_in_place_of_cross_entropy_are_refused():
    for wrong in ({"label_gdp": LabelGdp(), "cae": Cae()}, {"a": LabelDp(debias=True), "b": LabelDp(debias=True)}):
        with pytest.raises(UserError, match=" and ".join(wrong) + " put losses of their own in place of cross-entropy"):
            Chain(wrong)
    Chain({"label_dp": LabelDp(), "cae": Cae()})


@pytest.mark.parametrize("last", [Alibi(), Tpsl(), LabelGdp(), LabelDp(target="posterior")])
def test_noise_on_labels_that_training_would_ignore_is_refused(rng, last):
    y, logits, ids = torch.arange(200) % 2, torch.zeros(200, 1), torch.arange(200)
    right, wrong = Chain({"label_dp": LabelDp(), "last": last}), Chain({"last": last, "label_dp": LabelDp()})
    assert right.loss(logits, right.labels(y, logits, drawing(rng, ids))).isfinite()
    with pytest.raises(UserError, match="another defense changes labels after it"):
        wrong.loss(logits, wrong.labels(y, logits, drawing(rng, ids)))


def test_a_defense_without_a_role_in_the_protocol_is_refused():
    for name, defense, fits, misses in (
        ("embedding_noise", EmbeddingNoise(), Split(), FederatedLr()),
        ("label_dp", LabelDp(), Split(), FederatedLr()),
        ("shuffle", Shuffle(), FederatedLr(), Split()),
    ):
        refuse_unfit({"gaussian": Gaussian(), name: defense}, fits.roles, "", 2)
        with pytest.raises(UserError, match=f"defense={name}: it stands at .*, which the protocol Other does not have"):
            refuse_unfit({"gaussian": Gaussian(), name: defense}, misses.roles, "Other", 2)


def test_only_a_release_of_labels_is_label_privacy():
    assert claims_of({"marvell": Marvell(), "label_dp": LabelDp()}).label_privacy
    assert not claims_of({"marvell": Marvell(), "embedding_noise": EmbeddingNoise()}).label_privacy


def test_more_classes_than_a_defense_protects_are_refused():
    with pytest.raises(UserError, match="defense=marvell: it protects 2 classes, and the labels have 10"):
        refuse_unfit({"dcor": Dcor(), "marvell": Marvell()}, Split().roles, "Split", 10)
    with pytest.raises(UserError, match="defense=tpsl: it protects 2 classes"):
        refuse_unfit({"tpsl": Tpsl(noise="bernoulli")}, Split().roles, "Split", 10)
    refuse_unfit({"dcor": Dcor(), "label_dp": LabelDp(), "tpsl": Tpsl()}, Split().roles, "Split", 10)


def test_what_compresses_has_an_order():
    top_k, quantize = TopK(message="gradients"), Quantize(message="gradients")
    for named in (
        {"marvell": Marvell(), "top_k": top_k, "quantize": quantize},
        {"gaussian": Gaussian(), "batch_average": BatchAverage()},
        {"top_k": top_k, "sign": Sign(), "label_dp": LabelDp()},
        {"vector_quantize": VectorQuantize(), "top_k": top_k},  # of different messages
        {"top_k": TopK(), "sign": Sign()},
    ):
        Chain(named)
    for wrong, why in (
        ({"top_k": top_k, "marvell": Marvell()}, "marvell takes a gradient as real numbers, and top_k leaves some of"),
        ({"sign": Sign(), "quantize": quantize}, "sign leaves whole numbers on a grid"),
        ({"batch_average": BatchAverage(), "sign": Sign()}, "batch_average leaves words of a codebook"),
        ({"binomial": Binomial(), "quantize": Quantize()}, "binomial takes an embedding as whole numbers on a grid"),
        ({"top_k": TopK(), "binomial": Binomial()}, "binomial takes an embedding as whole numbers on a grid"),
    ):
        with pytest.raises(UserError, match=why):
            Chain(wrong)


def noting(hook):
    """A hook that notes its context, and draws a number from its generator."""

    def note(spy, values, *rest):
        spy.calls[hook].append(rest[-1])
        torch.rand(1, generator=rest[-1].rng)
        return values

    return note


class Spy(NonLabelDefense, LabelDefense, ParticipantDefense):
    def __init__(self):
        self.calls = defaultdict(list)

    embedding, received, labels, gradient, order, update = map(
        noting, ("embedding", "received", "labels", "gradient", "order", "update")
    )


def spying():
    return Chain({"spy": Spy()})


def calls_of(chain):
    return chain.named["spy"].calls


def test_hooks_get_the_rows_columns_epoch_and_generator_of_their_owner(rng):
    rows = table(rng, rows=30, parties=("a", "b", "label"))
    split = session(rows, new_defense=spying)
    batches = [torch.tensor([4, 2, 29]), torch.tensor([7, 0, 1])]
    for epoch, ids in enumerate(batches):
        split.round(ids, epoch=epoch)
    label_party = split.label_party
    owners = [
        (party, party.defenses[party.bottom.cut], hook) for party in split.parties for hook in ("embedding", "received")
    ]
    owners += [(label_party, label_party._gradient_defenses[party, "f2"], "gradient") for party in "ab"]
    for owner, chain, hook in [*owners, (label_party, label_party.defense, "labels")]:
        contexts, columns = calls_of(chain)[hook], rows.features["label" if owner is label_party else owner.name]
        assert [context.epoch for context in contexts] == [0, 1]
        for context, ids in zip(contexts, batches, strict=True):
            assert torch.equal(context.ids, ids)
            assert torch.equal(context.columns.numeric, columns.numeric[ids]), hook
            assert torch.equal(context.columns.categorical, columns.categorical[ids]), hook
            assert context.rng is owner.noise.training
    assert len({id(chain) for _, chain, _ in owners}) == 4  # an instance for each slot
    assert set(calls_of(owners[-1][1])) == {"gradient"}


def test_while_predicting_a_defense_draws_from_another_generator_and_learns_nothing(rng):
    rows = table(rng, rows=20)
    split = session(rows, new_defense=spying)
    split.round(rows.ids)
    (party,) = split.parties
    before, predicting = party.noise.training.get_state(), party.noise.predicting.get_state()
    split.predict(rows.ids)
    assert torch.equal(party.noise.training.get_state(), before)
    assert not torch.equal(party.noise.predicting.get_state(), predicting)
    assert len(calls_of(party.defenses["f2"])["embedding"]) == 1  # a copy was asked


def test_participants_hooks_get_their_rows_and_columns(rng):
    rows = table(rng, rows=40)
    federated = session(rows, protocol=FederatedLr(parties=2, batch_size=5), new_defense=spying, round_size=10)
    batch_rng = torch.Generator().manual_seed(0)
    for epoch in (0, 1):
        batches = federated.batches(rows, 10, batch_rng, epoch)
        federated.round(next(iter(batches)), epoch=epoch)
    for number, participant in enumerate(federated.participants):
        calls = calls_of(participant.defense)
        assert [context.epoch for context in calls["order"]] == [context.epoch for context in calls["update"]] == [0, 1]
        for order, update in zip(calls["order"], calls["update"], strict=True):
            assert (len(order.ids), len(update.ids)) == (20, 5), number
            assert set(update.ids.tolist()) <= set(order.ids.tolist())
            assert (order.rng, update.rng) == (batch_rng, participant.rng)
            assert order.columns is None
            assert torch.equal(update.columns.numeric, federated.design(rows.rows(update.ids)))
            assert update.columns.categorical.shape == (5, 0)
    one, other = (set(calls_of(p.defense)["order"][0].ids.tolist()) for p in federated.participants)
    assert not one & other


class Shrink(NonLabelDefense):
    """A local penalty 0.15 |h|^2 of the party, whose gradient is 0.3 h."""

    def received(self, g, h, context):
        return g + 0.3 * h


def test_a_party_learns_from_what_received_leaves_and_an_attacker_sees_what_arrived(rng):
    rows = table(rng, rows=12)
    plain, shrinking = session(rows), session(rows, defenses=[Shrink()])
    (party,) = shrinking.parties
    h, watch = party.activations_of(rows.ids)["f2"], frozenset({Gradients})
    arrived = [split.round(rows.ids, watch=watch).facts["a"][Gradients].layers["f2"] for split in (plain, shrinking)]
    assert torch.equal(*arrived)
    torch.testing.assert_close(party.layer_gradients["f2"], arrived[0] + 0.3 * h)
    assert not torch.equal(weights(plain)[0], weights(shrinking)[0])
