"""Wisconsin breast cancer, from scikit-learn."""

from typing import Any

import torch

from vflbench.data.base import Dataset
from vflbench.data.table import RawNumeric, RawTable, raw_table
from vflbench.options import options


@options
class BreastCancer(Dataset):
    """Wisconsin breast cancer: 569 rows, 30 numeric columns, class 1 (benign) 63 %. Part of scikit-learn.

    Source: Street, Wolberg and Mangasarian, "Nuclear feature extraction for breast tumor diagnosis", 1993.
    """

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        from sklearn.datasets import load_breast_cancer  # takes a second to import

        bunch = load_breast_cancer()
        data, labels = bunch.data[: self.rows], bunch.target[: self.rows]
        names = (str(name).replace(" ", "_") for name in bunch.feature_names)
        return raw_table(tuple(RawNumeric(name, data[:, j]) for j, name in enumerate(names)), labels), {}
