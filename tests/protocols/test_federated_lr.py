import copy
import math

import pytest
import torch
from support.builders import run_in, setup_of, table

from vflbench.data.synthetic import Bernoulli
from vflbench.defenses.base import ParticipantDefense
from vflbench.defenses.chain import Chain
from vflbench.defenses.gaussian import Gaussian
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.errors import UserError
from vflbench.messages.facts import PartyFeatures, Schema, Updates
from vflbench.messages.threat import Role
from vflbench.messages.wire import Kind
from vflbench.protocols.adversaries import Adversary
from vflbench.protocols.adversaries.fsha import Fsha
from vflbench.protocols.federated_lr import AGGREGATOR, FederatedLr, Participant, gradient, signs, taylor_loss
from vflbench.run.settings import Audit, Settings

EVERYTHING = FederatedLr().offers(Role.PARTICIPANT)


def started(rows, *, defenses=(), size=4, adversaries=None, **options):
    protocol = FederatedLr(batch_size=size, **options)
    size *= protocol.parties * protocol.batches
    return protocol.start(setup_of(rows, defenses=defenses, round_size=size, adversaries=adversaries or {}))


def rounds(session, rows, seed=0, epochs=2):
    """The ids of each round of each epoch."""
    generator = torch.Generator().manual_seed(seed)
    size = session.rules.parties * session.rules.batches * session.rules.batch_size
    return [list(session.batches(rows, size, generator, epoch)) for epoch in range(epochs)]


def test_parties_keep_their_batches_and_the_curious_one_takes_new_ones(rng):
    rows = table(rng, 24)
    first, second = rounds(started(rows), rows)
    assert len(first) == 3
    assert [torch.equal(one[:4], other[:4]) for one, other in zip(first, second, strict=True)] == [True] * 3
    assert not all(torch.equal(one[4:], other[4:]) for one, other in zip(first, second, strict=True))
    shares = [set(torch.cat([ids[part] for ids in first]).tolist()) for part in (slice(4), slice(4, 8))]
    assert not shares[0] & shares[1]
    assert shares[1] == set(torch.cat([ids[4:] for ids in second]).tolist())


@pytest.mark.parametrize("parties", [2, 4])
def test_the_curious_one_sees_the_sum_of_the_others_updates_and_watching_changes_nothing(rng, parties):
    rows = table(rng, 40)
    alone, session = (started(rows, parties=parties, reduction="sum") for _ in range(2))
    assert session.roles() == {Role.PARTICIPANT: ("abcd"[parties - 1],)}
    for step, ids in enumerate(rounds(session, rows, epochs=1)[0]):
        unseen, done = alone.round(ids), session.round(ids, epoch=3, step=step, watch=EVERYTHING)
        assert (unseen.facts, unseen.private, unseen.training.loss) == ({}, None, done.training.loss)
        ((curious, facts),) = done.facts.items()
        assert curious == session.curious
        assert set(facts) == {Updates, PartyFeatures}
        x, y, updates = done.private.x, done.private.y, facts[Updates]
        assert torch.allclose(updates.others, -0.1 * gradient(updates.before, x, y, "sum"), atol=1e-12)
        assert done.private.owner == "+".join("abc"[: parties - 1])
        others = rows.rows(ids[:-4])
        assert torch.equal(x, session.design(others))
        assert torch.equal(y, others.labels * 2.0 - 1)
        assert torch.equal(updates.after, session.model)
        assert torch.equal(done.ids, ids[-4:])  # the curious participant's own, which it knows
        assert torch.equal(facts[PartyFeatures].numeric, session.design(rows.rows(ids[-4:])))
        assert torch.equal(done.training.ids, ids)
        assert torch.equal(done.training.labels, rows.labels[ids])
    assert torch.equal(alone.model, session.model)


def test_plain_aggregation_shows_each_update_and_changes_nothing_else(rng):
    rows = table(rng, 40)
    summed, plain = started(rows, parties=4), started(rows, parties=4, aggregation="plain")
    for ids in rounds(summed, rows, epochs=1)[0]:
        unseen, seen = (session.round(ids, watch=EVERYTHING).facts["d"][Updates] for session in (summed, plain))
        assert (list(unseen.received), list(seen.received)) == ([], ["a", "b", "c"])
        assert torch.allclose(sum(seen.received.values()), unseen.others, atol=1e-12)
        x, y = (part[4:8] for part in (plain.design(rows.rows(ids)), signs(rows.labels[ids])))
        assert torch.allclose(seen.received["b"], -0.1 * gradient(seen.before, x, y, "mean"), atol=1e-12)
    assert torch.equal(summed.model, plain.model)


def test_the_server_adds_the_mean_of_what_a_defense_leaves_and_all_goes_over_the_wire(rng):
    class Half(ParticipantDefense):
        def update(self, u, context):
            contexts.append((context.ids.tolist(), context.epoch))
            return u / 2

    rows, contexts = table(rng, 24), []
    whole, halved = started(rows), started(rows, defenses=[Half()])
    ids = rounds(whole, rows, epochs=1)[0][0]
    for session in (whole, halved):
        session.round(ids, epoch=4)
    assert torch.equal(halved.model, whole.model / 2)
    assert contexts == [(ids[:4].tolist(), 4), (ids[4:].tolist(), 4)]
    assert all(torch.equal(participant.model, halved.model) for participant in halved.participants)
    traffic = {route: (t.messages, t.bytes) for route, t in whole.wire.take_traffic().items()}
    sent = (1, 8 * (2 + 5 + 7))  # numeric, one-hot
    routes = [("a", "server", Kind.UPDATE), ("b", "server", Kind.UPDATE)]
    assert traffic == dict.fromkeys([*routes, ("server", "a", Kind.MODEL), ("server", "b", Kind.MODEL)], sent)


def test_the_rules_say_which_columns_are_binary(rng):
    """Two numeric columns, then 5 and 7 categories: a numeric one is binary if no participant has another number in it."""
    rows = table(rng, 24)
    categories, one_hot = tuple(range(2, 14)), ((2, 5), (7, 7))
    assert started(rows).rules.schema == Schema(categories, False, one_hot)
    shifted = Schema((0, *(j + 1 for j in categories)), True, tuple((first + 1, size) for first, size in one_hot))
    assert started(rows, intercept=True).rules.schema == shifted
    numeric = rows.features["a"].numeric
    numeric[:] = (torch.arange(24) % 2)[:, None]
    assert started(rows).rules.schema.binary == (0, 1, *categories)
    numeric[-1, 1] = 2.0
    session = started(rows)
    assert session.rules.schema.binary == (0, *categories)
    design = session.design(rows)
    for first, size in session.rules.schema.one_hot:
        assert (design[:, first : first + size].sum(dim=1) == 1).all()


def test_rules_say_whether_updates_are_whole(rng):
    class Halved(ParticipantDefense):
        def update(self, u, context):
            return u / 2

    selective, noise = SelectiveUpdate(), Gaussian(sigma=0.1)
    cases = (([], True), ([noise], True), ([selective], False), ([noise, selective], False))
    cases += (([SelectiveUpdate(fraction=1.0)], True), ([Halved()], None), ([Halved(), selective], False))
    for defenses, whole in cases:
        assert started(table(rng, 24), defenses=defenses).rules.whole is whole, defenses


def test_a_session_goes_on_where_another_stood(rng):
    rows = table(rng, 24)
    session, other = started(rows), started(rows)
    first, second = rounds(session, rows)
    for ids in first:
        session.round(ids)
    state = copy.deepcopy(session.state())
    other.restore(state)
    state["server"].zero_()  # a copy was restored, not the tensor itself
    for ids in second:
        assert session.round(ids).training.loss == other.round(ids).training.loss
    assert torch.equal(session.model, other.model)


def test_what_does_not_fit_is_refused(tmp_path, rng):
    with pytest.raises(ValueError, match="asynchronous"):
        FederatedLr(batches=2)
    misplaced = {"dataset": Bernoulli(), "protocol": FederatedLr(), "defenses": {"max_norm": MaxNorm()}}
    for problem, parts in (
        ("need 2000 training rows", {"dataset": Bernoulli(rows=5), "protocol": FederatedLr(batch_size=1000)}),
        ("defense=max_norm: it stands at the label party, which the protocol FederatedLr does not have, so", misplaced),
    ):
        with pytest.raises(UserError, match=problem):
            run_in(tmp_path, **{"attacks": {}, "settings": Settings(audit=Audit()), **parts})
    with pytest.raises(UserError, match="two classes"):
        started(table(rng, 24, classes=3))
    for adversary in (Adversary(), Fsha()):
        with pytest.raises(UserError, match="adversary=it: it cheats in protocol=split"):
            started(table(rng, 24), adversaries={"it": adversary})


def binary_rows(rng, rows=6, columns=3):
    x = (torch.rand(rows, columns, generator=rng) < 0.5).double()
    return x, torch.randint(2, (rows,), generator=rng).double() * 2 - 1


def test_the_loss_is_logistic_to_second_order_and_its_gradient_alpha_theta_minus_beta(rng):
    x, y = binary_rows(rng)
    theta = torch.randn(3, generator=rng, dtype=torch.float64, requires_grad=True)
    logistic = torch.nn.functional.softplus(-y * (x @ theta) / 1000)
    assert torch.allclose(taylor_loss(theta / 1000, x, y), logistic, atol=1e-10)
    assert taylor_loss(torch.zeros(3).double(), x, y).tolist() == [math.log(2)] * 6
    taylor_loss(theta, x, y).sum().backward()
    assert torch.allclose(gradient(theta.detach(), x, y, "sum"), theta.grad)
    assert torch.allclose(gradient(theta.detach(), x, y, "mean"), theta.grad / 6)
    assert torch.allclose(4 * theta.grad, x.T @ x @ theta.detach() - 2 * x.T @ y)


def test_a_step_over_several_batches_is_the_difference_they_make_together(rng):
    first, second = binary_rows(rng), binary_rows(rng)
    start = torch.randn(3, generator=rng, dtype=torch.float64)
    party = Participant("a", start, 0.3, "mean", Chain({}), rng)
    message, loss = party.step([first, second], torch.arange(12))
    middle = start - 0.3 * gradient(start, *first, "mean")
    end = middle - 0.3 * gradient(middle, *second, "mean")
    assert torch.allclose(message.tensors["theta"], end - start)
    assert (message.sender, message.receiver, message.kind) == ("a", AGGREGATOR, Kind.UPDATE)
    assert loss == (taylor_loss(start, *first).mean() + taylor_loss(middle, *second).mean()).item() / 2
