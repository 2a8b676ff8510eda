import torch

from vflbench.messages.facts import OwnColumns, OwnModel
from vflbench.run.supply import as_vectors, remembered


def test_own_columns_as_vectors_have_inner_products_that_count_equal_categories():
    columns = OwnColumns(torch.tensor([[0.5], [0.0], [1.0]]), torch.tensor([[1, 3], [1, 5], [2, 3 + 8]]).int())
    vectors = as_vectors(columns)
    assert vectors.shape == (3, 1 + 2 * 8)
    assert (vectors @ vectors.T).tolist() == [[2.25, 1.0, 1.5], [1.0, 2.0, 0.0], [1.5, 0.0, 3.0]]  # 3 and 11 share a place


def test_columns_of_one_kind_alone():
    numbers = as_vectors(OwnColumns(torch.rand(4, 3), torch.empty(4, 0).int()))
    assert numbers.shape == (4, 3)
    assert as_vectors(OwnColumns(torch.empty(4, 0), torch.zeros(4, 2).int())).sum(1).tolist() == [2.0] * 4


def test_a_network_embeds_the_rows_of_the_end_once_and_attacks_may_change_what_they_get():
    calls = []

    def embed(ids):
        calls.append(len(ids))
        return {"f1": ids[:, None].double()}

    rows = torch.arange(5)
    parts = [rows, torch.arange(3, 9)]
    model = remembered({"a": {OwnModel: OwnModel(embed)}}, parts)["a"][OwnModel]
    model.embed(rows)["f1"].zero_()
    assert model.embed(rows.clone())["f1"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert model.embed(rows[:2])["f1"][:, 0].tolist() == [0, 1]
    assert calls == [5]
    mixed = torch.tensor([8, 1, 4, 20, 3])  # of both parts, the first counts; and of none
    assert model.embed(mixed)["f1"][:, 0].tolist() == mixed.tolist()
    assert calls == [5, 6, 1]
