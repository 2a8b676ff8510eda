"""Torch modules of a user's own: what they get, what is read of them, and what is refused."""
# ruff: noqa: ARG001, ARG005 - forwards that ignore what they get

import pytest
import torch
from support.builders import session, table, weights
from torch import nn
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients, LocalModel, PeerModels
from vflbench.models.base import Model
from vflbench.models.optimizers import Adam, Sgd
from vflbench.models.torch import Torch
from vflbench.options import options
from vflbench.protocols.parties import classification_loss

FACTS = frozenset({Embeddings, Gradients})


class Joined(nn.Module):
    """A top with a hidden layer, whose two-class logits are (n,)."""

    def __init__(self, inputs, outputs, hidden=6):
        super().__init__()
        self.first, self.last = nn.Linear(sum(inputs), hidden), nn.Linear(hidden, outputs)

    def forward(self, embeddings):
        logits = self.last(torch.relu(self.first(torch.cat(embeddings, dim=1))))
        return logits.squeeze(1)


class Plain(nn.Module):
    def __init__(self, inputs, dropout=0.0):
        super().__init__()
        act = nn.Dropout(dropout, inplace=True) if dropout else nn.ReLU()
        self.net = nn.Sequential(nn.Linear(inputs, 8), act, nn.Dropout(0), nn.Linear(8, 5))

    def forward(self, x):
        return self.net(x)


class InPlace(nn.Module):
    """Every way of changing an activation after its layer has put it out; one ReLU is called twice."""

    def __init__(self, inputs):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(inputs, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.act(self.a(x))
        h = self.act(self.b(h))
        y = self.c(h)
        y += 1
        return F.relu_(y)

    def reference(self, x):
        layers = {"a": self.a(x)}
        layers["b"] = self.b(F.relu(layers["a"]))
        layers["act"] = F.relu(layers["b"])
        layers["c"] = self.c(layers["act"])
        layers["cut"] = F.relu(layers["c"] + 1)
        return layers


class Memory(nn.Module):
    """A sequence of numbers; the layer's output is a tuple, of which only the last state goes on."""

    def __init__(self, input_size):
        super().__init__()
        self.lstm, self.norm = nn.LSTM(input_size, 3, batch_first=True), nn.LayerNorm(3)
        self.out = nn.Linear(3, 4)

    def forward(self, x):
        _, (h, _) = self.lstm(x)
        return self.out(self.norm(h[-1]))

    def reference(self, x):
        sequence, (h, _) = self.lstm(x)
        layers = {"lstm": sequence.flatten(1), "norm": self.norm(h[-1])}
        return layers | {"cut": self.out(layers["norm"])}


class Pixels(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(in_channels, 2, 3), nn.BatchNorm2d(2), nn.LazyLinear(3)
        self.flat = nn.Flatten()

    def forward(self, x):
        return torch.tanh(self.out(self.flat(self.norm(self.conv(x)))))

    def reference(self, x):
        layers = {"conv": self.conv(x)}
        layers["norm"] = self.norm(layers["conv"])
        layers["out"] = self.out(layers["norm"].flatten(1))
        return layers | {"cut": torch.tanh(layers["out"])}


def numeric_table(rng, columns=8):
    return table(rng, rows=40, parties=("a", "b"), numeric=columns, sizes=())


def pair(bottom, /, **options):
    return Torch(**{"bottom": bottom, "top": Joined, **options})


@pytest.mark.parametrize(
    ("bottom", "shape"),
    [(InPlace, None), (Memory, [-1, 2]), (Pixels, [1, 4, -1])],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_layers_and_their_gradients_are_those_of_the_module_in_plain_torch(rng, bottom, shape):
    """The tensor that is read is the one that flows on, whatever is done to it in place."""
    rows = numeric_table(rng, 16)
    split = session(rows, model=pair(bottom, shape=shape), optimizer=Sgd(lr=0.1))
    twin = session(rows, model=pair(bottom, shape=shape), optimizer=Sgd(lr=0.1))
    for _ in range(3):
        layers = {}
        for party in twin.parties:
            x = rows.features[party.name].numeric
            layers[party.name] = party.bottom.module.reference(x if shape is None else x.reshape(len(x), *shape))
            for values in layers[party.name].values():
                values.retain_grad()
        logits = twin.label_party.top.module([layers[party]["cut"] for party in layers])
        loss = classification_loss(logits[:, None], rows.labels)
        loss.backward()
        for party in (*twin.parties, twin.label_party):
            party.optimizer.step()
            party.optimizer.zero_grad()
        done = split.round(rows.ids, watch=FACTS)
        assert done.training.loss == pytest.approx(loss.item(), rel=1e-5)
        for party, expected in layers.items():
            facts = done.facts[party]
            assert list(facts[Embeddings].layers) == list(expected) == list(split.layers()[party])
            for layer, values in expected.items():
                assert torch.allclose(facts[Embeddings].layers[layer], values.flatten(1), atol=1e-6), layer
                if values.grad is None:
                    assert layer == "lstm"
                    assert layer not in facts[Gradients].layers  # a branch that nothing reads
                else:
                    assert torch.allclose(facts[Gradients].layers[layer], values.grad.flatten(1), atol=1e-7), layer
    for ours, reference in zip(weights(split), weights(twin), strict=True):
        assert torch.allclose(ours, reference, atol=1e-6)


def test_which_layers_are_read(rng):
    rows = numeric_table(rng)
    assert layers_of(rows, pair(Plain)) == (["net.0", "net.1", "cut"], ["top.first"])  # no dropout: its input again
    assert layers_of(rows, pair(Plain, layers=["net.3", "net.0"])) == (["net.0", "net.3", "cut"], [])
    assert layers_of(rows, pair(Plain, layers=["top.last"])) == (["cut"], ["top.last"])
    assert layers_of(rows, pair(Plain, layers=[])) == (["cut"], [])
    named = of(lambda self, x: {"zeta": (h := torch.tanh(self.layer(x))), "alpha": 2 * h})
    assert layers_of(rows, pair(named)) == (["zeta", "alpha"], ["top.first"])
    assert layers_of(rows, pair(named, layers=["layer"])) == (["layer", "zeta", "alpha"], [])
    split = session(rows, model=pair(named))
    assert split.cut_layers() == {"a": ("alpha",), "b": ("alpha",)}
    facts = split.round(rows.ids, watch=FACTS).facts["a"]
    assert list(facts[Gradients].layers) == ["zeta", "alpha"]  # the cut is last, and not sorted by its name


def layers_of(rows, model):
    layers = session(rows, model=model).layers()
    return list(layers["a"]), list(layers["label"])


def test_constructors_get_the_widths_that_the_options_leave_out(rng):
    seen = []

    class Asks(nn.Linear):
        def __init__(self, inputs, in_features, input_shape, cardinalities, *, width=3):
            super().__init__(in_features, width)
            seen.append((inputs, in_features, input_shape, cardinalities, width))

    class AsksToo(nn.Linear):
        def __init__(self, inputs, in_features, outputs=99):
            super().__init__(in_features, outputs)
            seen.append((inputs, in_features, outputs))

        def forward(self, embeddings):
            return super().forward(torch.cat(embeddings, 1))

    rows = table(rng, parties=("a", "label", "b"), classes=3)
    session(rows, model=Torch(bottom=Asks, top=AsksToo, bottom_options={"width": 4}))
    assert seen == [*[(10, 10, (10,), [5, 7], 4)] * 3, ([4, 4, 4], 12, 3)]


class Ids(nn.Module):
    def __init__(self, inputs, cardinalities):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 3) for size in cardinalities)
        self.out = nn.Linear(inputs + 3 * len(cardinalities), 4)

    def forward(self, x, ids):
        return self.out(torch.cat([x, *(table(ids[:, j]) for j, table in enumerate(self.tables))], 1))


def test_categories(rng):
    rows = table(rng, parties=("a", "label"))
    for changes, inputs in (({}, 10), ({"embedding_dim": 2}, 6), ({"categories": "codes"}, 4)):
        split = session(rows, model=pair(Plain, **changes))
        assert split.parties[0].bottom.module.net[0].in_features == inputs
        split.round(rows.ids)
    codes = session(rows, model=pair(nn.Identity, categories="codes"))
    block = rows.features["a"]
    expected = torch.cat([block.numeric, block.categorical.float()], 1)
    assert torch.equal(codes.parties[0].predict(rows.ids).tensors["cut"], expected)
    codes.round(rows.ids)  # without parameters, there is nothing to learn
    session(rows, model=pair(Ids, categories="ids")).round(rows.ids)
    session(numeric_table(rng), model=pair(Ids, categories="ids")).round(torch.arange(9))
    with pytest.raises(UserError, match=r"^model.categories=refuse: a party holds 2 categorical columns"):
        session(rows, model=pair(Plain, categories="refuse"))
    session(numeric_table(rng), model=pair(Plain, categories="refuse"))


def test_initialisation_comes_from_the_partys_generator_and_lazy_layers_too(rng):
    rows = numeric_table(rng, 9)

    def built(of_torch, seed=0, columns=9):
        torch.manual_seed(of_torch)
        before = torch.random.get_rng_state()
        split = session(rows, model=pair(Pixels, shape=[1, 3, 3]), seed=seed)
        assert torch.equal(torch.random.get_rng_state(), before)
        return split

    first, again, other = built(1), built(2), built(1, seed=1)
    assert all(map(torch.equal, weights(first), weights(again)))
    assert not any(map(torch.equal, weights(first)[:1], weights(other)[:1]))
    a, b = (party.bottom.module for party in first.parties)
    assert a.out.weight.shape == (3, 2)
    assert not torch.equal(a.out.weight, b.out.weight)


def test_state_is_restored_whole(rng):
    """Running means of a normalisation, weights of lazy layers, an embedded table."""
    rows, model = table(rng, numeric=8), pair(Pixels, shape=[1, 4, 4])
    split, other = (session(rows, model=model, optimizer=Adam(lr=0.01), seed=seed) for seed in (0, 1))
    for _ in range(3):
        split.round(rows.ids)
    other.restore(split.state())
    assert torch.equal(split.predict(rows.ids), other.predict(rows.ids))
    assert split.round(rows.ids).training.loss == other.round(rows.ids).training.loss
    assert all(map(torch.equal, weights(split), weights(other)))


def test_a_copy_of_the_bottom_is_differentiable_in_columns_and_vectors(rng):
    rows = table(rng)
    split = session(rows, model=pair(Plain))
    peer = split.round(rows.ids, watch=frozenset({PeerModels})).facts["label"][PeerModels].models["a"].network
    block = rows.features["a"]
    vectors = torch.stack([t[block.categorical[:, j]] for j, t in enumerate(peer.tables())], 1).requires_grad_()
    numeric = block.numeric.clone().requires_grad_()
    layers = peer.from_vectors(numeric, vectors)
    assert {name: values.shape[1] for name, values in layers.items()} == {"net.0": 8, "net.1": 8, "cut": 5}
    assert torch.allclose(layers["cut"], peer(block.numeric, block.categorical)["cut"])
    layers["cut"].sum().backward()
    assert (vectors.grad != 0).any()
    assert (numeric.grad != 0).any()
    assert all(parameter.grad is None for parameter in peer.parameters())


def test_bfloat16(rng):
    rows = table(rng, parties=("a", "b"))
    split, full = (session(rows, model=pair(InPlace), precision=precision) for precision in ("bf16", "float32"))
    exact = full.round(rows.ids, watch=FACTS).facts["a"]
    facts = split.round(rows.ids, watch=FACTS).facts["a"]
    assert set(facts[Gradients].layers) == set(exact[Gradients].layers)
    assert torch.allclose(facts[Embeddings].layers["cut"], exact[Embeddings].layers["cut"], atol=0.02)
    assert not torch.equal(facts[Embeddings].layers["cut"], exact[Embeddings].layers["cut"])
    assert {p.dtype for p in split.parties[0].bottom.parameters()} == {torch.float32}


def test_options_that_a_constructor_does_not_take_are_refused_before_anything_is_called():
    class Calls(nn.Module):
        def __init__(self, inputs, *, hidden):
            raise AssertionError

    for given, problem in {
        (("depth", 3),): r"unexpected keyword argument 'depth'|missing a required argument: 'hidden'",
        (("depth", 3), ("hidden", 1)): r"unexpected keyword argument 'depth'; .*Calls has inputs, hidden",
        (): r"missing a required .*'hidden'; .* only inputs, .* filled in",
    }.items():
        with pytest.raises(ValueError, match=problem):
            pair(Calls, bottom_options=dict(given))
    with pytest.raises(ValueError, match="one may be -1"):
        pair(Plain, shape=[-1, -1])


def of(forward):
    """A bottom with a linear layer and this forward(self, x)."""
    return type("Odd", (Odd,), {"forward": forward})


class Odd(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.layer = nn.Linear(inputs, 4)


def top(forward):
    return type("OddTop", (OddTop,), {"forward": forward})


class OddTop(nn.Module):
    def __init__(self, in_features, outputs):
        super().__init__()
        self.layer = nn.Linear(in_features, outputs)


class Whole(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)


class NoSuper(nn.Module):
    def __init__(self, inputs):
        self.size = inputs


class UnusedLazy(Plain):
    def __init__(self, inputs):
        super().__init__(inputs)
        self.lazy = nn.LazyLinear(2)


WANTED = r"must return the embedding \(rows, d\), or a dict of layers .*"


def keeps_a_generator(self, x):
    self.rows = (row for row in x)
    return self.layer(x)


def square_in_place(self, x):
    h = torch.sigmoid(self.layer(x))
    h += 1
    return h.mul_(h)


BOTTOMS = [
    (of(lambda self, x: self.layer(x)[:, 0]), WANTED + r"for 2 rows it returned a tensor \(2,\)"),
    (of(lambda self, x: (self.layer(x), None)), WANTED + r"a tuple of 2 \(a tensor \(2, 4\), None\)"),
    (of(lambda self, x: {"wide": self.layer(x)[:, :1]}), WANTED + r"wide alone"),
    (of(lambda self, x: {"e": x, "wide": self.layer(x)}), r"its layer wide is added .* must be \(rows, 1\); it is \(2, 4\)"),
    (of(lambda self, x: self.layer(x).detach()), r"no gradient goes through its cut to its parameters"),
    (of(square_in_place), r"its backward pass fails: RuntimeError: .*inplace"),
    (of(lambda self, x: self.layer(x[:, 1:])), r"forward\(\(2, 8\) float32\) fails: .*shape.*parameter `inputs` gets it"),
    (NoSuper, r"NoSuper\(inputs=8\) fails: AttributeError"),
    (of(keeps_a_generator), r"copying it with copy.deepcopy fails: TypeError: .*generator"),
    (UnusedLazy, r"its parameter lazy.weight has no size, because its forward never calls the layer"),
]
TOPS = [
    (top(lambda self, e: self.layer(e)), r"with the list \[\(2, 5\) float32, \(2, 5\) float32\] fails: .*torch.cat\(emb"),
    (
        top(lambda self, e: torch.cat(e, 1)),
        r"logits of two classes, \(2, 1\) or \(2,\) for 2 rows; it returned a tensor \(2, 10\)",
    ),
    (top(lambda self, e: self.layer(torch.cat(e, 1).detach())), r"no gradient of the logits reaches the embeddings"),
    (Whole, r"Whole\(inputs=\[5, 5\], outputs=1\) fails: .*in_features their sum"),
]


def test_a_module_that_does_not_fit_is_refused_in_one_paragraph(rng):
    rows = numeric_table(rng)
    cases = [(pair(cls), "model.bottom", problem) for cls, problem in BOTTOMS]
    cases += [(pair(Plain, top=cls), "model.top", problem) for cls, problem in TOPS]
    cases += [
        (pair(Plain, shape=[3, 3]), "model.shape", r"a row of a party's x has 8 numbers, which don't fill this shape"),
        (pair(Plain, shape="pixels"), "model.shape", "aren't the pixels of one rectangle"),
        (pair(Plain, layers=["net.9"]), "model.layers=net.9", "no such submodule; there are net, net.0"),
        (pair(Plain, layers=["top.body"]), "model.layers=top.body", "no such submodule; there are first, last"),
        (pair(UnusedLazy, layers=["lazy"]), "model.bottom", "has no size"),
    ]
    for model, key, problem in cases:
        with pytest.raises(UserError, match=problem) as refused:
            session(rows, model=model)
        text = str(refused.value)
        assert "\n" not in text
        assert text.startswith(key), text
    split = session(rows, model=pair(of(lambda self, x: self.layer(x)[:, : 4 if self.training else 2])))
    with pytest.raises(UserError, match=r"had the widths .*'cut': 2} when .*, and now have .*'cut': 4}"):
        split.round(rows.ids)


def test_predictions_and_watching_change_nothing(rng):
    rows, model = numeric_table(rng), pair(Plain, bottom_options={"dropout": 0.5})
    alone, busy = (session(rows, model=model, optimizer=Adam(lr=0.04)) for _ in range(2))
    for _ in range(4):
        alone.round(rows.ids)
        busy.predict(rows.ids)
        busy.parties[0].activations_of(rows.ids)
        busy.round(rows.ids, watch=FACTS | {LocalModel, PeerModels})
    assert all(map(torch.equal, weights(alone), weights(busy)))


class Both(nn.Module):
    """Takes numeric and categorical columns; returns layers, and a linear part."""

    def __init__(self, numeric, cardinalities, outputs):
        super().__init__()
        self.first, self.cut, self.wide = Ids(numeric, cardinalities), nn.Linear(4, 5), nn.Linear(numeric, outputs)

    def forward(self, numeric, categorical):
        hidden = torch.relu(self.first(numeric, categorical))
        return {"hidden": hidden, "embedding": self.cut(hidden), "wide": self.wide(numeric)}


class PairTop(Joined):
    """Gets embeddings side by side; returns activations and logits."""

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return {"top1": hidden}, self.last(hidden)


@options
class Own(Model):
    """make_bottom: (numeric, cardinalities, outputs) -> module. make_top: (inputs, outputs) -> module."""

    make_bottom: object = Both
    make_top: object = lambda inputs, outputs: PairTop([inputs], outputs)

    def bottom(self, numeric, cardinalities, outputs, rng):
        return self.make_bottom(len(numeric), cardinalities, outputs)

    def top(self, inputs, outputs, rng):
        return self.make_top(inputs, outputs)


def test_training_a_model_of_ones_own_in_parts_is_training_the_whole(rng):
    """Each module called as plain torch would call it, and back-propagated through as one network."""
    rows = table(rng, parties=("a", "b", "label"), classes=3)
    split, whole = (session(rows, model=Own(), optimizer=Sgd(lr=0.5)) for _ in range(2))
    bottoms = [*(party.bottom for party in whole.parties), whole.label_party.bottom]
    blocks = zip(bottoms, rows.features.values(), strict=True)
    layers = [bottom.module(block.numeric, block.categorical) for bottom, block in blocks]
    _, deep = whole.label_party.top.module(torch.cat([of_party["embedding"] for of_party in layers], 1))
    loss = classification_loss(deep + sum(of_party["wide"] for of_party in layers), rows.labels)
    loss.backward()
    for party in (*whole.parties, whole.label_party):
        party.optimizer.step()
    assert split.round(rows.ids).training.loss == pytest.approx(loss.item(), rel=1e-6)
    for ours, reference in zip(weights(split), weights(whole), strict=True):
        assert torch.allclose(ours, reference, atol=1e-6)


def test_dropout_is_drawn_anew_in_each_round_and_goes_on_where_it_stood(rng):
    model = Own(
        make_bottom=lambda numeric, *_: nn.Sequential(nn.Linear(numeric, 6), nn.Dropout(0.5)),
        make_top=lambda inputs, outputs: nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, outputs)),
    )
    rows = table(rng, parties=("a", "b", "label"), sizes=())
    split, other = (session(rows, model=model) for _ in range(2))
    watch = frozenset({Embeddings})
    masks = [split.round(rows.ids, watch=watch).facts["a"][Embeddings].layers["cut"] == 0 for _ in range(2)]
    assert not torch.equal(*masks)
    assert 0.3 < masks[0].double().mean() < 0.7
    other.restore(split.state())
    drawing = [[*(p.bottom for p in one.parties), one.label_party.top, one.label_party.bottom] for one in (split, other)]
    for ours, theirs in zip(*drawing, strict=True):
        theirs.rng.set_state(ours.rng.get_state())  # as `Generators` restores it
    assert split.round(rows.ids).training.loss == other.round(rows.ids).training.loss
    assert not (split.parties[0].predict(rows.ids).tensors["cut"] == 0).any()  # none is dropped
