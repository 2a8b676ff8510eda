"""Small raw files in the upstream formats, and what is loaded from them."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vflbench.data.clicklogs import AVAZU
from vflbench.data.rows import TrainTest
from vflbench.data.table import VerticalTable
from vflbench.errors import UserError


def criteo_line(label="0", integers=None, categories=None) -> str:
    """One row. integers, categories: values by 1-based column number; the others are filled in."""
    numbers = [str((integers or {}).get(i, i)) for i in range(1, 14)]
    words = [str((categories or {}).get(i, f"{i:08x}")) for i in range(1, 27)]
    return "\t".join([str(label), *numbers, *words])


def avazu_line(columns=AVAZU.columns, **values) -> str:
    filled = dict.fromkeys(AVAZU.columns, "7") | {"id": "10000169349117863715", "click": "0"} | values
    return ",".join(filled[name] for name in columns)


def write(path: Path, lines, *, end="\n", compress=False) -> str:
    content = (end.join(lines) + end).encode() if not isinstance(lines, bytes) else lines
    path.write_bytes(gzip.compress(content) if compress else content)
    return str(path)


def load(dataset, seed=0) -> TrainTest:
    """With all its rows in memory."""
    data = dataset.load(torch.Generator().manual_seed(seed))
    return replace(data, train=data.train.all(), test=data.test.all())


def all_rows(data: TrainTest) -> VerticalTable:
    """The rows for training, then those for testing."""
    return data.train.at(torch.cat([data.train.all().ids, data.test.all().ids]))


def error_of(dataset) -> str:
    """The message of the UserError that loading raises."""
    try:
        load(dataset)
    except UserError as error:
        return str(error)
    return "no error"


def refusal_of(dataset) -> str:
    """The message of the UserError that reading it raises: one printable paragraph."""
    with pytest.raises(UserError) as error:
        dataset.read(None)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1000
    return str(error.value)


def in_file_order(split, party="a"):
    """Numeric block, categorical block and labels, with the rows in the file's order."""
    ids = torch.cat([split.train.ids, split.test.ids])
    order = ids.argsort()
    blocks = [(t.features[party].numeric, t.features[party].categorical, t.labels) for t in (split.train, split.test)]
    return tuple(torch.cat(parts)[order] for parts in zip(*blocks, strict=True))
