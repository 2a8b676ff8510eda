"""Data sets that need no file: drawn ones, whose best possible AUC or law is known, and one of scikit-learn."""

import math
from typing import Annotated, Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import expit

from vflbench.data.base import Dataset
from vflbench.data.binary import binary_table
from vflbench.data.table import RawTable, raw_table
from vflbench.errors import UserError
from vflbench.numerics.system import refuse_too_large
from vflbench.options import Fraction, Ids, NonNegativeInt, Range, Rows, Steps, Units, options

_CALIBRATION_ROWS = 1 << 20
_EFFECT_DECAY = 0.8
"""Ratio of the weights of successive columns. A few columns carry most of the signal, as in click logs."""


@options
class Synthetic(Dataset):
    """Rows like those of Criteo, with a planted signal: numeric columns, and categories with Zipf-distributed ids.

        u_ij ~ U(0, 1),  x_ij = u_ij^3;   id_ij = floor((V_j + 1)^U(0, 1)) - 1, so P(id = k) is close to 1 / (k ln V_j)
        s_i = sum_j w_j sqrt(12) (u_ij - 1/2) + sum_j w_j effect_j[id_ij],   effect ~ N(0, 1),   w_j = 0.8^j
        P(y_i = 1) = eta_i = sigmoid(a s_i + b)

    a and b are solved for so that the mean of eta is `positive_ratio` and the AUC of eta, the Bayes AUC, is `bayes_auc`.
    The manifest and the terminal report the `bayes_auc` of the generated rows.

    rows: number of rows. numeric, categorical: number of columns I1, ... and C1, ... vocabulary: number of ids in all
    categorical columns together, divided as unevenly as in Criteo. bayes_auc: in (0.5, 1). positive_ratio: in (0, 1).
    """

    rows: Rows = 200_000
    numeric: Units = 13
    categorical: Units = 26
    vocabulary: Ids = 20_000
    bayes_auc: Annotated[Fraction, Range(0.5 + 1e-9, 1 - 1e-9)] = 0.8
    positive_ratio: Fraction = 0.25
    min_count: NonNegativeInt = 0

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        if self.numeric + self.categorical == 0:
            problem = "there must be at least one column; set dataset.numeric or dataset.categorical above 0"
            raise UserError(problem, key="dataset.numeric", value=0)
        refuse_too_large(self.rows * (self.numeric + self.categorical), 4, "the rows and columns", "dataset.rows")
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=rng).item()))
        weights = iter(_EFFECT_DECAY ** np.arange(self.numeric + self.categorical))
        numbers: dict[str, np.ndarray] = {}
        words: dict[str, tuple[np.ndarray, int]] = {}
        signal = np.zeros(self.rows)
        for j, size in enumerate(self._vocabulary_sizes(), 1):
            ids = _zipf(draw, size, self.rows)
            signal += next(weights) * draw.standard_normal(size)[ids]
            words[f"C{j}"] = ids, size
        for j in range(1, self.numeric + 1):
            u = draw.random(self.rows)
            signal += next(weights) * math.sqrt(12) * (u - 0.5)
            numbers[f"I{j}"] = u**3
        eta = self._probabilities(signal)
        labels = (draw.random(self.rows) < eta).astype(np.int8)
        return raw_table({**numbers, **words}, labels), {"bayes_auc": bayes_auc(eta)}

    def target_positive_ratio(self) -> float | None:
        return None  # the labels are drawn with this ratio

    def _vocabulary_sizes(self) -> list[int]:
        """Sizes that grow geometrically from 3 and add up to `vocabulary`."""
        if not self.categorical:
            return []
        if self.vocabulary < 3 * self.categorical:
            raise UserError(
                f"{self.categorical} categorical columns need at least 3 ids each, {3 * self.categorical} in all",
                key="dataset.vocabulary",
                value=self.vocabulary,
            )
        if self.categorical == 1:
            return [self.vocabulary]
        steps = np.arange(self.categorical) / (self.categorical - 1)
        growth = brentq(lambda t: 3 * np.exp(t * steps).sum() - self.vocabulary, 0.0, 40.0)
        sizes = np.floor(3 * np.exp(growth * steps) + 1e-9).astype(int)
        sizes[-1] += self.vocabulary - sizes.sum()
        # Odd positions first, so that large and small vocabularies occur among strong and weak columns.
        return [*sizes[1::2].tolist(), *sizes[::2].tolist()]

    def _probabilities(self, signal: np.ndarray) -> np.ndarray:
        """eta. Slope and intercept are solved for on at most 2^20 rows."""
        sample = signal[:_CALIBRATION_ROWS]
        if len(sample) < 2 or sample.min() == sample.max():
            return np.full(len(signal), self.positive_ratio)

        def intercept(a: float) -> float:
            bound = a * np.abs(sample).max() + 40
            return brentq(lambda b: expit(a * sample + b).mean() - self.positive_ratio, -bound, bound, xtol=1e-9)

        def auc_gap(log_a: float) -> float:
            a = math.exp(log_a) / sample.std()
            return bayes_auc(expit(a * sample + intercept(a))) - self.bayes_auc

        weakest, strongest = -12.0, 6.0
        if auc_gap(weakest) > 0 or auc_gap(strongest) < 0:
            problem = f"{len(signal)} rows with positive_ratio={self.positive_ratio} can't reach this AUC"
            raise UserError(problem, key="dataset.bayes_auc", value=self.bayes_auc)
        a = math.exp(brentq(auc_gap, weakest, strongest, xtol=1e-6)) / sample.std()
        return expit(a * signal + intercept(a))


def bayes_auc(eta: np.ndarray) -> float:
    """Expected AUC of the scores eta if each label is drawn as y_i ~ Bernoulli(eta_i). No score has a higher one.

        sum_(i != j) eta_i (1 - eta_j) ([eta_i > eta_j] + 1/2 [eta_i = eta_j]) / sum_(i != j) eta_i (1 - eta_j)

    eta: (n,) probabilities.
    """
    values, counts = np.unique(eta, return_counts=True)
    positives, negatives = values * counts, (1 - values) * counts
    won = (positives * (negatives.cumsum() - negatives / 2)).sum()
    with_itself = (eta * (1 - eta)).sum()
    if len(eta) < 2:
        return math.nan
    return float((won - with_itself / 2) / (positives.sum() * negatives.sum() - with_itself))


def _zipf(draw: np.random.Generator, size: int, rows: int) -> np.ndarray:
    """(rows,) ids in 0 .. size - 1 with P(id = k) = log((k + 2) / (k + 1)) / log(size + 1)."""
    ids = np.exp(draw.random(rows) * math.log(size + 1)).astype(np.int64) - 1
    return np.minimum(ids, size - 1).astype(np.int32)


@options
class Bernoulli(Dataset):
    """Batches of `rows` binary rows. Each entry is 1 with probability `density`; the labels depend on the entries.

        x_ij ~ Bernoulli(density),   P(y_i = 1) = sigmoid(2 sum_j w_j (x_ij - density)),   w_j ~ N(0, 1)

    rows: rows of one private batch; `protocol=federated_lr` uses it where protocol.batch_size is auto.
    features: number of columns b1 .. bd. batches: number of batches for all participants and for testing together.

    Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", 2019, section 5.
    """

    rows: Rows = 11
    features: Annotated[Units, Range(1, 10**4)] = 20
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
        return raw_table(dict(zip(names, data.T, strict=True)), labels), {}
