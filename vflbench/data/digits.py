"""Handwritten digits, from scikit-learn."""

from typing import Any

import torch
from sklearn.datasets import load_digits

from vflbench.data.base import Dataset
from vflbench.data.encode import RawNumeric, RawTable, raw_table
from vflbench.options import options


@options
class Digits(Dataset):
    """Handwritten digits: 1,797 rows of 8 x 8 grey pixels, 10 classes; comes with scikit-learn, needs no file.

    Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        bunch = load_digits()
        data, labels = bunch.data[: self.rows], bunch.target[: self.rows]
        columns = tuple(RawNumeric(str(name), data[:, j]) for j, name in enumerate(bunch.feature_names))
        return raw_table(columns, labels, classes=10), {}
