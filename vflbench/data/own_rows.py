"""What one party reads of rows by id: from its readers nothing of another party's can be reached."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.data.encode import Encoding
from vflbench.data.raw import RawTable
from vflbench.data.table import Features


@dataclass(frozen=True)
class OwnColumnsReader:
    """ids (n,) -> a party's columns of these rows, in that order. raw: these columns alone. encoding: of this party alone.

    Raises KeyError for an id that no row has.
    """

    raw: RawTable
    encoding: Encoding
    party: str
    device: torch.device

    def __call__(self, ids: Tensor) -> Features:
        positions, back = rising(ids, len(self.raw))
        block = self.encoding(self.raw.take(positions))[self.party]
        return block.rows(back).to(self.device)


@dataclass(frozen=True)
class LabelReader:
    """ids (n,) -> the classes of these rows, in that order. labels: (n,) of all rows."""

    labels: Any
    device: torch.device

    def __call__(self, ids: Tensor) -> Tensor:
        positions, back = rising(ids, len(self.labels))
        return torch.from_numpy(self.labels[positions].astype(np.int64))[back].to(self.device)


def own_columns(raw: RawTable, encoding: Encoding, party: str, device: torch.device, *, most: int) -> OwnColumnsReader:
    """The reader of a party. most: rows up to which its columns are copied into memory even if the source is on disk."""
    numeric, categorical = encoding.positions(party)
    return OwnColumnsReader(raw.only(numeric, categorical, most=most), encoding.alone(party), party, device)


def own_labels(raw: RawTable, device: torch.device, *, most: int) -> LabelReader:
    """The reader of the label party's classes."""
    return LabelReader(raw.labels_alone(most=most), device)


def rising(ids: Tensor, rows: int) -> tuple[np.ndarray, Tensor]:
    """The positions of these ids, sorted, and where each id stands among them. Raises KeyError beyond `rows`."""
    positions = ids.cpu().numpy()
    if len(positions) and not 0 <= positions.min() <= positions.max() < rows:
        raise KeyError(f"{len(positions)} rows, among which some are not in this table")
    order = positions.argsort()
    return positions[order], torch.from_numpy(np.argsort(order))
