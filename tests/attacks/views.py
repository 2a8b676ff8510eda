"""Views for tests of attacks, made of facts as the auditor makes them."""

import math

import torch
from torch import Tensor

from vflbench.attacks.base import MESSAGE_FACTS, Attack
from vflbench.data.rows import EncodedRows
from vflbench.data.table import VerticalTable
from vflbench.messages.facts import Auxiliary, BatchHints, ClassShares, Embeddings, Fact, Gradients, PartyFeatures
from vflbench.messages.threat import Threat, View


def view_of(threat: Threat, *facts: Fact, ids: Tensor | None = None, step: int | None = 0, epoch: int = 0) -> View:
    """What an attacker with this threat sees of these facts. ids: 0, 1, ... unless given."""
    if ids is None:
        ids = torch.arange(next(rows for rows in map(rows_in, facts) if rows is not None))
    return View("a", epoch, step, ids, torch.Generator().manual_seed(0), threat, {type(fact): fact for fact in facts})


def label_view(rows: VerticalTable, attack: Attack, started, known: Auxiliary | None = None, *facts: Fact):
    """What the label party sees of a round of this session. known: auxiliary rows. facts: in place of those of the round."""
    of_round = started.round(rows.ids, watch=attack.threat.knows).facts["label"]
    given = {Auxiliary: known or Auxiliary({}), **{type(fact): fact for fact in facts}}
    return View("label", 0, 0, rows.ids, torch.Generator().manual_seed(0), attack.threat, {**of_round, **given})


def auxiliary_of(rows: VerticalTable) -> Auxiliary:
    """All columns of another table, and its labels."""
    columns = {party: PartyFeatures(block.numeric, block.categorical) for party, block in rows.features.items()}
    return Auxiliary(columns, rows.labels)


def rows_in(fact: Fact) -> int | None:
    """The rows that a fact is about; None for a fact that is about no rows of a batch."""
    if isinstance(fact, Embeddings | Gradients):
        return len(next(iter(fact.layers.values())))
    return len(fact.numeric) if isinstance(fact, PartyFeatures) else None


def scores_of(attack: Attack, *facts: Fact, layer: str = "f1") -> Tensor:
    """The scores of one layer."""
    return attack.batch(view_of(attack.threat, *facts)).layers[layer]


def embeddings(h: Tensor) -> Embeddings:
    return Embeddings({"f1": h})


def gradients(g: Tensor) -> Gradients:
    return Gradients({"f1": g})


def positives(places: list[int]) -> BatchHints:
    return BatchHints(torch.tensor(places, dtype=torch.int64))


def shares(positive: float) -> ClassShares:
    """Of two classes."""
    return ClassShares((1 - positive, positive))


def digits(split: EncodedRows) -> VerticalTable:
    """All rows of a split, with their places as ids."""
    rows = split.all()
    return VerticalTable(torch.arange(len(rows)), rows.features, rows.labels, rows.classes)


def blobs(rng, sizes, gap=8.0, d=6):
    """(n, d) Gaussian clusters of these sizes, and which one each row is of."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return gap * torch.eye(len(sizes), d)[y] + torch.randn(len(y), d, generator=rng), y


def rings(rng, sizes):
    """Class k evenly on a circle of radius 1 + 2 k, of a plane in 8 dimensions."""
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    angle = torch.cat([2 * math.pi * (torch.arange(n) + torch.rand(n, generator=rng)) / n for n in sizes])
    plane = (1 + 2 * y)[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=rng)).Q
    return torch.nn.functional.pad(plane, (0, 6)) @ rotation + 0.03 * torch.randn(len(y), 8, generator=rng), y


def class_scores(x, known, kind, **options):
    """known: class shares, or a row of each class."""
    attack = kind(**options)
    return attack.batch(view_of(attack.threat, MESSAGE_FACTS[attack.message]({"f1": x}), known)).layers.get("f1")
