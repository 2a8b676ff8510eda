"""What each hook of a defense gets beside its values, and the gradient that a party learns from."""

from collections import defaultdict

import torch
from support.builders import session, table, weights

from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense, WithheldError
from vflbench.defenses.chain import Chain
from vflbench.messages.facts import Gradients
from vflbench.protocols.federated_lr import FederatedLr


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


def test_a_withheld_gradient_is_not_sent_and_its_party_does_not_learn(rng):
    class Silent(LabelDefense):
        def gradient(self, g, y, context):
            raise WithheldError("it is too telling")

    rows = table(rng, rows=12)
    split = session(rows, defenses=[Silent()])
    before = weights(split)[0]
    assert split.round(rows.ids).training.notes == ("no gradient is sent to party a: it is too telling",)
    assert torch.equal(weights(split)[0], before)
