"""Torch modules of a user's own in place of bottoms and tops."""

import pytest
import torch
from support.builders import session, table, weights
from torch import nn

from vflbench.messages.facts import Embeddings
from vflbench.models.base import Model, Top
from vflbench.models.optimizers import Sgd
from vflbench.models.torch import CUT
from vflbench.options import options
from vflbench.protocols.parties import classification_loss

PARTIES = ("a", "b", "label")


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


def numbers(numeric, *_):
    """Takes one argument, the numeric columns, and returns one tensor."""
    return nn.Sequential(nn.Linear(numeric, 10), nn.Tanh(), nn.Linear(10, 6))


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        pytest.param(Own(make_bottom=numbers, make_top=PairTop), (), id="one argument, and a top with activations"),
        pytest.param(Own(make_bottom=lambda *of: Both(*of[:2], 0), make_top=nn.Linear), (5, 7), id="layers, linear top"),
        pytest.param(Own(make_bottom=Both), (5, 7), id="wide"),
        pytest.param(Own(make_bottom=lambda *_: Fixed()), (5, 7), id="without parameters"),
    ],
)
@pytest.mark.parametrize("classes", [2, 3])
def test_training_in_parts_is_training_the_whole(rng, model, sizes, classes):
    """Each module called as plain torch would call it, and back-propagated through as one network."""
    rows = table(rng, parties=PARTIES, classes=classes, sizes=sizes)
    split, whole = (session(rows, model=model, optimizer=Sgd(lr=0.5)) for _ in range(2))
    bottoms, deep, logits = [*(party.bottom for party in whole.parties), whole.label_party.bottom], [], 0
    for block, bottom in zip(rows.features.values(), bottoms, strict=True):
        output = bottom.module(*([block.numeric, block.categorical] if sizes else [block.numeric]))
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
    assert split.round(rows.ids).training.loss == pytest.approx(loss.item(), rel=1e-6)
    for ours, reference in zip(weights(split), weights(whole), strict=True):
        assert torch.allclose(ours, reference, atol=1e-6)


def test_dropout_is_drawn_anew_in_each_round_and_goes_on_where_it_stood(rng):
    model = Own(
        make_bottom=lambda numeric, *_: nn.Sequential(nn.Linear(numeric, 6), nn.Dropout(0.5)),
        make_top=lambda inputs, outputs: nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, outputs)),
    )
    rows = table(rng, parties=PARTIES, sizes=())
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
