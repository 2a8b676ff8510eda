import pytest
import torch
from builders import session, table, weights

from vflbench.data.table import VerticalTable
from vflbench.defenses.base import Chain, Defense, WithheldError
from vflbench.defenses.max_norm import MaxNorm
from vflbench.messages.transcript import Knowledge, Seat, Transcript
from vflbench.messages.wire import Kind, LocalWire
from vflbench.models.optimizers.adam import Adam
from vflbench.models.optimizers.lazy_adam import LazyAdam
from vflbench.models.optimizers.sgd import Sgd
from vflbench.models.wide_deep import WideDeep
from vflbench.protocols.parties import classification_loss
from vflbench.protocols.split import Split

PARTIES = {1: ("a",), 2: ("a", "b"), 4: ("a", "b", "c", "d"), "label too": ("a", "b", "label")}


def whole_network_logits(split_session, batch):
    """The same networks called as one, with no message in between."""
    outs = [p.bottom(batch.features[p.name].numeric, batch.features[p.name].categorical) for p in split_session.parties]
    bottoms = [p.bottom for p in split_session.parties]
    label_party = split_session.label_party
    if label_party.bottom is not None:
        own = batch.features["label"]
        outs.append(label_party.bottom(own.numeric, own.categorical))
        bottoms.append(label_party.bottom)
    deep = [out[bottom.cut] for out, bottom in zip(outs, bottoms, strict=True)]
    return label_party.top(deep, [out["wide"] for out in outs if "wide" in out])[1]


@pytest.mark.parametrize("parties", PARTIES.values(), ids=map(str, PARTIES))
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_training_in_parts_is_training_the_whole(rng, parties, wide, classes):
    """Without a defense, a round must move every weight exactly as back-propagation through one network would."""
    rows = table(rng, parties=parties, classes=classes)
    model = WideDeep(bottom_layers=2, top_layers=2, width=8, cut_width=5, wide=wide)
    split, whole = (session(rows, model=model, optimizer=Sgd(lr=0.5)) for _ in range(2))
    before = weights(split)
    loss = classification_loss(whole_network_logits(whole, rows), rows.labels)
    loss.backward()
    for party in (*whole.parties, whole.label_party):
        party.optimizer.step()
    outcome = split.round(rows, None)
    assert outcome.loss == pytest.approx(loss.item(), rel=1e-6)
    for ours, reference, start in zip(weights(split), weights(whole), before, strict=True):
        assert torch.allclose(ours, reference, atol=1e-7)
        assert not torch.equal(ours, start)


def test_predictions_are_those_of_the_whole_network(rng):
    rows = table(rng, parties=("a", "b", "label"))
    split = session(rows, model=WideDeep(width=8, wide=True))
    assert torch.allclose(split.predict(rows), whole_network_logits(split, rows))
    assert not split.predict(rows).requires_grad


@pytest.mark.parametrize("defenses", [(), (MaxNorm(),)], ids=["none", "max_norm"])
def test_being_watched_changes_no_weight_by_a_bit(rng, defenses):
    rows = table(rng, parties=("a", "b"))
    alone, watched = (session(rows, defenses=defenses) for _ in range(2))
    for step in range(5):
        alone.round(rows, None)
        watched.round(rows, Transcript(rows.ids, 0, step, (0.5, 0.5)))
    assert all(map(torch.equal, weights(alone), weights(watched)))


def test_predicting_more_often_changes_no_weight_of_a_noisy_defense(rng):
    class Noise(Defense):
        def embedding(self, h, rng):
            return h + torch.randn(h.shape, generator=rng)

    rows = table(rng)
    alone, busy = (session(rows, defenses=(Noise(),)) for _ in range(2))
    for _ in range(3):
        alone.round(rows, None)
        busy.predict(rows)
        busy.round(rows, None)
    assert all(map(torch.equal, weights(alone), weights(busy)))


def test_the_transcript_holds_what_crossed_and_what_each_layer_computed(rng):
    rows = table(rng, parties=("a", "b"))
    split = session(rows, model=WideDeep(bottom_layers=3, top_layers=2, width=8, wide=True), defenses=(MaxNorm(),))
    messages, transcript = [], Transcript(rows.ids, 0, 0, (0.5, 0.5))
    received = transcript.received
    transcript.received = lambda message: (messages.append(message), received(message))
    split.round(rows, transcript)
    assert [(m.sender, m.receiver, str(m.kind)) for m in messages] == [
        ("a", "label", "embedding"),
        ("b", "label", "embedding"),
        ("label", "a", "gradient"),
        ("label", "b", "gradient"),
    ]
    view = transcript.view("b", frozenset(Knowledge), torch.Generator())
    assert list(view.embeddings) == list(view.gradients) == ["f1", "f2", "f3", "wide"]
    assert torch.equal(view.gradients["f3"], messages[3].tensors["f3"])
    assert torch.equal(view.embeddings["f3"], messages[1].tensors["f3"])
    hidden = transcript.view("label", frozenset(Knowledge), torch.Generator(), visible=False)
    assert list(hidden.embeddings) == ["h1", "h2"]


def test_layer_gradients_are_those_of_back_propagation(rng):
    rows = table(rng)
    split, whole = (session(rows, model=WideDeep(bottom_layers=3, width=8)) for _ in range(2))
    transcript = Transcript(rows.ids, 0, 0, (0.5, 0.5))
    split.round(rows, transcript)
    ours = transcript.view("a", frozenset(Knowledge), torch.Generator()).gradients
    bottom = whole.parties[0].bottom
    out = bottom(rows.features["a"].numeric, rows.features["a"].categorical)
    loss = classification_loss(whole.label_party.top([out["f3"]], [])[1], rows.labels)
    for layer, reference in zip(out, torch.autograd.grad(loss, list(out.values())), strict=True):
        assert torch.allclose(ours[layer], reference, atol=1e-9)


def test_each_hook_stands_where_it_says(rng):
    class Tattle(Defense):
        """Zeroes what crosses, flips labels and penalises; what it was shown is kept."""

        shown = []

        def embedding(self, h, rng):
            return torch.zeros_like(h)

        def labels(self, y, ids, logits, rng):
            self.shown.append(("labels", y.clone(), ids.clone()))
            return 1 - y

        def penalty(self, embeddings, y):
            self.shown.append(("penalty", [tuple(h.shape) for h in embeddings], y.clone()))
            return 10.0 + 0.0 * sum(h.sum() for h in embeddings)

        def gradient(self, g, y, rng):
            self.shown.append(("gradient", tuple(g.shape), y.clone()))
            return torch.zeros_like(g)

    rows, wire = table(rng, parties=("a", "b")), LocalWire()
    split = session(rows, defenses=(Tattle(),), wire=wire)
    carried = []
    wire.tap = None
    send = wire.carry
    wire.carry = lambda message: (carried.append(message), send(message))[1]
    bottoms = [p.clone() for party in split.parties for p in party.bottom.parameters()]
    outcome = split.round(rows, None)
    names = [entry[0] for entry in Tattle.shown]
    assert names == ["labels", "penalty", "gradient", "gradient"]
    assert torch.equal(Tattle.shown[0][1], rows.labels)
    assert torch.equal(Tattle.shown[0][2], rows.ids)
    assert Tattle.shown[1][1] == [(64, 8), (64, 8)]
    assert all(torch.equal(entry[2], 1 - rows.labels) for entry in Tattle.shown[1:])
    assert outcome.penalty == 10.0
    assert all((values == 0).all() for message in carried for values in message.tensors.values())
    after = [p for party in split.parties for p in party.bottom.parameters()]
    assert all(map(torch.equal, bottoms, after))  # a zero gradient teaches nothing


@pytest.mark.parametrize(
    "optimizer", [Adam(), LazyAdam(kernel="torch"), LazyAdam(kernel="auto")], ids=["adam", "torch", "auto"]
)
def test_a_party_whose_gradient_is_withheld_does_not_learn_and_goes_on_afterwards(rng, optimizer):
    class Moody(Defense):
        """Refuses for the second party it meets, in the second round."""

        made = []

        def __init__(self):
            self.calls, self.refuses = 0, len(self.made) == 4  # label party, two senders, then a's and b's gradients
            self.made.append(self)

        def gradient(self, g, y, rng):
            self.calls += 1
            if self.refuses and self.calls == 2:
                raise WithheldError("not today")
            return g

    rows, wire = table(rng, parties=("a", "b")), LocalWire()
    split = session(rows, new_defense=Moody, wire=wire, optimizer=optimizer)
    assert split.round(rows, None).notes == ()
    wire.take_traffic()
    before = {party.name: party.predict(rows.features[party.name], rows.ids).tensors["f2"] for party in split.parties}
    transcript = Transcript(rows.ids, 0, 1, (0.5, 0.5))
    assert split.round(rows, transcript).notes == ("no gradient is sent to party b: not today",)
    after = {party.name: party.predict(rows.features[party.name], rows.ids).tensors["f2"] for party in split.parties}
    assert not torch.equal(before["a"], after["a"])
    assert torch.equal(before["b"], after["b"])
    assert ("label", "b", Kind.GRADIENT) not in wire.take_traffic()
    knows, rng = frozenset({Knowledge.GRADIENTS, Knowledge.EMBEDDINGS}), torch.Generator()
    assert not transcript.view("b", knows, rng).gradients
    assert (
        list(transcript.view("b", knows, rng).embeddings) == list(transcript.view("a", knows, rng).gradients) == ["f1", "f2"]
    )
    assert split.round(rows, None).notes == ()
    assert not torch.equal(after["b"], split.parties[1].predict(rows.features["b"], rows.ids).tensors["f2"])


def test_figures_name_the_party_the_layer_and_the_message(rng):
    class Counting(Defense):
        def __init__(self):
            self.seen = {"embedding": 0, "gradient": 0, "labels": 0}

        def embedding(self, h, rng):
            self.seen["embedding"] += 1
            return h

        def gradient(self, g, y, rng):
            self.seen["gradient"] += 1
            return g

        def labels(self, y, ids, logits, rng):
            self.seen["labels"] += 1
            return y

        def figures(self):
            return {name: count for name, count in self.seen.items() if count}

    rows = table(rng, parties=("a", "b"))
    split = session(rows, model=WideDeep(width=8, wide=True), new_defense=lambda: Chain({"counting": Counting()}))
    split.round(rows, None)
    split.predict(rows)  # which is not counted
    found = {(f.party, f.layer, f.message): dict(f.values) for f in split.figures()}
    places = [(party, layer) for party in "ab" for layer in ("f5", "wide")]
    assert found == {
        **{(*place, "embedding"): {"counting.embedding": 1} for place in places},
        **{(*place, "gradient"): {"counting.gradient": 1} for place in places},
        ("label", "", ""): {"counting.labels": 1},
    }
    assert split.messages_per_row == 2


def test_the_model_learns_through_the_wire(rng):
    rows = table(rng, rows=256)
    learnable = VerticalTable(rows.ids, rows.features, (rows.features["a"].numeric[:, 0] > 0.5).long(), 2)
    split = session(learnable, optimizer=Adam(lr=0.01))
    losses = [split.round(learnable, None).loss for _ in range(150)]
    assert losses[0] == pytest.approx(0.69, abs=0.15)
    assert losses[-1] < 0.1


def test_each_way_costs_a_float_a_coordinate(rng):
    rows, wire = table(rng, rows=10, parties=("a", "b")), LocalWire()
    split = session(rows, model=WideDeep(width=8, cut_width=3, wide=True), wire=wire)
    split.round(rows, None)
    traffic = wire.take_traffic()
    assert {k: (c.messages, c.bytes) for k, c in traffic.items()} == {
        (*route, kind): (1, 10 * (3 + 1) * 4)
        for p in "ab"
        for route, kind in (((p, "label"), Kind.EMBEDDING), (("label", p), Kind.GRADIENT))
    }


def test_an_attacker_of_either_seat_is_offered_what_it_could_really_have(rng):
    seated = session(table(rng, parties=("a", "b", "label")))
    assert seated.seats(Seat.NON_LABEL) == ("a", "b")
    assert seated.seats(Seat.LABEL) == ("label",)
    of_messages = {Knowledge.COMPRESSION, Knowledge.NOISE_MEAN}
    of_peers = {Knowledge.PEER_MODEL, Knowledge.QUERIES, Knowledge.AUXILIARY}
    assert Split().offers(Seat.NON_LABEL) == frozenset(Knowledge) - of_messages - of_peers - {Knowledge.UPDATES}
    assert Split().offers(Seat.LABEL) == {Knowledge.EMBEDDINGS, Knowledge.PRIOR} | of_messages | of_peers


def test_state_of_a_defense_is_kept_apart_for_each_party_and_layer(rng):
    class Count(Defense):
        made = []

        def __init__(self):
            self.shapes = set()
            self.made.append(self)

        def embedding(self, h, rng):
            self.shapes.add(("embedding", tuple(h.shape)))
            return h

        def gradient(self, g, y, rng):
            self.shapes.add(("gradient", tuple(g.shape)))
            return g

    rows = table(rng, parties=("a", "b"))
    setting_session = session(rows, model=WideDeep(bottom_layers=2, width=8, wide=True), new_defense=Count)
    for _ in range(2):
        setting_session.round(rows, None)
    assert sorted(len(d.shapes) for d in Count.made) == [0, *[1] * 8]  # 2 parties x (f2, wide) x 2 directions, and labels


def test_bf16_changes_products_alone_and_learns_as_well(rng):
    """Messages, weights and what attackers see stay float32; after an epoch the losses are those of float32, nearly."""
    from vflbench.data.synthetic import Synthetic

    data = Synthetic(rows=8000, vocabulary=300).load(rng)
    rows, losses = data.train.all(), {}
    for precision in ("float32", "bf16"):
        started = session(rows, precision=precision)
        seen = []
        for start in range(0, 7000, 100):
            transcript = Transcript(rows.ids[start : start + 100], 0, 0, (0.75, 0.25)) if start == 500 else None
            seen.append(started.round(rows.rows(slice(start, start + 100)), transcript).loss)
            if transcript is not None:
                view = transcript.view("a", frozenset({Knowledge.EMBEDDINGS, Knowledge.GRADIENTS}), rng)
                assert {t.dtype for t in [*view.embeddings.values(), *view.gradients.values()]} == {torch.float32}
        assert {w.dtype for w in weights(started)} == {torch.float32}
        assert started.predict(rows.rows(slice(0, 10))).dtype == torch.float32
        losses[precision] = seen
    assert losses["bf16"] != losses["float32"]
    assert sum(losses["bf16"][-20:]) == pytest.approx(sum(losses["float32"][-20:]), rel=0.02)


def test_models_and_answers_of_parties_are_told_where_they_are_wanted(rng):
    rows = table(rng, parties=("a", "b"))
    started = session(rows)
    plain, wanted = (Transcript(rows.ids, 0, 0, (0.5, 0.5), wanted=w) for w in (frozenset(), frozenset(Knowledge)))
    started.round(rows, plain)
    started.round(rows, wanted)
    everything = frozenset({Knowledge.PEER_MODEL, Knowledge.QUERIES, Knowledge.EMBEDDINGS})
    assert not plain.view("label", everything, rng).peer_models
    view = wanted.view("label", everything, rng)
    for party in ("a", "b"):
        block = rows.features[party]
        model = view.peer_models[party]
        assert (model.numeric, model.cardinalities) == (block.columns.numeric, block.columns.cardinalities)
        arrived = view.embeddings[f"{party}.f2"]
        torch.testing.assert_close(model.network(block.numeric, block.categorical)["f2"], arrived, rtol=0, atol=0)
        asked = view.queries[party](block.numeric, block.categorical, rng)
        assert set(asked) == {"f2"}
        torch.testing.assert_close(asked["f2"], arrived, rtol=0, atol=0)
