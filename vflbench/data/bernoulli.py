"""Batches of independent coin flips, as in published experiments on data reconstruction."""

from typing import Annotated, Any

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.binary import binary_table
from vflbench.data.table import RawTable
from vflbench.numerics.system import refuse_too_large
from vflbench.options import Columns, Fraction, Range, Rows, Steps, options


@options
class Bernoulli(Dataset):
    """Batches of `rows` binary rows. Each entry is 1 with probability `density`; the labels depend on the entries.

        x_ij ~ Bernoulli(density),   P(y_i = 1) = sigmoid(2 sum_j w_j (x_ij - density)),   w_j ~ N(0, 1)

    rows: rows of one private batch; `protocol=federated_lr` uses it where protocol.batch_size is auto.
    features: number of columns b1 .. bd. batches: number of batches for all participants and for testing together.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, section 5.
    """

    rows: Rows = 11
    features: Annotated[Columns, Range(1, 10**4)] = 20
    density: Fraction = 0.5
    batches: Steps = 20

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        refuse_too_large(self.rows * self.batches * self.features, 8, "the rows of all batches", "dataset.rows")
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=rng).item()))
        x = (draw.random((self.rows * self.batches, self.features)) < self.density).astype(np.float64)
        logits = 2 * (x - self.density) @ draw.standard_normal(self.features)
        labels = draw.random(len(x)) < 1 / (1 + np.exp(-logits))
        names = [f"b{j}" for j in range(1, self.features + 1)]
        return binary_table(names, x, labels.astype(np.int64)), {"batch_rows": self.rows}
