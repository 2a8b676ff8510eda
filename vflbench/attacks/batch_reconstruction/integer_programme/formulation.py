"""The batch as unknowns of an integer programme, written once for every modelling language."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from typing import Any, Literal, Protocol

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram

Formulation = Literal["tight", "published"]


class ModellingLanguage(Protocol):
    """The operations that a modelling language must provide. PuLP and CP-SAT both write a constraint as x + y <= 1."""

    def binary(self, low: int = 0, high: int = 1) -> Any:
        """An unknown that is 0 or 1, between low and high."""
        ...

    def fraction(self) -> Any:
        """An unknown in [0, 1] that need not be declared integer: the constraints make it 0 or 1 where this matters."""
        ...

    def total(self, terms: Iterable[Any]) -> Any:
        """The sum of the terms."""
        ...

    def add(self, constraint: Any) -> None:
        """Add a constraint. Raises TimeoutError after the deadline: large programmes take long to write."""
        ...


@dataclass(frozen=True)
class Unknowns:
    """entries: the unknowns of X, m rows of d in the columns' given order. labels: those of y in {0, 1}, or None."""

    entries: list[list[Any]]
    labels: list[Any] | None

    @property
    def all(self) -> list[Any]:
        """Those of X row by row, then those of y."""
        return [entry for row in self.entries for entry in row] + (self.labels or [])


def write_programme(language: ModellingLanguage, gram: Gram, formulation: Formulation) -> Unknowns:
    """State that a batch of binary rows has this Gram matrix. gram: with at least one row and one column."""
    return tight(language, gram) if formulation == "tight" else published(language, gram)


def published(language: ModellingLanguage, gram: Gram) -> Unknowns:
    """The paper's programme: a product for every ordered pair of columns, and no order of the rows.

        sum_r x_ri = alpha_ii,   sum_r delta_rij = alpha_ij,   2 delta_rij <= x_ri + x_rj,   x_ri + x_rj - 1 <= delta_rij

    with x and delta binary. Its relaxation allows delta = 1/2 if one of two entries is 1, each batch has up to m! equivalent
    solutions, and every product occurs twice. The labels, if beta is known, are one more binary column y with

        sum_r x_ri y_r = (alpha_ii + beta_i) / 2          since beta_i = sum_r x_ri (2 y_r - 1).

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", section 4.
    """
    m, d = gram.rows, len(gram.alpha)
    entries = [[language.binary() for _ in range(d)] for _ in range(m)]
    for i in range(d):
        language.add(language.total(row[i] for row in entries) == int(gram.alpha[i, i]))
    labels, columns, common = _with_labels(language, entries, gram.alpha, gram.beta)
    for i, j in permutations(range(len(columns)), 2):
        products = [language.binary() for _ in range(m)]
        for one, other, both in zip(columns[i], columns[j], products, strict=True):
            language.add(2 * both <= one + other)
            language.add(one + other - 1 <= both)
        language.add(language.total(products) == int(common[i, j]))
    return Unknowns(entries, labels)


def tight(language: ModellingLanguage, gram: Gram) -> Unknowns:
    """The same batches, each once: the convex hull of each product, one product for each pair of columns, and rows in order.

        delta_rij <= x_ri,   delta_rij <= x_rj,   delta_rij >= x_ri + x_rj - 1          for i < j

    Columns nearest to half full come first, so that the order of the rows excludes most solutions. Rows are in falling
    lexicographic order, so alpha alone fixes the first two columns: alpha_01 rows begin with 11, alpha_00 - alpha_01 with
    10, and so on. Within these four groups each row r and the next one, s, are kept in order by marks f_rj. A row may set a
    mark where it is strictly greater; from there on the entries of both rows are free:

        f_rj <= x_rj,   f_rj <= 1 - x_sj,   x_rj + sum_(k<j) f_rk >= x_sj.

    If x is integer, the first column with x_rj < x_sj needs an earlier one with x_rk > x_sk, which is the lexicographic
    order. All coefficients are 0 and 1; weights 2^j over many columns would exceed the solver's tolerances.
    """
    order = half_full_first(gram)
    alpha = gram.alpha[np.ix_(order, order)]
    beta = None if gram.beta is None else gram.beta[order]
    groups = prefixes(alpha, gram.rows)
    entries = [
        [language.binary(bit, bit) for bit in prefix] + [language.binary() for _ in range(len(alpha) - len(prefix))]
        for prefix, count in groups
        for _ in range(count)
    ]
    for i in range(len(alpha)):
        language.add(language.total(row[i] for row in entries) == int(alpha[i, i]))
    labels, columns, common = _with_labels(language, entries, alpha, beta)
    for i, j in combinations(range(len(columns)), 2):
        products = [language.fraction() for _ in range(gram.rows)]
        for one, other, both in zip(columns[i], columns[j], products, strict=True):
            language.add(both <= one)
            language.add(both <= other)
            language.add(both >= one + other - 1)
        language.add(language.total(products) == int(common[i, j]))
    start = 0
    for prefix, count in groups:
        for row, following in pairwise(entries[start : start + count]):
            _in_falling_order(language, row[len(prefix) :], following[len(prefix) :])
        start += count
    place = np.argsort(order)  # back to the given order of the columns
    return Unknowns([[row[k] for k in place] for row in entries], labels)


def half_full_first(gram: Gram) -> np.ndarray:
    """(d,) columns, those with the number of ones nearest to m / 2 first: they split the rows most evenly."""
    return np.argsort(np.abs(2 * np.diagonal(gram.alpha) - gram.rows), kind="stable")


def prefixes(alpha: np.ndarray, rows: int) -> list[tuple[tuple[int, ...], int]]:
    """The first two columns (or the only one) of rows in falling order: each prefix, and the number of rows with it."""
    ones = int(alpha[0, 0])
    if len(alpha) == 1:
        return [((1,), ones), ((0,), rows - ones)]
    both, second = int(alpha[0, 1]), int(alpha[1, 1])
    return [((1, 1), both), ((1, 0), ones - both), ((0, 1), second - both), ((0, 0), rows - ones - second + both)]


def _with_labels(
    language: ModellingLanguage, entries: list[list[Any]], alpha: np.ndarray, beta: np.ndarray | None
) -> tuple[list[Any] | None, list[list[Any]], np.ndarray]:
    """The unknowns of the labels (or None), the columns of X and y, and the number of ones that each two of them share.

    The number of positives is not known: the last diagonal entry of the third result is 0 and unused.
    """
    columns = [list(column) for column in zip(*entries, strict=True)]
    if beta is None:
        return None, columns, alpha
    labels = [language.binary() for _ in entries]
    with_positives = (np.diagonal(alpha) + beta) // 2
    common = np.block([[alpha, with_positives[:, None]], [with_positives[None], np.zeros((1, 1), dtype=alpha.dtype)]])
    return labels, [*columns, labels], common


def _in_falling_order(language: ModellingLanguage, row: list[Any], following: list[Any]) -> None:
    """Keep two neighbouring rows in order; see `tight`."""
    marks: list[Any] = []
    for one, other in zip(row, following, strict=True):
        language.add(language.total([one, *marks]) >= other)
        mark = language.fraction()
        language.add(mark <= one)
        language.add(mark + other <= 1)
        marks.append(mark)
