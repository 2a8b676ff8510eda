from collections import defaultdict
from functools import partial

import pytest
import torch
from support.builders import TappedWire, session, table, weights

from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import LabelDefense, NonLabelDefense, WithheldError
from vflbench.defenses.chain import Chain
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.quantize import Quantize
from vflbench.messages.facts import Embeddings, Gradients, LocalModel, Predictions, Queries, SummedGradients
from vflbench.messages.threat import Role
from vflbench.messages.wire import Kind, Wire
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.optimizers import Adam
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
    shown = defaultdict(list)

    class Tattle(BothDefense):
        """Zeroes what crosses, flips labels and penalises; what it was shown is kept."""

        def embedding(self, h, context):
            shown["embedding"].append(context)
            return torch.zeros_like(h)

        def received(self, g, h, context):
            shown["received"].append(context)
            assert (g == 0).all()  # what came
            assert (h != 0).any()  # the activations, before they were zeroed
            return g

        def labels(self, y, logits, context):
            shown["labels"].append(context)
            assert torch.equal(y, rows.labels)
            return 1 - y

        def penalty(self, embeddings, y):
            shown["penalty"].append(y.clone())
            return 10.0 + 0.0 * sum(h.sum() for h in embeddings)

        def gradient(self, g, y, context):
            shown["gradient"].append(context)
            assert torch.equal(y, 1 - rows.labels)
            return torch.zeros_like(g)

    rows, carried = table(rng, parties=("a", "b")), []
    split = session(rows, defenses=(Tattle(),), wire=TappedWire(carried.append))
    bottoms = [p.clone() for party in split.parties for p in party.bottom.parameters()]
    done = split.round(rows.ids, epoch=2)
    counts = {name: len(calls) for name, calls in shown.items()}
    assert counts == {"embedding": 2, "labels": 1, "penalty": 1, "gradient": 2, "received": 2}
    assert list(counts) == ["embedding", "labels", "penalty", "gradient", "received"]
    for party, context in zip("ab", shown["embedding"], strict=True):
        assert torch.equal(context.columns.numeric, rows.features[party].numeric)
    for labels in (*shown["penalty"], done.training.labels):
        assert torch.equal(labels, 1 - rows.labels)
    for context in shown["embedding"] + shown["labels"] + shown["gradient"] + shown["received"]:
        assert torch.equal(context.ids, rows.ids)
        assert context.epoch == 2
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
