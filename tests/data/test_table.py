import torch

from vflbench.data.table import Columns, Features, VerticalTable


def four() -> VerticalTable:
    """Four rows; parties a and label; values all different from one another."""
    a, label = Columns(("I1", "I2"), ("C1",), (6,)), Columns((), ("C2",), (6,))
    ids = torch.arange(4)
    block = Features(a, torch.stack([ids / 8, ids / 16], 1), ids.int()[:, None])
    own = Features(label, torch.empty(len(ids), 0), (5 - ids).int()[:, None])
    return VerticalTable(ids, {"a": block, "label": own}, ids % 2, 2)


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
