from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from vflbench.data.table import Columns, Features, TrainTest, VerticalTable


def split() -> TrainTest:
    """Four rows to train on and two to test; parties a and label; values all different from one another."""
    a, label = Columns(("I1", "I2"), ("C1",), (6,)), Columns((), ("C2",), (6,))

    def table(ids):
        block = Features(a, torch.stack([ids / 8, ids / 16], 1), ids.int()[:, None])
        own = Features(label, torch.empty(len(ids), 0), (5 - ids).int()[:, None])
        return VerticalTable(ids, {"a": block, "label": own}, ids % 2, 2)

    return TrainTest(table(torch.arange(4)), table(torch.arange(4, 6)), {"source": "made up"})


def tensors(tables: TrainTest) -> list[torch.Tensor]:
    parts = []
    for table in (tables.train, tables.test):
        parts += [table.ids, table.labels]
        parts += [tensor for block in table.features.values() for tensor in (block.numeric, block.categorical)]
    return parts


def with_train(tables: TrainTest, **changes) -> TrainTest:
    return replace(tables, train=replace(tables.train, **changes))


def test_equal_tables_have_equal_fingerprints_however_they_lie_in_memory():
    tables = split()
    block = tables.train.features["a"]
    transposed = replace(block, numeric=block.numeric.T.contiguous().T)
    assert not transposed.numeric.is_contiguous()
    turned = with_train(tables, features={**tables.train.features, "a": transposed})
    assert tables.fingerprint() == split().fingerprint() == turned.fingerprint()
    assert len(tables.fingerprint()) == 64


def test_changing_any_single_value_changes_the_fingerprint():
    fingerprints = [split().fingerprint()]
    for number, whole in enumerate(tensors(split())):
        for position in range(whole.numel()):
            changed = split()
            values = tensors(changed)[number].view(-1)
            values[position] = values[position].nextafter(torch.tensor(9.0)) if values.is_floating_point() else 7
            fingerprints.append(changed.fingerprint())
    assert len(fingerprints) == 1 + 6 * (1 + 1 + 2 + 1 + 1)  # rows x (id, label, two numeric, one and one categorical)
    assert len(set(fingerprints)) == len(fingerprints)


def test_the_fingerprint_tells_names_classes_order_and_split_apart():
    tables = split()
    train, (a, label) = tables.train, tables.train.features.values()
    renamed = replace(a, columns=replace(a.columns, numeric=("I1", "I3")))
    wider = replace(a, columns=replace(a.columns, cardinalities=(7,)))
    others = [
        with_train(tables, classes=3),
        with_train(tables, features={"a": renamed, "label": label}),
        with_train(tables, features={"a": wider, "label": label}),
        with_train(tables, features={"b": a, "label": label}),
        with_train(tables, features={"a": a}),
        replace(tables, train=train.rows(torch.tensor([1, 0, 2, 3]))),
        replace(tables, train=train.rows(slice(0, 3))),
        TrainTest(tables.test, tables.train),
    ]
    assert len({tables.fingerprint(), *(other.fingerprint() for other in others)}) == 9


def test_the_fingerprint_is_of_the_data_not_of_the_facts():
    assert replace(split(), facts={"path": "elsewhere"}).fingerprint() == split().fingerprint()


@pytest.mark.parametrize("index", [torch.tensor([3, 1]), slice(1, 3), torch.tensor([False, True, False, True])])
def test_choosing_rows_takes_them_from_every_block(index):
    table = split().train
    chosen = table.rows(index)
    assert torch.equal(chosen.ids, table.ids[index])
    assert torch.equal(chosen.labels, chosen.ids % 2)
    assert torch.equal(chosen.features["a"].numeric, torch.stack([chosen.ids / 8, chosen.ids / 16], 1))
    assert chosen.features["a"].categorical[:, 0].tolist() == chosen.ids.tolist()
    assert chosen.features["label"].categorical[:, 0].tolist() == (5 - chosen.ids).tolist()
    assert (chosen.classes, chosen.features["a"].columns) == (table.classes, table.features["a"].columns)


def test_the_label_party_is_no_non_label_party():
    assert split().train.non_label_parties == ("a",)


def test_positive_ratio_is_the_share_of_rows_outside_class_0():
    table = deepcopy(split().train)
    assert table.positive_ratio == 0.5
    assert replace(table, labels=torch.tensor([0, 1, 2, 3]), classes=4).positive_ratio == 0.75


def test_columns_are_counted_together():
    assert [len(block.columns) for block in split().train.features.values()] == [3, 1]
