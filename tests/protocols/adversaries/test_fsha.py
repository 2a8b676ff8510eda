from dataclasses import replace

import pytest
import torch
from support.builders import session, table, weights

from vflbench.attacks.fsha import Fsha as Read
from vflbench.data.pictures import Digits
from vflbench.defenses.chain import Chain
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.sign import Sign
from vflbench.errors import UserError
from vflbench.messages.facts import Auxiliary, Embeddings, Gradients, PartyFeatures, PeerDecoders
from vflbench.messages.threat import View
from vflbench.models.networks import Cnn, WideDeep
from vflbench.models.optimizers import Adam
from vflbench.protocols.adversaries.fsha import EarlierEmbeddings, Fsha

FACTS = frozenset({Embeddings, Gradients, PeerDecoders})
SMALL = {"warm_up": 5, "width": 8}


def auxiliary(rows):
    return lambda count: Auxiliary(
        {party: PartyFeatures(held.numeric[:count], held.categorical[:count]) for party, held in rows.features.items()},
        rows.labels[:count],
    )


def hijacked(rng, rows, adversary, **options):
    others = table(rng, rows=200, parties=tuple(rows.features), classes=rows.classes)
    return session(rows, adversaries={"fsha": adversary}, auxiliary=auxiliary(others), **options)


def sent(round_, party="a"):
    return round_.facts[party][Gradients].layers


def test_every_party_gets_gradients_of_its_own_critic_and_the_top_learns_what_arrives(rng):
    rows = table(rng, parties=("a", "b", "label"), classes=3)
    model = WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True)
    split = hijacked(rng, rows, Fsha(auxiliary=100, **SMALL), model=model)
    top, honest = [p.clone() for p in split.label_party.network.parameters()], session(rows, model=model)
    ours, theirs = (one.round(rows.ids, watch=FACTS) for one in (split, honest))
    assert ours.training.loss == theirs.training.loss
    for party in ("a", "b"):
        assert not any(torch.equal(sent(ours, party)[layer], sent(theirs, party)[layer]) for layer in ("f2", "wide"))
    decoders = ours.facts["label"][PeerDecoders].of
    assert list(decoders) == ["a", "b"]
    assert decoders["a"].network is not decoders["b"].network
    rebuilt = decoders["a"](ours.facts["label"][Embeddings].received["a"])
    assert rebuilt.numeric.shape == rebuilt.categorical.shape == (64, 2)
    assert not all(map(torch.equal, top, split.label_party.network.parameters()))


def test_it_is_honest_before_it_starts_and_then_in_a_share_of_the_honest_length(rng):
    """w h + (1 - w) g |h| / |g|: what is left without w h has the length (1 - w) |h|. Before, there is no decoder."""
    rows = table(rng)
    for share in (0.25, 0.75):
        split, honest = hijacked(rng, rows, Fsha(start=2, honest_share=share, **SMALL)), session(rows)
        for number in range(3):
            both = [one.round(rows.ids, watch=FACTS) for one in (split, honest)]
            ours, theirs = (sent(one)["f2"] for one in both)
            assert torch.equal(ours, theirs) is (number < 2)
            assert bool(both[0].facts["label"][PeerDecoders].of) is (number == 2)
        torch.testing.assert_close((ours - share * theirs).norm(), (1 - share) * theirs.norm())


def test_the_defense_of_gradients_covers_the_honest_share_alone(rng):
    """The numbers of a row have one size where only their signs cross; those of the critic's gradient have not."""
    rows = table(rng)
    signed = {"new_defense": lambda: Chain({"sign": Sign()})}
    honest = sent(session(rows, **signed).round(rows.ids, watch=FACTS))["f2"]
    assert torch.equal(honest.abs(), honest.abs()[:, :1].expand_as(honest))
    stolen = sent(hijacked(rng, rows, Fsha(**SMALL), **signed).round(rows.ids, watch=FACTS))["f2"]
    assert not torch.allclose(stolen.abs(), stolen.abs()[:, :1].expand_as(stolen))
    mixed = sent(hijacked(rng, rows, Fsha(honest_share=1 - 1e-9, **SMALL), **signed).round(rows.ids, watch=FACTS))["f2"]
    torch.testing.assert_close(mixed, honest, atol=1e-6, rtol=1e-5)


def test_gradients_follow_from_labels_only_if_the_critic_knows_them_and_nobody_promised_their_privacy(rng):
    rows = table(rng, classes=3)
    for knows in (False, True):
        both = [
            hijacked(torch.Generator().manual_seed(1), one, Fsha(knows_labels=knows, **SMALL))
            for one in (rows, replace(rows, labels=(rows.labels + 1) % 3))
        ]
        gradients = [sent(split.round(rows.ids, watch=FACTS))["f2"] for split in both]
        assert torch.equal(*gradients) is not knows
    private = {"new_defense": lambda: Chain({"label_dp": LabelDp(eps=1.0)})}
    with pytest.raises(UserError, match="follow from labels, and label_dp promises that they are private"):
        hijacked(rng, rows, Fsha(knows_labels=True, **SMALL), **private)
    hijacked(rng, rows, Fsha(**SMALL), **private).round(rows.ids)


@pytest.mark.slow
def test_a_run_that_goes_on_sends_the_same(rng):
    rows = table(rng, parties=("a", "b"), classes=3)
    others = table(rng, rows=100, parties=("a", "b"), classes=3)

    def fresh():
        adversary = Fsha(start=1, pilot_steps=1, knows_labels=True, evades=1.5, **SMALL)
        return session(rows, adversaries={"fsha": adversary}, auxiliary=auxiliary(others))

    for stop in (1, 3):  # before the first gradient, within
        whole, stopped, resumed = fresh(), fresh(), fresh()
        rngs = [split.label_party.adversary._begun[0].rng for split in (whole, stopped, resumed)]
        for _ in range(stop):
            whole.round(rows.ids)
            stopped.round(rows.ids)
        rngs[2].set_state(rngs[1].get_state())
        resumed.restore(stopped.state())
        stopped.round(rows.ids)  # which must not reach what was restored
        for _ in range(2):
            whole.round(rows.ids)
            resumed.round(rows.ids)
        assert all(map(torch.equal, weights(whole), weights(resumed))), stop
        assert torch.equal(*(split.label_party.adversary._spaces["b"].decoder[0].weight for split in (whole, resumed)))


def test_no_other_party_has_gradients_to_send(rng):
    with pytest.raises(UserError, match="party=a: it cheats with gradients, which only the party label sends"):
        session(table(rng), adversaries={"x": Fsha(party="a")})


def read(split, rows):
    attack = Read(rows=len(rows))
    facts = split.round(rows.ids, watch=attack.threat.knows).facts["label"]
    view = View("label", 0, 0, rows.ids, torch.Generator(), attack.threat, facts)
    return attack.batch(view).features["a"].numeric


@pytest.mark.slow
def test_its_gradients_open_embeddings_that_honest_ones_leave_closed():
    """Pictures are rebuilt better than by the mean of their class; with honest gradients the same decoder reads nothing."""
    data = Digits(test_fraction=0.3).load(torch.Generator().manual_seed(0))
    rows, others = (part.sample(count) for part, count in ((data.train, 1000), (data.test, 539)))
    rows, truth, errors = replace(rows, ids=torch.arange(len(rows))), rows.features["a"].numeric, {}
    means = torch.stack([others.features["a"].numeric[others.labels == k].mean(0) for k in range(10)])
    for share in (0.0, 1 - 1e-9):
        adversary = Fsha(honest_share=share, warm_up=400)
        model = Cnn(bottom_layers=2)
        split = session(
            rows, model=model, optimizer=Adam(lr=1e-3), adversaries={"x": adversary}, auxiliary=auxiliary(others)
        )
        order = torch.Generator().manual_seed(1)
        for _ in range(240):
            split.round(rows.ids[torch.randperm(len(rows), generator=order)[:32]])
        errors[share] = float((read(split, rows) - truth).square().mean())
    assert errors[0.0] < 0.6 * float((means[rows.labels] - truth).square().mean()), errors
    assert errors[0.0] < 0.3 * errors[1 - 1e-9], errors


def test_a_batch_in_another_order_is_noticed_from_the_second_epoch_on(rng):
    ids, first = torch.arange(40), torch.randn(40, 6, generator=rng)
    later = first + 0.3 * torch.randn(40, 6, generator=rng)  # the network has moved
    order = torch.randperm(40, generator=rng)
    earlier = EarlierEmbeddings()
    assert not earlier.out_of_place(ids, {"a": {"f1": first}})
    assert earlier.out_of_place(ids, {"a": {"f1": later[order]}})
    assert not earlier.out_of_place(ids, {"a": {"f1": later}})
    other = EarlierEmbeddings()
    other.tables = {party: table.clone() for party, table in earlier.tables.items()}
    assert other.out_of_place(ids, {"a": {"f1": later[order]}})
    assert not other.out_of_place(ids + 100, {"a": {"f1": later[order]}})  # rows that it never met
    assert not other.out_of_place(ids[:7], {"a": {"f1": later[:7].flip(0)}})  # too few to tell
