"""Torch modules of a user's own in place of bottoms and tops."""

import pytest
import torch
from support.builders import session, table, weights
from torch import nn

from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.models.base import Model, Top
from vflbench.models.optimizers import Sgd
from vflbench.models.torch import CUT
from vflbench.options import options
from vflbench.protocols.parties import classification_loss

FACTS = frozenset({Embeddings, Gradients})


class Numbers(nn.Sequential):
    """Takes one argument, the numeric columns, and returns one tensor."""

    def __init__(self, numeric, width=6):
        super().__init__(nn.Linear(numeric, 10), nn.Tanh(), nn.Linear(10, width))


class Both(nn.Module):
    """Takes numeric and categorical columns; returns layers, and a linear part where there is a width for it."""

    def __init__(self, numeric, cardinalities, outputs):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 3) for size in cardinalities)
        self.first, self.cut = nn.Linear(numeric + 3 * len(cardinalities), 9), nn.Linear(9, 5)
        self.wide = nn.Linear(numeric, outputs) if outputs else None

    def forward(self, numeric, categorical):
        vectors = [table(column.long()) for table, column in zip(self.tables, categorical.T, strict=True)]
        hidden = torch.relu(self.first(torch.cat([numeric, *vectors], 1)))
        layers = {"hidden": hidden, "embedding": self.cut(hidden)}
        return layers if self.wide is None else {**layers, "wide": self.wide(numeric)}


class Normed(nn.Module):
    def __init__(self, numeric):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(numeric, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x, *, scale=1.0):
        return self.inner(x) * scale


class Fixed(nn.Module):
    """Without parameters: there is nothing to learn."""

    def forward(self, *columns):
        numeric, categorical = columns
        return torch.cat([numeric, categorical.float()], 1)


class PairTop(nn.Module):
    """Returns activations and logits."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.hidden, self.output = nn.Linear(inputs, 7), nn.Linear(7, outputs)

    def forward(self, x):
        hidden = torch.relu(self.hidden(x))
        return {"top1": hidden}, self.output(hidden)


@options
class Own(Model):
    """bottom: (numeric, cardinalities, outputs) -> module. top: (inputs, outputs) -> module; None: the usual one."""

    make_bottom: object
    make_top: object = None
    top_layers: int = 1
    width: int = 8

    def bottom(self, numeric, cardinalities, outputs, rng):
        return self.make_bottom(len(numeric), cardinalities, outputs)

    def top(self, inputs, outputs, rng):
        return super().top(inputs, outputs, rng) if self.make_top is None else self.make_top(inputs, outputs)


MODELS = {
    "one argument": Own(make_bottom=lambda numeric, *_: Numbers(numeric)),
    "two arguments": Own(make_bottom=lambda numeric, sizes, _: Both(numeric, sizes, 0)),
    "wide": Own(make_bottom=Both),
    "linear top": Own(make_bottom=Both, make_top=nn.Linear),
    "top with activations": Own(make_bottom=lambda numeric, *_: Numbers(numeric), make_top=PairTop),
    "batch normalisation": Own(make_bottom=lambda numeric, *_: Normed(numeric), make_top=PairTop),
    "without parameters": Own(make_bottom=lambda *_: Fixed()),
    "dropout": Own(
        make_bottom=lambda numeric, *_: nn.Sequential(nn.Linear(numeric, 6), nn.Dropout(0.5)),
        make_top=lambda inputs, outputs: nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, outputs)),
    ),
}
WITH_CATEGORIES = {"two arguments", "wide", "linear top", "without parameters"}


def rows_for(name, rng, *, parties=("a", "b", "label"), classes=2):
    """A table of the columns that the model of that name takes."""
    rows = table(rng, parties=parties, classes=classes)
    if name in WITH_CATEGORIES:
        return rows
    columns = Columns(("I1", "I2"))
    empty = torch.empty(len(rows), 0, dtype=torch.int32)
    features = {party: Features(columns, block.numeric, empty) for party, block in rows.features.items()}
    return VerticalTable(rows.ids, features, rows.labels, rows.classes)


def test_training_in_parts_is_training_the_whole(rng):
    """Each module called as plain torch would call it, and back-propagated through as one network."""
    for name in set(MODELS) - {"dropout"}:
        for classes in (2, 3):
            rows = rows_for(name, rng, classes=classes)
            split, whole = (session(rows, model=MODELS[name], optimizer=Sgd(lr=0.5)) for _ in range(2))
            parties = {party.name: party.bottom for party in whole.parties} | {"label": whole.label_party.bottom}
            deep, logits = [], 0
            for party, bottom in parties.items():
                block = rows.features[party]
                taken = (block.numeric, block.categorical) if name in WITH_CATEGORIES else (block.numeric,)
                output = bottom.module(*taken)
                layers = output if isinstance(output, dict) else {CUT: output}
                deep.append(layers.get("embedding", layers.get(CUT)))
                logits = logits + layers.get("wide", 0)
            top = whole.label_party.top
            answer = top([torch.cat(deep, 1)], [])[1] if isinstance(top, Top) else top.module(torch.cat(deep, 1))
            logits = logits + (answer[1] if isinstance(answer, tuple) else answer)
            loss = classification_loss(logits, rows.labels)
            loss.backward()
            for party in (*whole.parties, whole.label_party):
                party.optimizer.step()
            assert split.round(rows.ids).training.loss == pytest.approx(loss.item(), rel=1e-6), name
            for ours, reference in zip(weights(split), weights(whole), strict=True):
                assert torch.allclose(ours, reference, atol=1e-6), name


def test_dropout_is_drawn_anew_in_each_round_and_goes_on_where_it_stood(rng):
    rows = rows_for("dropout", rng)
    split, other = (session(rows, model=MODELS["dropout"]) for _ in range(2))
    masks = [split.round(rows.ids, watch=FACTS).facts["a"][Embeddings].layers["cut"] == 0 for _ in range(2)]
    assert not torch.equal(*masks)
    assert 0.3 < masks[0].double().mean() < 0.7
    other.restore(split.state())
    for ours, theirs in zip(split.parties, other.parties, strict=True):
        theirs.bottom.rng.set_state(ours.bottom.rng.get_state())  # as `Generators` restores it
    other.label_party.top.rng.set_state(split.label_party.top.rng.get_state())
    other.label_party.bottom.rng.set_state(split.label_party.bottom.rng.get_state())
    assert split.round(rows.ids).training.loss == other.round(rows.ids).training.loss
    assert not (split.parties[0].predict(rows.ids).tensors["cut"] == 0).any()  # none is dropped
