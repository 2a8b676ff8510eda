from copy import deepcopy
from dataclasses import replace

import torch

from vflbench.data.table import Columns, Features, VerticalTable, join, non_label_parties


def four() -> VerticalTable:
    """Four rows; parties a and label; values all different from one another."""
    a, label = Columns(("I1", "I2"), ("C1",), (6,)), Columns((), ("C2",), (6,))
    ids = torch.arange(4)
    block = Features(a, torch.stack([ids / 8, ids / 16], 1), ids.int()[:, None])
    own = Features(label, torch.empty(len(ids), 0), (5 - ids).int()[:, None])
    return VerticalTable(ids, {"a": block, "label": own}, ids % 2, 2)


def test_joined_rows_follow_one_another_in_every_block():
    table = four()
    turned = join([table.rows(slice(2, 4)), table.rows(slice(0, 0)), table.rows(torch.tensor([1, 0]))])
    expected = table.rows(torch.tensor([2, 3, 1, 0]))
    assert torch.equal(turned.ids, expected.ids)
    assert torch.equal(turned.labels, expected.labels)
    for party, block in expected.features.items():
        assert torch.equal(turned.features[party].numeric, block.numeric)
        assert torch.equal(turned.features[party].categorical, block.categorical)


def test_choosing_rows_takes_them_from_every_block():
    table = four()
    for index in (torch.tensor([3, 1]), slice(1, 3), torch.tensor([False, True, False, True])):
        chosen = table.rows(index)
        assert torch.equal(chosen.ids, table.ids[index]), index
        assert torch.equal(chosen.labels, chosen.ids % 2)
        assert torch.equal(chosen.features["a"].numeric, torch.stack([chosen.ids / 8, chosen.ids / 16], 1))
        assert chosen.features["a"].categorical[:, 0].tolist() == chosen.ids.tolist()
        assert chosen.features["label"].categorical[:, 0].tolist() == (5 - chosen.ids).tolist()
        assert (chosen.classes, chosen.features["a"].columns) == (table.classes, table.features["a"].columns)


def test_the_label_party_is_no_non_label_party():
    assert non_label_parties(four().columns) == ("a",)


def test_positive_ratio_is_the_share_of_rows_outside_class_0():
    table = deepcopy(four())
    assert table.positive_ratio == 0.5
    assert replace(table, labels=torch.tensor([0, 1, 2, 3]), classes=4).positive_ratio == 0.75


def test_columns_are_counted_together():
    assert [len(columns) for columns in four().columns.values()] == [3, 1]
