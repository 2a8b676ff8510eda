"""Every matching batch, once: against exhaustive search, against CP-SAT, and the methods against each other."""

import functools
import itertools

import numpy as np
import pytest
from ortools.sat.python import cp_model

from vflbench.attacks.batch_reconstruction.enumeration import lattice_reduction as lattice
from vflbench.attacks.batch_reconstruction.enumeration.bounded_counts import placements
from vflbench.attacks.batch_reconstruction.enumeration.column_order import levels
from vflbench.attacks.batch_reconstruction.enumeration.column_search import ColumnSearch
from vflbench.attacks.batch_reconstruction.enumeration.exact import enumerate_batches
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import candidates
from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock
from vflbench.attacks.batch_reconstruction.gram import Gram, in_order
from vflbench.errors import UserError


def batch(seed: int, rows: int, columns: int, density: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.random((rows, columns)) < density).astype(np.uint8), rng.choice([-1, 1], rows)


def as_set(answer) -> set:
    return {x.tobytes() for x in answer.batches}


@functools.cache
def by_gram(rows: int) -> dict[bytes, list[np.ndarray]]:
    """Every batch of so many rows of four columns, up to their order, by its alpha."""
    every = list(itertools.product((0, 1), repeat=4))
    found: dict[bytes, list[np.ndarray]] = {}
    for chosen in itertools.combinations_with_replacement(every, rows):
        x = np.array(chosen, dtype=np.uint8)
        found.setdefault(Gram.of(x).alpha.tobytes(), []).append(x)
    return found


def every_labelling(gram: Gram, x: np.ndarray) -> set:
    """Positives by group of equal rows that are not zero, over all 2^m labellings."""
    found = set()
    for y in itertools.product((-1, 1), repeat=len(x)):
        if gram.holds(x, np.array(y)):
            positives: dict[tuple, int] = {}
            for row, label in zip(map(tuple, x.tolist()), y, strict=True):
                positives[row] = positives.get(row, 0) + (label > 0)
            found.add(tuple(sorted((row, n) for row, n in positives.items() if any(row))))
    return found


@pytest.mark.parametrize("method", ["columns", "candidates", "auto"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_all_batches_of_four_columns_are_those_of_exhaustive_search(rows, method):
    known = by_gram(rows)
    most = {1: 16, 2: 100, 3: 60, 4: 60, 5: 80}[rows]
    # The most ambiguous first, the others at random.
    alphas = sorted(known, key=lambda key: -len(known[key]))
    alphas = alphas[: most // 4] + list(np.random.default_rng(rows).permutation(np.array(alphas[most // 4 :], dtype="V128")))
    for key in [bytes(alpha) for alpha in alphas[:most]]:
        alpha = np.frombuffer(key, dtype=np.int64).reshape(4, 4)
        answer = enumerate_batches(Gram(alpha, None, rows), method=method)
        assert (answer.status, answer.complete) == ("proved", True)
        assert answer.count == len(answer.batches) == len(known[key])
        assert as_set(answer) == {x.tobytes() for x in known[key]}


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_labels_of_four_columns_are_those_of_exhaustive_search(rows):
    for seed in range(25):
        x, y = batch(seed, rows, 4, density=0.3 + 0.4 * (seed % 2))
        gram = Gram.of(x, y)
        expected = {other.tobytes(): every_labelling(gram, other) for other in by_gram(rows)[gram.alpha.tobytes()]}
        expected = {key: value for key, value in expected.items() if value}
        answer = enumerate_batches(gram)
        assert answer.complete
        assert as_set(answer) == set(expected)
        assert answer.labellings == sum(map(len, expected.values()))
        for found, labels in zip(answer.batches, answer.labels, strict=True):
            got = set()
            for share in labels:
                assert np.array_equal(np.isnan(share), ~found.any(1))
                total: dict[tuple, float] = {}
                for row, part in zip(map(tuple, found.tolist()), share, strict=True):
                    if any(row):
                        total[row] = total.get(row, 0) + part
                got.add(tuple(sorted((row, round(n)) for row, n in total.items())))
            assert got == expected[found.tobytes()]


class Collected(cp_model.CpSolverSolutionCallback):
    def __init__(self, x):
        super().__init__()
        self.x, self.batches = x, set()

    def on_solution_callback(self):
        values = [[self.value(v) for v in row] for row in self.x]
        self.batches.add(np.array(values, dtype=np.uint8).tobytes())


def by_cp_sat(gram: Gram) -> set:
    """All matching batches, rows in order, by an independent constraint programme."""
    m, d = gram.rows, len(gram.alpha)
    model = cp_model.CpModel()
    x = [[model.new_bool_var(f"x{r}_{i}") for i in range(d)] for r in range(m)]
    for i in range(d):
        model.add(sum(x[r][i] for r in range(m)) == int(gram.alpha[i, i]))
        for j in range(i):
            both = [model.new_bool_var(f"b{r}_{i}_{j}") for r in range(m)]
            for r in range(m):
                model.add_multiplication_equality(both[r], [x[r][i], x[r][j]])
            model.add(sum(both) == int(gram.alpha[i, j]))
    codes = [sum(2 ** (d - 1 - i) * x[r][i] for i in range(d)) for r in range(m)]
    for r in range(m - 1):
        model.add(codes[r] <= codes[r + 1])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = True
    collected = Collected(x)
    status = solver.solve(model, collected)
    assert status == (cp_model.OPTIMAL if collected.batches else cp_model.INFEASIBLE)
    return collected.batches


@pytest.mark.parametrize("seed", range(100))
def test_batches_are_those_of_cp_sat(seed):
    rng = np.random.default_rng(1000 + seed)
    rows, columns = int(rng.integers(3, 9)), int(rng.integers(4, 10))
    x, _ = batch(seed, rows, columns, density=(0.5, 0.3, 0.15)[seed % 3])
    answer = enumerate_batches(Gram.of(x), max_batches=100_000)
    assert answer.status == "proved"
    assert as_set(answer) == by_cp_sat(Gram.of(x))


@pytest.mark.parametrize(("rows", "columns"), [(8, 5), (11, 10), (11, 20), (12, 16), (16, 24)])
@pytest.mark.parametrize("seed", range(4))
def test_all_methods_find_the_same_batches_and_the_true_one(rows, columns, seed):
    x, y = batch(seed, rows, columns)
    gram = Gram.of(x, y)
    answers = [enumerate_batches(gram, method=method) for method in ("columns", "candidates", "auto")]
    assert all(answer.complete for answer in answers)
    assert in_order(x).tobytes() in as_set(answers[0])
    assert as_set(answers[0]) == as_set(answers[1]) == as_set(answers[2])
    assert len({answer.labellings for answer in answers}) == 1
    for found in answers[0].batches:
        assert gram.holds(found)


@pytest.mark.parametrize(("rows", "columns"), [(8, 14), (12, 20), (20, 40), (32, 64)])
def test_the_lattice_yields_the_one_batch_that_a_search_proves(rows, columns):
    x, y = batch(rows, rows, columns)
    gram = Gram.of(x, y)
    answer = enumerate_batches(gram, method="lattice")
    assert answer.status == "proved"
    assert answer.unique
    assert np.array_equal(answer.batches[0], in_order(x))
    # No two rows are equal, none is zero: all labels are known.
    order = np.lexsort(x.T[::-1])
    assert np.array_equal(answer.labels[0][0], (y[order] + 1) / 2)
    if rows <= 20:
        other = enumerate_batches(gram, method="candidates")
        assert other.unique
        assert as_set(other) == as_set(answer)


def test_sixty_four_rows_of_a_hundred_columns_come_from_the_lattice():
    x, _ = batch(3, 64, 100)
    answer = enumerate_batches(Gram.of(x))
    assert answer.method == "lattice"
    assert answer.unique
    assert np.array_equal(answer.batches[0], in_order(x))


def test_the_lattice_says_when_it_decides_nothing(monkeypatch):
    # Fewer columns than rows, then rows that XOR to zero: columns of even weight, which do not generate Z^4.
    x, _ = batch(0, 8, 5)
    few = enumerate_batches(Gram.of(x), method="lattice")
    assert few.status == "limit"
    assert "rank" in few.note
    even = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])
    both = enumerate_batches(Gram.of(even), method="lattice")
    assert both.status == "limit"
    assert "do not generate" in both.note
    assert enumerate_batches(Gram.of(even)).count == 2
    monkeypatch.setattr(lattice, "installed", lambda: False)
    with pytest.raises(UserError, match="python-flint"):
        enumerate_batches(Gram.of(x), method="lattice")
    wide, _ = batch(0, 16, 24)
    assert enumerate_batches(Gram.of(wide)).method == "candidates"


def test_four_rows_that_xor_to_zero_can_be_switched():
    # a, b, c, a^b^c with disjoint supports of the differences: the paper's ambiguous batches.
    rng = np.random.default_rng(5)
    base, cells = rng.integers(0, 2, 12), rng.integers(0, 3, 12)
    flips = [(cells == k).astype(int) for k in range(3)]
    rows = [base ^ flips[0], base ^ flips[1], base ^ flips[2], base ^ flips[0] ^ flips[1] ^ flips[2]]
    assert enumerate_batches(Gram.of(np.array(rows))).count == 2


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (0, 4), (4, 0), (1, 0)])
def test_the_smallest_batches_are_known_exactly(shape):
    x, y = batch(7, *shape)
    answer = enumerate_batches(Gram.of(x, y))
    assert answer.status == "proved"
    assert answer.count == 1
    assert np.array_equal(answer.batches[0], in_order(x))
    assert answer.batches[0].shape == shape


def test_zero_equal_and_constant_columns_and_equal_rows():
    x, y = batch(2, 6, 7)
    x[:, 1], x[:, 2], x[:, 3] = 0, 1, x[:, 0]
    x[1] = x[0]
    x[4] = x[5] = 0
    x[:, 6] = 1 - x[:, 5]
    gram = Gram.of(x, y)
    for method in ("columns", "candidates", "auto"):
        answer = enumerate_batches(gram, method=method)
        assert answer.complete
        assert in_order(x).tobytes() in as_set(answer)
        assert as_set(answer) == by_cp_sat(Gram.of(x))


def test_what_no_batch_has_is_infeasible_with_a_reason():
    broken = enumerate_batches(Gram(np.array([[2, 1], [0, 2]]), None, 3))
    assert (broken.status, broken.count, broken.complete) == ("infeasible", 0, True)
    assert "symmetric" in broken.note
    # Of all matrices of two ones a column, m = 4, d = 4, those are infeasible that no batch has.
    known = by_gram(4)
    for entries in itertools.islice(itertools.product((0, 1, 2), repeat=6), 0, None, 7):
        alpha = np.full((4, 4), 2)
        alpha[np.triu_indices(4, 1)] = entries
        alpha = np.triu(alpha) + np.triu(alpha, 1).T
        answer = enumerate_batches(Gram(alpha, None, 4))
        assert (answer.status == "infeasible") == (alpha.tobytes() not in known)
    x, y = batch(0, 5, 4)
    wrong = Gram.of(x, y)
    wrong.beta[0] += 2 if wrong.beta[0] < wrong.alpha[0, 0] else -2
    answer = enumerate_batches(wrong)
    assert answer.count == sum(bool(every_labelling(wrong, other)) for other in by_gram(5)[wrong.alpha.tobytes()])


@pytest.mark.parametrize("method", ["columns", "candidates", "auto"])
def test_what_passes_every_test_of_consistency_can_still_be_infeasible(method):
    # Six rows: pairs meet in one row each, but five columns of two or three ones can't all do so.
    alpha = np.array([[2, 1, 1, 1, 1], [1, 2, 1, 1, 1], [1, 1, 3, 1, 1], [1, 1, 1, 3, 1], [1, 1, 1, 1, 2]])
    gram = Gram(alpha, None, 6)
    assert gram.inconsistency() is None
    assert by_cp_sat(gram) == set()
    answer = enumerate_batches(gram, method=method)
    assert (answer.status, answer.count, answer.complete) == ("infeasible", 0, True)


def test_a_nearly_dependent_column_loses_no_row():
    # A level less than 1e-7 from the span of the earlier ones: too near for leverages in floats, and not dependent.
    x, _ = batch(63, 32, 64)
    nearest = min(level.schur for level in levels(Gram.of(x).with_intercept))
    assert 1e-9 < nearest < 1e-7
    answer = enumerate_batches(Gram.of(x), method="candidates")
    assert answer.unique
    assert np.array_equal(answer.batches[0], in_order(x))


def test_eighty_rows_take_more_than_one_reduction():
    x = np.random.default_rng(1).integers(0, 2, (80, 100)).astype(np.uint8)
    answer = enumerate_batches(Gram.of(x))
    assert answer.unique
    assert np.array_equal(answer.batches[0], in_order(x))


def test_a_cap_says_at_least_and_one_above_the_truth_does_not():
    x, _ = batch(0, 12, 4)
    gram = Gram.of(x)
    whole = enumerate_batches(gram, max_batches=10**6)
    assert whole.complete
    assert whole.count > 3
    capped = enumerate_batches(gram, max_batches=3)
    assert (capped.status, capped.count, capped.complete) == ("found", 3, False)
    assert "more than 3" in capped.note
    assert as_set(capped) <= as_set(whole)
    exactly = enumerate_batches(gram, max_batches=whole.count)
    assert (exactly.status, exactly.count, exactly.complete) == ("proved", whole.count, True)


def test_no_time_is_the_limit_and_says_so():
    x, _ = batch(0, 40, 12)
    answer = enumerate_batches(Gram.of(x), time_limit=0)
    assert (answer.status, answer.count, answer.complete) == ("limit", 0, False)
    assert "time limit" in answer.note


@pytest.mark.parametrize("seed", range(5))
def test_sparse_one_hot_rows_are_enumerated_without_repeats(seed):
    rng = np.random.default_rng(seed)
    # Six one-hot features of three or four values, skewed as real ones are.
    blocks = [np.eye(k, dtype=np.uint8)[np.minimum(rng.geometric(0.6, 8) - 1, k - 1)] for k in (3, 4, 3, 4, 3, 3)]
    x = np.concatenate(blocks, 1)
    gram = Gram.of(x)
    answer = enumerate_batches(gram, max_batches=10**5)
    assert answer.complete
    assert len(as_set(answer)) == answer.count
    assert in_order(x).tobytes() in as_set(answer)
    assert all(gram.holds(found) for found in answer.batches)
    assert as_set(answer) == as_set(enumerate_batches(gram, method="columns", max_batches=10**5))


@pytest.mark.parametrize("seed", range(5))
def test_leverages_of_the_true_rows_sum_to_the_rank(seed):
    x, _ = batch(seed, 9, 6)
    gram = Gram.of(x)
    order = levels(gram.with_intercept)
    whole = np.c_[np.ones(9, dtype=np.int64), x]
    assert len(order) == np.linalg.matrix_rank(whole)
    assert np.trace(whole @ np.linalg.pinv(gram.with_intercept.astype(float)) @ whole.T) == pytest.approx(len(order))
    # Every true row is among the candidates, by walking the tree.
    tree = candidates(order, 9, 10**6, Clock(None))
    bits = whole[:, [level.column for level in order]]
    nodes = np.zeros(9, dtype=int)
    for t in range(1, len(order)):
        nodes = tree.child[t - 1][nodes, bits[:, t]]
        assert (nodes >= 0).all()
    found = next(ColumnSearch(gram.with_intercept, order, tree, Clock(None)).batches())
    assert gram.holds(found)


@pytest.mark.parametrize("seed", range(30))
def test_placements_are_those_of_exhaustive_search(seed):
    rng = np.random.default_rng(seed)
    groups, equations = int(rng.integers(1, 7)), int(rng.integers(0, 5))
    member = rng.integers(0, 2, (equations, groups))
    high = rng.integers(0, 4, groups)
    low = np.minimum(rng.integers(0, 2, groups), high)
    target = member @ rng.integers(low, high + 1)
    every = [np.array(n) for n in itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))]
    expected = sorted(n.tolist() for n in every if np.array_equal(member @ n, target))
    assert sorted(n.tolist() for n in placements(member, target, low, high, Clock(None))) == expected
