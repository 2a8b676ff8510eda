"""Batches of independent coin flips, as in the published experiments on reconstruction."""

from typing import Any

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.binary import binary_table
from vflbench.data.encode import RawTable
from vflbench.options import Count, Fraction, options


@options
class Bernoulli(Dataset):
    """Binary batches of `rows` rows, each entry 1 with probability `density`, and labels that depend on them.

        x_ij ~ Bernoulli(density),   P(y_i = 1) = sigmoid(2 sum_j w_j (x_ij - density)),   w_j ~ N(0, 1)

    rows: of one private batch; `protocol=federated_lr` takes it for protocol.batch_size. features: columns b1 .. bd.
    batches: made altogether, for all participants and for testing.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, section 5.
    """

    rows: Count = 11
    features: Count = 20
    density: Fraction = 0.5
    batches: Count = 20

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        draw = np.random.default_rng(torch.randint(2**62, (), generator=rng).item())
        x = (draw.random((self.rows * self.batches, self.features)) < self.density).astype(np.float64)
        logits = 2 * (x - self.density) @ draw.standard_normal(self.features)
        labels = draw.random(len(x)) < 1 / (1 + np.exp(-logits))
        names = [f"b{j}" for j in range(1, self.features + 1)]
        return binary_table(names, x, labels.astype(np.int64)), {"batch_rows": self.rows}
