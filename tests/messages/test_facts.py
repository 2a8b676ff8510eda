"""Each kind of fact: the rows it is about, and copies that an attack may change."""

from dataclasses import fields

import torch
from torch import Tensor, nn

from vflbench.messages import facts
from vflbench.messages.codec import Codebook, Encoded, Grid

ROWS = 5


def columns(rng: torch.Generator) -> facts.PartyFeatures:
    return facts.PartyFeatures(torch.rand(ROWS, 2, generator=rng), torch.randint(9, (ROWS, 3), generator=rng).int())


def of_each_kind(rng: torch.Generator) -> list[facts.Fact]:
    def layer(width: int = 4) -> Tensor:
        return torch.randn(ROWS, width, generator=rng)

    words = Codebook(torch.randn(6, 2, generator=rng))
    encoded = {
        "f1": Encoded(4, torch.randint(3, (ROWS, 2), generator=rng), Grid.over(0.0, 1.0, 3), torch.tensor([[0, 2]] * ROWS)),
        "f2": Encoded(4, words.codes(layer()), words, announced=words.words.reshape(-1)),
    }
    theta = torch.randn(3, 7, generator=rng, dtype=torch.float64)
    return [
        facts.Embeddings({"f1": layer(), "f2": layer()}, {"b": {"f2": layer()}}),
        facts.Gradients({"f1": layer()}),
        facts.SummedGradients({"weight": layer(), "bias": torch.randn(4, generator=rng)}),
        facts.ClassShares((0.5, 0.25, 0.25)),
        facts.Known(torch.arange(3), torch.tensor([0, 1, 1])),
        facts.KnownColumn("b", "I1", torch.arange(3), torch.tensor([0, 2, 1]), 3),
        facts.BatchHints(torch.tensor([4, 1])),
        facts.ClassHints(torch.tensor([0, 3])),
        columns(rng),
        facts.LocalModel(lambda ids: {"f1": ids[:, None] + 0.5}),
        facts.PeerModels({"b": facts.PeerModel(nn.Linear(2, 3), ("I1", "I2"), ())}),
        facts.Queries({"b": lambda *columns: {"f1": columns[0]}}),
        facts.PeerArchitectures({"b": facts.Architecture(("I1", "I2"), (), lambda rng: rng)}),
        facts.PeerDecoders({"b": facts.PeerDecoder(nn.Linear(4, 2), ("f1",), torch.ones(4), 2, ())}),
        facts.Auxiliary({"b": columns(rng)}, torch.arange(ROWS)),
        facts.Compression({"b": encoded}),
        facts.NoiseMean({"b": {"f1": layer()}}),
        facts.Updates(facts.Rules(2, 0.1, "sum", 1, 4, facts.Schema((0, 1))), *theta),
        facts.Predictions(layer(1)),
        facts.Labels(torch.tensor([0, 1, 1, 0, 2])),
        facts.LocalTop(facts.TopNetworks(nn.Linear(2, 3))),
    ]


def subclasses(kind: type) -> set[type]:
    return {below for child in kind.__subclasses__() for below in {child, *subclasses(child)}}


def tensors(value: object) -> list[Tensor]:
    """All tensors within a fact, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, nn.Module):
        return list(value.parameters())
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors(part)]
    if hasattr(value, "__dataclass_fields__"):
        return [tensor for part in fields(value) for tensor in tensors(getattr(value, part.name))]
    return [tensor for part in value for tensor in tensors(part)] if isinstance(value, tuple) else []


def test_every_kind_of_fact_is_tested_here(rng):
    ours = {kind for kind in subclasses(facts.Fact) if kind.__module__.startswith("vflbench.")}
    assert {type(fact) for fact in of_each_kind(rng)} == ours
    assert len({kind.title for kind in ours} - {""}) == len(ours)


def test_facts_about_rows_follow_an_index_and_others_stay_whole(rng):
    index = torch.tensor([3, 0])
    about_rows = {facts.Embeddings, facts.Gradients, facts.PartyFeatures, facts.Compression}
    about_rows |= {facts.NoiseMean, facts.Predictions, facts.Labels}
    for fact in of_each_kind(rng):
        some = fact.rows(index)
        if type(fact) not in about_rows:
            assert some is fact
            continue
        assert type(some) is type(fact)
        for whole, part in zip(tensors(fact), tensors(some), strict=True):
            expected = whole[index] if len(whole) == ROWS else whole  # a codebook, and what announces it, has no rows
            assert torch.equal(part, expected), type(fact)
        for whole, part in zip(tensors(fact), tensors(fact.rows(index[:0])), strict=True):
            assert len(part) == 0 or len(whole) != ROWS, type(fact)


def test_copies_share_no_tensor(rng):
    for fact in of_each_kind(rng):
        copy = facts.copied(fact)
        assert type(copy) is type(fact)
        before = [tensor.detach().clone() for tensor in tensors(fact)]
        for tensor, same in zip(tensors(copy), before, strict=True):
            assert torch.equal(tensor, same), type(fact)
            with torch.no_grad():
                tensor.fill_(77)
        for tensor, same in zip(tensors(fact), before, strict=True):
            assert torch.equal(tensor, same), type(fact)
