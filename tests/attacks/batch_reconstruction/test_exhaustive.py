"""Every small binary table, grouped by its Gram matrix: the enumeration returns exactly the group."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.enumeration import enumerate_batches
from vflbench.attacks.batch_reconstruction.gram import Gram, sort_rows


def tables(rows: int, columns: int) -> np.ndarray:
    """Every table of 0 and 1 up to the order of its rows. Returns (N, m, d) int64, rows in lexicographic order."""
    kinds = np.array(list(itertools.product((0, 1), repeat=columns)), dtype=np.int64).reshape(-1, columns)
    chosen = list(itertools.combinations_with_replacement(range(len(kinds)), rows))
    return kinds[np.array(chosen, dtype=np.int64).reshape(-1, rows)]


def groups(rows: int, columns: int) -> list[np.ndarray]:
    """The tables with the same alpha, for one alpha of each orbit under the order of the columns. Each (n, m, d)."""
    every = tables(rows, columns)
    alphas = np.einsum("nri,nrj->nij", every, every)
    weights = np.zeros((columns, columns), dtype=np.int64)
    for place, pair in enumerate(itertools.combinations_with_replacement(range(columns), 2)):
        weights[pair] = (rows + 1) ** place
    keys = (alphas * weights).sum((1, 2))
    least = keys.copy()
    for order in itertools.permutations(range(columns)):
        np.minimum(least, (alphas[:, order][:, :, order] * weights).sum((1, 2)), out=least)
    members = defaultdict(list)
    for index in np.flatnonzero(keys == least):
        members[int(keys[index])].append(index)
    return [every[indices] for indices in members.values()]


def fits(x: np.ndarray, beta: np.ndarray) -> bool:
    """Whether some labels of the batch have these sums, by trying all."""
    signs = np.array(list(itertools.product((-1, 1), repeat=len(x))), dtype=np.int64)
    return bool((signs @ x == beta).all(1).any())


def check(group: np.ndarray, order: np.ndarray, y: np.ndarray | None) -> None:
    """All of the group, and nothing else, with the columns in this order. y: labels of the first table."""
    group = group[:, :, order]
    gram = Gram.of(group[0], y)
    expected = {sort_rows(x).tobytes() for x in group if y is None or fits(x, gram.beta)}
    solutions = enumerate_batches(gram, time_limit=None, max_batches=len(expected))
    case = (group[0].tolist(), gram.beta)
    assert (solutions.status, solutions.complete) == ("proved", True), (case, solutions.note)
    assert len(solutions.batches) == len(expected), case
    assert {x.tobytes() for x in solutions.batches} == expected, case


def check_all(rows: int, columns: int, rng: np.random.Generator) -> None:
    """All groups, and labels on one group in ten."""
    for group in groups(rows, columns):
        check(group, rng.permutation(columns), None)
        if rng.random() < 0.1:
            check(group, rng.permutation(columns), rng.choice([-1, 1], rows))


@pytest.mark.parametrize(
    ("columns", "most"), [(2, 4), (3, 3), *(pytest.param(*size, marks=pytest.mark.slow) for size in ((3, 5), (4, 3)))]
)
def test_every_small_table_is_found_with_its_twins(columns, most):
    rng = np.random.default_rng(1)
    for rows in range(1, most + 1):
        check_all(rows, columns, rng)
