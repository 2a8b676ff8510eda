"""Shared embeddings: Algorithm 1 of Compressed-VFL, held against split learning and against code of its own."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from support.builders import session, setup_of, table, weights
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.defenses.base import NonLabelDefense
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.split_guard import SplitGuard
from vflbench.defenses.top_k import TopK
from vflbench.errors import UserError
from vflbench.messages import facts as kinds
from vflbench.messages.threat import Role
from vflbench.messages.wire import Kind, Wire
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import Mlp, WideDeep
from vflbench.models.optimizers import Adam, Sgd
from vflbench.protocols.adversaries.malicious_optimizer import MaliciousOptimizer
from vflbench.protocols.shared_embeddings import SharedEmbeddings
from vflbench.protocols.split import Split

PARTIES = (("a",), ("a", "b"), ("a", "b", "c", "d"), ("a", "b", "label"))
EVERYTHING = SharedEmbeddings().offers(Role.NON_LABEL) | SharedEmbeddings().offers(Role.LABEL)
SMALL = WideDeep(bottom_layers=2, top_layers=2, width=8, cut_width=5)


def batches(rows, rng, count=6, size=24) -> list[Tensor]:
    return [rows.ids[torch.randperm(len(rows), generator=rng)[:size]] for _ in range(count)]


@pytest.mark.slow
def test_one_step_without_compression_is_split_learning_to_the_bit(rng):
    """Whatever the optimiser, the parties, the linear part and the links: gradients computed at home are those sent."""
    optimizers = (Sgd(lr=0.5), Adam(lr=0.01), LazyAdam(lr=0.01, kernel="torch"), Sgd(lr=0.5))
    cases = zip(PARTIES, (False, True, True, False), (2, 3, 3, 2), optimizers, ("server", "direct") * 2, strict=True)
    for parties, wide, classes, optimizer, links in cases:
        rows = table(rng, parties=parties, classes=classes)
        steps = batches(rows, rng, count=3)
        model = WideDeep(bottom_layers=2, top_layers=2, width=8, cut_width=5, wide=wide)
        split = session(rows, model=model, optimizer=optimizer)
        shared = session(rows, model=model, optimizer=optimizer, protocol=SharedEmbeddings(links=links))
        start = weights(shared)
        losses = [(split.round(ids).training.loss, shared.round(ids).training.loss) for ids in steps]
        case = f"{parties}, wide={wide}, {classes} classes, {optimizer}, {links}"
        assert all(ours == theirs for ours, theirs in losses), case
        assert all(map(torch.equal, weights(split), weights(shared))), case
        assert not any(map(torch.equal, start, weights(shared))), case
        assert torch.equal(split.predict(rows.ids), shared.predict(rows.ids)), case


def relu_stack(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """W, b, W, b, ... of ReLU layers."""
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = torch.relu(x @ weight.T + bias)
    return x


def top(parameters: Sequence[Tensor], embeddings: Sequence[Tensor]) -> Tensor:
    return relu_stack(parameters[:-2], torch.cat(list(embeddings), dim=1)) @ parameters[-2].T + parameters[-1]


def loss_of(logits: Tensor, y: Tensor) -> Tensor:
    return (
        F.cross_entropy(logits, y) if logits.shape[1] > 1 else F.binary_cross_entropy_with_logits(logits[:, 0], y.double())
    )


def moved(parameters: Sequence[Tensor], loss: Tensor, lr: float) -> list[Tensor]:
    gradients = torch.autograd.grad(loss, parameters)
    return [(p - lr * g).detach().requires_grad_() for p, g in zip(parameters, gradients, strict=True)]


def doubles(module: nn.Module) -> list[Tensor]:
    return [p.detach().double().requires_grad_() for p in module.parameters()]


def kept_largest(h: Tensor, count: int) -> Tensor:
    """The `count` largest magnitudes of each row, the others 0."""
    least = h.abs().sort(dim=1, descending=True).values[:, count - 1 : count]
    return torch.where(h.abs() >= least, h, 0.0)


@pytest.mark.slow
def test_it_is_algorithm_1_written_by_hand_in_float64(rng):
    """Stale compressed embeddings and a stale top at the parties; stale embeddings, and a top of now, at the server."""
    lr = 0.3
    for classes, steps, keep in ((3, 1, None), (2, 3, None), (3, 4, 2)):
        names = ("a", "b", "c")
        rows = table(rng, rows=60, parties=names, classes=classes, numeric=3, sizes=())
        defense = () if keep is None else (TopK(fraction=keep / 6),)
        model = Mlp(bottom_layers=2, top_layers=1, width=7, cut_width=6)
        shared = session(
            rows, model=model, optimizer=Sgd(lr=lr), defenses=defense, protocol=SharedEmbeddings(local_steps=steps)
        )
        bottoms = {party.name: doubles(party.bottom) for party in shared.parties}
        server = doubles(shared.label_party.top)
        for ids in batches(rows, rng, count=5):
            x = {name: rows.features[name].numeric[ids].double() for name in names}
            y = rows.labels[ids]
            plain = {name: relu_stack(bottoms[name], x[name]).detach() for name in names}
            sent = {name: h if keep is None else kept_largest(h, keep) for name, h in plain.items()}
            stale = [p.detach() for p in server]
            for name in names:
                for _ in range(steps):
                    inputs = [relu_stack(bottoms[m], x[m]) if m == name else sent[m] for m in names]
                    bottoms[name] = moved(bottoms[name], loss_of(top(stale, inputs), y), lr)
            for _ in range(steps):
                server = moved(server, loss_of(top(server, list(sent.values())), y), lr)
            shared.round(ids)
        ours = [p for party in shared.parties for p in party.bottom.parameters()] + list(shared.label_party.top.parameters())
        theirs = [p for name in names for p in bottoms[name]] + server
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one.double(), other, atol=2e-5), (classes, steps, keep)


def test_bytes_of_each_link_are_those_counted_by_hand(rng):
    rows, n, width = table(rng, parties=("a", "b", "label")), 10, 5
    size = (3 * width * 8 + 8 + 8 * 8 + 8 + 8 + 1) * 4  # of a top over three embeddings: h1, h2 and one logit
    for links, compressed in product(("server", "direct"), (False, True)):
        wire = Wire()
        defenses = (Quantize(levels=4, range=[0.0, 1.0]),) if compressed else ()
        protocol = SharedEmbeddings(links=links, local_steps=3)
        session(rows, model=SMALL, wire=wire, defenses=defenses, protocol=protocol).round(rows.ids[:n])
        h = -(-n * width * 2 // 8) if compressed else n * width * 4
        passed_on = (2, 2 * h) if links == "server" else (1, h)  # the label party has an embedding of its own as well
        expected = {
            ("a", "label", Kind.EMBEDDING): (1, h),
            ("b", "label", Kind.EMBEDDING): (1, h),
            **{("label", p, Kind.EMBEDDING): passed_on for p in "ab"},
            **{("label", p, Kind.MODEL): (1, size) for p in "ab"},
        }
        if links == "direct":
            expected |= {("a", "b", Kind.EMBEDDING): (1, h), ("b", "a", Kind.EMBEDDING): (1, h)}
        assert {k: (c.messages, c.bytes) for k, c in wire.take_traffic().items()} == expected, (links, compressed)


def test_each_party_gets_what_the_others_sent_and_the_top_and_nothing_of_gradients(rng):
    rows = table(rng, parties=("a", "b", "label"))
    shared = session(rows, model=SMALL, defenses=(Quantize(levels=4, range=[0.0, 1.0]),), protocol=SharedEmbeddings())
    ids = rows.ids[:20]
    facts = shared.round(ids, watch=EVERYTHING | {kinds.Gradients, kinds.SummedGradients}).facts
    assert set(facts["label"]) == SharedEmbeddings().offers(Role.LABEL)  # all that is offered is there, and no gradients
    assert set(facts["a"]) == set(facts["b"]) == SharedEmbeddings().offers(Role.NON_LABEL)
    grid = torch.tensor([0, 1 / 3, 2 / 3, 1])
    for name, others in (("a", {"b", "label"}), ("b", {"a", "label"}), ("label", {"a", "b"})):
        known = facts[name]
        received = known[kinds.Embeddings].received
        assert set(received) == others == set(known[kinds.PeerModels].models) == set(known[kinds.Queries].answer)
        assert set(known[kinds.PeerArchitectures].peers) == others == set(known[kinds.Compression].encoded)
        for other in others:
            assert (received[other]["f2"][..., None] - grid).abs().min(dim=-1).values.max() < 1e-6
            columns = rows.features[other]
            asked = known[kinds.Queries].answer[other](columns.numeric[ids], columns.categorical[ids], rng)
            assert torch.equal(asked["f2"], received[other]["f2"])  # as it stood when it sent
        assert torch.equal(known[kinds.Labels].classes, rows.labels[ids])
        columns = known[kinds.PartyFeatures]
        assert torch.equal(columns.numeric, rows.features[name].numeric[ids])
        assert torch.allclose(known[kinds.LocalTop].logits(received, columns), known[kinds.Predictions].logits, atol=1e-5), (
            name
        )
    # a party knows its own embedding without compression, as a copy of its network at another party gives it
    a, of_a = rows.features["a"], facts["b"][kinds.PeerModels].models["a"]
    assert (of_a.numeric, of_a.cardinalities) == (a.columns.numeric, a.columns.cardinalities)
    plain = of_a.network(a.numeric[ids], a.categorical[ids])["f2"]
    assert torch.equal(facts["a"][kinds.Embeddings].layers["f2"], plain)
    between = shared.facts(ids, EVERYTHING)
    assert set(between["a"][kinds.PeerModels].models) == {"b", "label"}
    assert {kinds.Labels, kinds.LocalModel, kinds.LocalTop, kinds.PartyFeatures, kinds.Queries} <= set(between["a"])


def test_a_penalty_of_a_partys_own_is_learned_at_home_as_in_split_learning(rng):
    class Pull(NonLabelDefense):
        """Adds the gradient of |h|^2 to the one that it learns from."""

        def received(self, g, h, context):
            assert context.columns.numeric.shape == (20, 2)
            return g + 2 * h

    rows, moved_to = table(rng, parties=("a", "b")), []
    for protocol, defenses in ((Split(), (Pull(),)), (SharedEmbeddings(), (Pull(),)), (SharedEmbeddings(), ())):
        parties = session(rows, model=SMALL, defenses=defenses, optimizer=Sgd(lr=0.1), protocol=protocol)
        parties.round(rows.ids[:20])
        moved_to.append(weights(parties)[0])
    assert torch.equal(moved_to[0], moved_to[1])
    assert not torch.equal(moved_to[1], moved_to[2])


def test_what_has_no_place_is_refused(rng):
    rows = table(rng, parties=("a", "b"))
    for defense in (LabelDp(), TopK(message="gradients"), Quantize(message="gradients")):
        with pytest.raises(UserError, match="every party holds the labels"):
            session(rows, defenses=(defense,), protocol=SharedEmbeddings())
    with pytest.raises(UserError, match="judges the gradients"):
        session(rows, defenses=(SplitGuard(),), protocol=SharedEmbeddings())
    with pytest.raises(UserError, match="no gradient is sent") as refused:
        SharedEmbeddings().start(setup_of(rows, adversaries={"malicious_optimizer": MaliciousOptimizer(party="a")}))
    assert refused.value.key == "adversary"
    with pytest.raises(ValueError, match="local_steps"):
        SharedEmbeddings(local_steps=0)


def test_noise_on_the_label_partys_embedding_promises_nothing_where_the_top_tells_it(rng):
    rows = table(rng, parties=("a", "label"))
    sharing = session(rows, model=SMALL, defenses=(EmbeddingNoise(),), protocol=SharedEmbeddings())
    claims = {party: sent.releases[0][1] for (party, _), sent in sharing.claims().items()}
    assert claims["a"].epsilon is not None
    assert claims["label"].epsilon is None
    assert "the top" in claims["label"].reason
