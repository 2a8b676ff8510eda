"""What each hook of a defense gets beside its values, and the gradient that a party learns from."""

import torch
from support.builders import session, table, weights

from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense, WithheldError
from vflbench.defenses.chain import Chain
from vflbench.messages.facts import Gradients
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Sgd
from vflbench.protocols.federated_lr import FederatedLr


def noting(hook):
    """A hook that notes its context, and draws a number from its generator."""

    def note(spy, values, *rest):
        spy.calls.setdefault(hook, []).append(rest[-1])
        torch.rand(1, generator=rest[-1].rng)
        return values

    return note


class Spy(NonLabelDefense, LabelDefense, ParticipantDefense):
    def __init__(self):
        self.calls = {}

    embedding, received, labels, gradient, order, update = map(
        noting, ("embedding", "received", "labels", "gradient", "order", "update")
    )


def spying():
    return Chain({"spy": Spy()})


def spied(rows, **options):
    """A session, the spy of each non-label party at its cut layer, and the label party."""
    split = session(rows, new_defense=spying, **options)
    return split, {party.name: spy_in(party.defenses[party.bottom.cut]) for party in split.parties}, split.label_party


def spy_in(chain):
    return chain.named["spy"]


def test_hooks_get_the_rows_columns_epoch_and_generator_of_their_owner(rng):
    rows = table(rng, rows=30, parties=("a", "b", "label"))
    split, senders, label_party = spied(rows)
    batches = [torch.tensor([4, 2, 29]), torch.tensor([7, 0, 1])]
    for epoch, ids in enumerate(batches):
        split.round(ids, epoch=epoch)
    for party in split.parties:
        for hook in ("embedding", "received"):
            contexts = senders[party.name].calls[hook]
            assert [context.epoch for context in contexts] == [0, 1]
            for context, ids in zip(contexts, batches, strict=True):
                assert torch.equal(context.ids, ids)
                assert torch.equal(context.columns.numeric, rows.features[party.name].numeric[ids]), (party.name, hook)
                assert torch.equal(context.columns.categorical, rows.features[party.name].categorical[ids])
                assert context.rng is party.noise.training
    chains = [label_party.defense, *(label_party._gradient_defenses[party, "f2"] for party in "ab")]
    spies = [spy_in(chain) for chain in chains]
    calls = [spies[0].calls["labels"], spies[1].calls["gradient"], spies[2].calls["gradient"]]
    for contexts in calls:
        assert [context.epoch for context in contexts] == [0, 1]
        for context, ids in zip(contexts, batches, strict=True):
            assert torch.equal(context.ids, ids)
            assert torch.equal(context.columns.numeric, rows.features["label"].numeric[ids])
            assert context.rng is label_party.noise.training
    assert len({id(spy) for spy in (*senders.values(), *spies)}) == 5  # an instance of its own for each slot
    assert set(spies[1].calls) == {"gradient"}
    assert set(senders["a"].calls) == {"embedding", "received"}


def test_while_predicting_a_defense_draws_from_another_generator_and_learns_nothing(rng):
    rows = table(rng, rows=20)
    split, senders, _ = spied(rows)
    split.round(rows.ids)
    (party,), spy = split.parties, senders["a"]
    before, calls = party.noise.training.get_state(), len(spy.calls["embedding"])
    predicting = party.noise.predicting.get_state()
    split.predict(rows.ids)
    assert torch.equal(party.noise.training.get_state(), before)
    assert not torch.equal(party.noise.predicting.get_state(), predicting)
    assert len(spy.calls["embedding"]) == calls  # a copy was asked


def test_participants_hooks_get_their_rows_and_columns(rng):
    rows = table(rng, rows=40)
    federated = session(rows, protocol=FederatedLr(parties=2, batch_size=5), new_defense=spying, round_size=10)
    batch_rng = torch.Generator().manual_seed(0)
    for epoch in (0, 1):
        batches = federated.batches(rows, 10, batch_rng, epoch)
        federated.round(next(iter(batches)), epoch=epoch)
    for number, participant in enumerate(federated.participants):
        calls = spy_in(participant.defense).calls
        assert [context.epoch for context in calls["order"]] == [context.epoch for context in calls["update"]] == [0, 1]
        for order, update in zip(calls["order"], calls["update"], strict=True):
            assert (len(order.ids), len(update.ids)) == (20, 5), number
            assert set(update.ids.tolist()) <= set(order.ids.tolist())
            assert order.rng is batch_rng
            assert update.rng is participant.rng
            assert order.columns is None
            assert torch.equal(update.columns.numeric, federated.design(rows.rows(update.ids)))
            assert update.columns.categorical.shape == (5, 0)
    one, other = (set(spy_in(p.defense).calls["order"][0].ids.tolist()) for p in federated.participants)
    assert not one & other


class Shrink(NonLabelDefense):
    """A local penalty (strength / 2) |h|^2 of the party, whose gradient is strength h."""

    def __init__(self, strength):
        self.strength = strength

    def received(self, g, h, context):
        return g + self.strength * h


def test_a_party_learns_from_what_received_leaves(rng):
    """One step of gradient descent on <g, f(x)> + (strength / 2) |f(x)|^2, g the gradient that arrived."""
    rows = table(rng, rows=12)
    split = session(rows, model=WideDeep(bottom_layers=1, width=6), optimizer=Sgd(lr=0.5), defenses=[Shrink(0.3)])
    bottom, block = split.parties[0].bottom, rows.features["a"]
    message = split.parties[0].embed(rows.ids, watched=True)
    answer = split.label_party.respond([message]).messages[0]
    h = bottom(block.numeric, block.categorical)[bottom.cut]
    objective = (answer.tensors[bottom.cut] * h).sum() + 0.15 * h.square().sum()
    slopes = torch.autograd.grad(objective, [*bottom.parameters()])
    expected = [parameter - 0.5 * slope for parameter, slope in zip(bottom.parameters(), slopes, strict=True)]
    split.parties[0].learn(answer)
    for parameter, stepped in zip(bottom.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), stepped.detach(), rtol=1e-5, atol=1e-7)


def test_the_gradient_that_an_attacker_sees_is_the_one_that_arrived(rng):
    """`received` works after the slot: it changes what the party learns, not what it was sent."""
    rows = table(rng, rows=12)
    plain, shrinking = (session(rows, defenses=defenses) for defenses in ([], [Shrink(5.0)]))
    watch = frozenset({Gradients})
    arrived = [split.round(rows.ids, watch=watch).facts["a"][Gradients].layers for split in (plain, shrinking)]
    assert torch.equal(arrived[0]["f2"], arrived[1]["f2"])
    assert not torch.equal(weights(plain)[0], weights(shrinking)[0])


def test_a_withheld_gradient_is_not_sent_and_its_party_does_not_learn(rng):
    class Silent(LabelDefense):
        def gradient(self, g, y, context):
            raise WithheldError("it is too telling")

    rows = table(rng, rows=12)
    split = session(rows, defenses=[Silent()])
    before = [parameter.clone() for parameter in split.parties[0].bottom.parameters()]
    training = split.round(rows.ids).training
    assert training.notes == ("no gradient is sent to party a: it is too telling",)
    for parameter, old in zip(split.parties[0].bottom.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
