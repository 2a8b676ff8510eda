import torch

from vflbench.messages.fact import Round
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, OwnModel, Updates
from vflbench.messages.message import Kind


def test_a_round_names_the_layers_of_a_partys_messages():
    embeddings = Embeddings({"f1": torch.zeros(3, 2), "f2": torch.zeros(3, 2)})
    facts = {
        "a": {OwnModel: OwnModel(dict), Embeddings: embeddings, Gradients: Gradients({"f2": torch.zeros(3, 2)})},
        "b": {OwnColumns: OwnColumns(torch.zeros(3, 1), torch.zeros(3, 0, dtype=torch.int32))},
        "c": {Updates: Updates(None, torch.zeros(2), torch.zeros(2), torch.zeros(2))},
    }
    round_ = Round(0, 0, torch.arange(3), facts=facts)
    assert round_.layers("a", Kind.EMBEDDING) == ("f1", "f2")
    assert round_.layers("a", Kind.GRADIENT) == ("f2",)
    assert round_.layers("a", None) == ("features",)
    for party, kind in (("b", Kind.GRADIENT), ("c", Kind.UPDATE), ("nobody", Kind.EMBEDDING)):
        assert round_.layers(party, kind) == (), party
