from functools import partial

import pytest
import torch
from support.builders import TappedWire, session, table, weights, whole_network

from vflbench import Compression, Embeddings, Gradients, Labels, LocalModel, PartyFeatures, Predictions, Queries
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import LabelDefense, NonLabelDefense, WithheldError
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.fake_labels import FakeLabels
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.quantize import Quantize
from vflbench.messages.facts import LocalTop, NoiseMean, PeerArchitectures, PeerModels, SummedGradients
from vflbench.messages.threat import Role
from vflbench.messages.wire import Kind, Wire
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.protocols.parties import classification_loss
from vflbench.protocols.shared_embeddings import SharedEmbeddings
from vflbench.protocols.split import Split

EVERYTHING = Split().offers(Role.NON_LABEL) | Split().offers(Role.LABEL)


class BothDefense(NonLabelDefense, LabelDefense):
    """Stands in both roles of split learning."""


@pytest.mark.slow
def test_being_watched_changes_no_weight_by_a_bit(rng):
    rows = table(rng, parties=("a", "b", "label"))
    quantize, shared = partial(Quantize, learn_batches=2), SharedEmbeddings(local_steps=2)
    for protocol, it in ((Split(), MaxNorm), (Split(), quantize), (shared, EmbeddingNoise), (shared, quantize)):
        name = f"{protocol}, {it}"
        alone, watched, asked = (
            session(rows, protocol=protocol, new_defense=lambda made=it: Chain({"it": made()})) for _ in range(3)
        )
        for step in range(5):
            ids = rows.ids[step::5]
            alone.round(ids)
            watched.round(ids, step=step, watch=EVERYTHING | protocol.offers(Role.NON_LABEL))
            watched.predict(rows.ids)
            asked.round(ids, watch=frozenset({LocalModel, Queries})).facts["a"][LocalModel].embed(rows.ids)
            asked.facts(rows.ids[:5], EVERYTHING)
        assert all(map(torch.equal, weights(alone), weights(watched))), name
        assert all(map(torch.equal, weights(alone), weights(asked))), name


def test_each_hook_stands_where_it_says(rng):
    called = []

    class Tattle(BothDefense):
        """Zeroes what crosses, flips labels and penalises; the names of its hooks are kept."""

        def embedding(self, h, context):
            called.append("embedding")
            return torch.zeros_like(h)

        def received(self, g, h, context):
            called.append("received")
            assert (g == 0).all()  # what came
            assert (h != 0).any()  # the activations, before they were zeroed
            return g

        def labels(self, y, logits, context):
            called.append("labels")
            assert torch.equal(y, rows.labels)
            return 1 - y

        def penalty(self, embeddings, y):
            called.append("penalty")
            assert torch.equal(y, 1 - rows.labels)
            return 10.0 + 0.0 * sum(h.sum() for h in embeddings)

        def gradient(self, g, y, context):
            called.append("gradient")
            assert torch.equal(y, 1 - rows.labels)
            return torch.zeros_like(g)

    rows, carried = table(rng, parties=("a", "b")), []
    split = session(rows, defenses=(Tattle(),), wire=TappedWire(carried.append))
    bottoms = [p.clone() for party in split.parties for p in party.bottom.parameters()]
    done = split.round(rows.ids)
    assert called == ["embedding"] * 2 + ["labels", "penalty"] + ["gradient"] * 2 + ["received"] * 2
    assert torch.equal(done.training.labels, 1 - rows.labels)
    assert done.training.penalty == 10.0
    assert all((values == 0).all() for message in carried for values in message.tensors.values())
    after = [p for party in split.parties for p in party.bottom.parameters()]
    assert all(map(torch.equal, bottoms, after))  # a zero gradient teaches nothing


def test_a_party_whose_gradient_is_withheld_does_not_learn_and_goes_on_afterwards(rng):
    class Moody(BothDefense):
        """Withholds the second gradient that it meets, if it is the fifth of its kind: that for b."""

        made = []

        def __init__(self):
            self.calls, self.refuses = 0, len(self.made) == 4  # two senders, label party, then a's and b's gradients
            self.made.append(self)

        def gradient(self, g, y, context):
            self.calls += 1
            if self.refuses and self.calls == 2:
                raise WithheldError("not today")
            return g

    for optimizer in (Adam(), LazyAdam(kernel="torch"), LazyAdam(kernel="auto")):
        Moody.made.clear()
        rows, wire = table(rng, parties=("a", "b")), Wire()
        split = session(rows, new_defense=lambda: Chain({"moody": Moody()}), wire=wire, optimizer=optimizer)
        assert split.round(rows.ids, watch=EVERYTHING).training.notes == ()
        wire.take_traffic()
        before = [party.predict(rows.ids).tensors["f2"] for party in split.parties]
        done = split.round(rows.ids, step=1, watch=EVERYTHING)
        assert done.training.notes == ("no gradient is sent to party b: not today",)
        after = [party.predict(rows.ids).tensors["f2"] for party in split.parties]
        assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [False, True], optimizer
        assert ("label", "b", Kind.GRADIENT) not in wire.take_traffic()
        assert not done.facts["b"][Gradients].layers
        assert not done.facts["b"][SummedGradients].parameters, "gradients of the round before"
        assert list(done.facts["b"][Embeddings].layers) == list(done.facts["a"][Gradients].layers) == ["f1", "f2"]
        assert done.facts["a"][SummedGradients].parameters
        assert split.round(rows.ids).training.notes == ()
        assert not torch.equal(after[1], split.parties[1].predict(rows.ids).tensors["f2"]), optimizer


@pytest.mark.slow
def test_bf16_changes_products_alone_and_learns_as_well(rng):
    """Messages, weights and what attackers see stay float32; after an epoch the losses are those of float32, nearly."""
    rows, losses = Synthetic(rows=4000, vocabulary=300).load(rng).train.at(torch.arange(4000)), {}
    for precision in ("float32", "bf16"):
        started = session(rows, precision=precision)
        losses[precision] = [started.round(ids).training.loss for ids in rows.ids[:3500].split(100)]
        facts = started.round(rows.ids[:100], watch=EVERYTHING).facts
        known = [*facts["a"][Embeddings].layers.values(), *facts["a"][Gradients].layers.values()]
        known += [facts["label"][Predictions].logits, *facts["a"][SummedGradients].parameters.values()]
        assert {t.dtype for t in (*known, *weights(started), started.predict(rows.ids[:10]))} == {torch.float32}
    assert losses["bf16"] != losses["float32"]
    assert sum(losses["bf16"][-20:]) == pytest.approx(sum(losses["float32"][-20:]), rel=0.02)


def test_defenses_compute_in_full_precision_under_bf16(rng):
    types = set()

    class Multiplies(BothDefense):
        """Notes the type of a product in each of its hooks, and in the backward pass of its penalty."""

        def embedding(self, h, context):
            types.add((h @ h.T).dtype)
            return h

        def gradient(self, g, y, context):
            return self.embedding(g, context)

        def penalty(self, embeddings, y):
            embeddings[0].register_hook(lambda g: types.add((g @ g.T).dtype))
            return self.embedding(embeddings[0], None).square().sum()

    rows = table(rng)
    started = session(rows, precision="bf16", defenses=[Multiplies()])
    started.round(rows.ids)
    started.predict(rows.ids)
    assert types == {torch.float32}


# What each party can know of a round of split learning, and between rounds.


def columns_of(rows, party):
    return rows.features[party].numeric, rows.features[party].categorical


def test_a_round_holds_what_crossed_and_what_each_layer_computed(rng):
    rows, messages = table(rng, parties=("a", "b")), []
    wire = TappedWire(messages.append)
    model = WideDeep(bottom_layers=3, top_layers=2, width=8, wide=True)
    split = session(rows, model=model, defenses=(MaxNorm(),), wire=wire)
    done = split.round(rows.ids, epoch=3, step=7, watch=EVERYTHING)
    assert [(m.sender, m.receiver, str(m.kind)) for m in messages] == [
        ("a", "label", "embedding"),
        ("b", "label", "embedding"),
        ("label", "a", "gradient"),
        ("label", "b", "gradient"),
    ]
    assert (done.epoch, done.step, done.phase) == (3, 7, "train")
    assert torch.equal(done.ids, rows.ids)
    embeddings, gradients = done.facts["b"][Embeddings], done.facts["b"][Gradients]
    assert list(embeddings.layers) == list(gradients.layers) == ["f1", "f2", "f3", "wide"]
    assert torch.equal(gradients.layers["f3"], messages[3].tensors["f3"])
    assert torch.equal(embeddings.layers["f3"], messages[1].tensors["f3"])
    assert embeddings.received == {}
    at_label = done.facts["label"][Embeddings]
    assert list(at_label.layers) == ["h1", "h2"]
    assert {party: list(sent) for party, sent in at_label.received.items()} == {p: ["f3", "wide"] for p in "ab"}
    assert torch.equal(at_label.received["b"]["f3"], messages[1].tensors["f3"])
    for kind in ("numeric", "categorical"):
        assert torch.equal(getattr(done.facts["a"][PartyFeatures], kind), getattr(rows.features["a"], kind))
    assert done.layers("a", Kind.GRADIENT) == ("f1", "f2", "f3", "wide")
    assert done.layers("a", None) == ("features",)
    assert done.layers("label", Kind.GRADIENT) == ()


def test_gradients_of_layers_and_of_parameters_are_those_of_back_propagation(rng):
    rows = table(rng, parties=("a", "b"))
    split, whole = (session(rows, model=WideDeep(bottom_layers=3, width=8)) for _ in range(2))
    facts = split.round(rows.ids, watch=EVERYTHING).facts["a"]
    outs, logits = whole_network(whole, rows)
    loss = classification_loss(logits, rows.labels)
    named = dict(whole.parties[0].bottom.named_parameters())
    references = torch.autograd.grad(loss, [*outs["a"].values(), *named.values()])
    for layer, reference in zip(outs["a"], references, strict=False):
        assert torch.allclose(facts[Gradients].layers[layer], reference, atol=1e-9), layer
    assert list(facts[SummedGradients].parameters) == list(named)
    for name, reference in zip(named, references[len(outs["a"]) :], strict=True):
        assert torch.allclose(facts[SummedGradients].parameters[name], reference, atol=1e-8), name


def test_an_attacker_at_either_party_is_offered_what_it_could_really_have(rng):
    running = session(table(rng, parties=("a", "b", "label")), model=WideDeep(bottom_layers=2, width=8, wide=True))
    assert running.roles() == {Role.NON_LABEL: ("a", "b"), Role.LABEL: ("label",)}
    assert Split().offers(Role.NON_LABEL) == {Embeddings, Gradients, SummedGradients, PartyFeatures, LocalModel}
    of_others = {Embeddings, PeerModels, PeerArchitectures, Queries, Compression, NoiseMean}
    assert Split().offers(Role.LABEL) == {*of_others, Predictions, Labels, PartyFeatures, LocalTop}
    assert Split().offers(Role.PARTICIPANT) == frozenset()
    done = running.round(torch.arange(64), watch=EVERYTHING)
    assert {party: set(facts) for party, facts in done.facts.items()} == {
        "a": Split().offers(Role.NON_LABEL),
        "b": Split().offers(Role.NON_LABEL),
        "label": Split().offers(Role.LABEL),
    }
    assert running.cut_layers() == {"a": ("f2", "wide"), "b": ("f2", "wide")}
    assert running.layers() == {"a": ("f1", "f2"), "b": ("f1", "f2"), "label": ("f1", "f2", "h1", "h2", "h3")}


def test_a_partys_own_model_is_the_one_of_the_moment(rng):
    """`LocalModel` and the facts between rounds answer about any of the party's rows, with the network as it stands."""
    rows = table(rng, parties=("a", "b"))
    split = session(rows)
    known = split.round(rows.ids[:20], watch=frozenset({LocalModel})).facts["a"]
    assert set(known) == {LocalModel}  # nothing else was asked for
    embed = known[LocalModel].embed
    some = torch.tensor([50, 2, 2])
    first = embed(some)
    with torch.no_grad():
        expected = split.parties[0].bottom(*columns_of(rows.rows(some), "a"))
    assert all(torch.equal(first[layer], expected[layer]) for layer in ("f1", "f2"))
    split.round(rows.ids)
    between = split.facts(some, EVERYTHING)
    assert not torch.equal(embed(some)["f2"], first["f2"])
    assert torch.equal(between["a"][LocalModel].embed(some)["f2"], embed(some)["f2"])
    assert torch.equal(between["a"][PartyFeatures].numeric, rows.features["a"].numeric[some])
    assert set(between["b"]) == {LocalModel, PartyFeatures}
    assert set(between["label"]) == {PeerModels, PeerArchitectures, Queries, Labels, PartyFeatures, LocalTop}
    assert split.parties[0].bottom.training
    assert split.facts(torch.tensor([10**9]), frozenset({Gradients})) == {"a": {}, "b": {}, "label": {}}  # no row is read


def test_compression_and_the_mean_of_its_noise_are_facts_of_the_label_party(rng):
    rows = table(rng)
    defenses = (Quantize(levels=4, range=[-1.0, 1.0]), Binomial(n=8, biased=True))
    facts = session(rows, defenses=defenses).round(rows.ids, watch=EVERYTHING).facts["label"]
    arrived, encoded = facts[Embeddings].received["a"]["f2"], facts[Compression].encoded["a"]["f2"]
    assert torch.equal(encoded.values, arrived)
    torch.testing.assert_close(arrived - facts[NoiseMean].means["a"]["f2"], encoded.corrected)
    assert (facts[NoiseMean].means["a"]["f2"] > 0).all()
    x = torch.tensor([[-1.0, 0.2] * 4])
    assert torch.equal(facts[Compression].rules("a")["f2"](x), encoded.compress(x))


def test_the_label_party_has_labels_columns_and_its_networks_as_they_answered(rng):
    """Also where a defense leaves three of eight fake classes: an attacker who compares with predictions needs the same."""
    cases = ((("a", "b"), True, ()), (("a", "b", "label"), True, ()), (("a", "b"), False, (FakeLabels(),)))
    for parties, wide, defenses in cases:
        optimizer = Adam() if "label" in parties else LazyAdam(kernel="torch")
        rows = table(rng, parties=parties, classes=3)
        split = session(rows, model=WideDeep(bottom_layers=2, width=8, wide=wide), defenses=defenses, optimizer=optimizer)
        split.round(rows.ids)  # in which fake classes are drawn
        done = split.round(rows.ids, watch=EVERYTHING).facts["label"]
        assert torch.equal(done[Labels].classes, rows.labels)
        columns = done[PartyFeatures]
        if "label" in parties:
            assert torch.equal(columns.numeric, rows.features["label"].numeric)
        else:
            assert columns.numeric.shape == columns.categorical.shape == (len(rows), 0)
        for party, sent in done[Embeddings].received.items():
            peer, answer = done[PeerModels].models[party].network, done[Queries].answer[party]
            assert not any(weights.requires_grad for weights in peer.parameters())
            assert torch.equal(peer(*columns_of(rows, party))["f2"], sent["f2"])  # as it stood when it sent
            assert torch.equal(answer(*columns_of(rows, party), rng)["f2"], sent["f2"])
        received = {
            party: {layer: h.requires_grad_() for layer, h in sent.items()}
            for party, sent in done[Embeddings].received.items()
        }
        logits = done[LocalTop].logits(received, columns)
        assert torch.equal(logits, done[Predictions].logits)  # before the step, although the party has learned since
        logits.sum().backward()
        assert all(bool(h.grad.any()) for sent in received.values() for h in sent.values())
        assert not any(weights.requires_grad for weights in done[LocalTop].networks.forward.parameters())
        now = split.facts(rows.ids, EVERYTHING)["label"]
        sent = {party.name: dict(party.predict(rows.ids).tensors) for party in split.parties}
        assert torch.equal(now[LocalTop].logits(sent, now[PartyFeatures]), split.predict(rows.ids))
        assert torch.equal(now[Labels].classes, rows.labels)
