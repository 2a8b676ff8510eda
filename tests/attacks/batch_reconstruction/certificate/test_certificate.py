"""The second verification: what is right is confirmed, what is wrong or missing is not, and it shares no code."""

import ast
import itertools
from math import gcd
from pathlib import Path

import numpy as np
import pytest
from reconstruction_rounds import batch

import vflbench.attacks.batch_reconstruction.certificate as certificate
from vflbench.attacks.batch_reconstruction.certificate.check import confirm_complete, is_impossible
from vflbench.attacks.batch_reconstruction.certificate.elimination import eliminate
from vflbench.attacks.batch_reconstruction.certificate.form import is_alone_among
from vflbench.attacks.batch_reconstruction.certificate.labels import number_of_labellings
from vflbench.attacks.batch_reconstruction.certificate.matched_sums import matched_sums
from vflbench.attacks.batch_reconstruction.certificate.row_bounds import RowBounds
from vflbench.attacks.batch_reconstruction.certificate.second_search import second_search
from vflbench.attacks.batch_reconstruction.certificate.whole_lattice import is_alone
from vflbench.attacks.batch_reconstruction.enumeration import exact
from vflbench.attacks.batch_reconstruction.gram import Gram

EVEN = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])


def nothing(*_) -> None:
    """No limit."""


def verdict(gram: Gram, batches, labels=None, **options):
    return confirm_complete(gram.alpha, gram.beta, gram.rows, batches, labels, nothing, **options)


def draw(seed, rows, columns, density=0.5):
    return batch(rows, columns, np.random.default_rng(seed), density)


def test_it_shares_no_code_with_the_search():
    for file in Path(certificate.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all("vflbench" not in name or ".certificate" in name for name in names), file.name


def test_a_missing_a_wrong_and_a_repeated_batch_are_refused():
    gram = Gram.of(EVEN)
    both = [EVEN, 1 - EVEN]
    assert verdict(gram, both).confirmed
    for wrong, why in (
        ([EVEN], "another batch"),
        ([EVEN, EVEN[::-1]], "twice"),
        ([EVEN, EVEN ^ np.eye(4, 3, dtype=int)], "alpha"),
        ([EVEN, 2 * EVEN], "alpha"),
        ([], "another batch"),
    ):
        refused = verdict(gram, wrong)
        assert not refused.confirmed, why
        assert why in refused.reason


def test_missing_and_wrong_labels_are_refused():
    x, y = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 0], [0, 0, 1]]), np.array([1, -1, -1, 1])
    gram = Gram.of(x, y)
    solutions = exact.enumerate_batches(gram, time_limit=None)
    assert solutions.complete
    assert solutions.labellings == 2
    (labels,) = solutions.labels
    assert verdict(gram, [solutions.batches[0]], [labels]).confirmed
    assert "missing" in verdict(gram, [solutions.batches[0]], [labels[:1]]).reason
    assert verdict(gram, [solutions.batches[0]], [labels[:1]], all_labels=False).confirmed
    for wrong in ([1 - labels[0]], [np.full(4, 0.5)], [labels[0], labels[0]]):
        assert "labelling" in verdict(gram, [solutions.batches[0]], [wrong]).reason


def test_infeasibility_is_confirmed_only_where_there_is_no_batch():
    five = np.array([[2, 1, 1, 1, 1], [1, 2, 1, 1, 1], [1, 1, 3, 1, 1], [1, 1, 1, 3, 1], [1, 1, 1, 1, 2]])
    assert verdict(Gram(five, None, 6), []).confirmed
    not_semidefinite = np.array([[2, 2, 1], [2, 2, 2], [1, 2, 2]])
    assert verdict(Gram(not_semidefinite, None, 8), []).confirmed
    assert verdict(Gram(np.eye(3, dtype=int), None, 2), []).confirmed  # rank 3
    assert not verdict(Gram.of(draw(1, 6, 5)[0]), []).confirmed
    assert is_impossible(np.array([[2, 1], [0, 2]]), None, 3)
    assert is_impossible(np.eye(2), None, 3)


def test_a_search_that_does_not_end_confirms_nothing():
    x, _ = draw(0, 14, 8)
    solutions = exact.enumerate_batches(Gram.of(x), time_limit=None)
    assert solutions.complete
    short = verdict(Gram.of(x), solutions.batches, most_work=20)
    assert not short.confirmed
    assert "20 steps" in short.reason


def test_an_unconfirmed_search_claims_nothing(monkeypatch):
    x, _ = draw(0, 9, 5)
    monkeypatch.setattr(exact.ColumnSearch, "batches", lambda _: iter([x]))
    lost = exact.enumerate_batches(Gram.of(x), time_limit=None)
    assert (lost.status, lost.complete, lost.unique, lost.count) == ("partial", False, False, 1)
    assert "not confirmed: a second search yields another batch" in lost.note
    monkeypatch.setattr(exact.ColumnSearch, "batches", lambda _: iter([]))
    none = exact.enumerate_batches(Gram.of(x), time_limit=None)
    assert (none.status, none.complete) == ("limit", False)


def test_columns_generate_all_integers_if_the_minors_have_no_common_divisor():
    answers = []
    for seed in range(60):
        rows, columns = 2 + seed % 4, 1 + seed % 7
        x, _ = draw(seed, rows, columns, density=(0.3, 0.5)[seed % 2])
        z = np.c_[np.ones(rows, dtype=int), x]
        minors = [round(np.linalg.det(z[:, list(some)])) for some in itertools.combinations(range(columns + 1), rows)]
        answers.append(is_alone(x, nothing))
        assert answers[-1] == (gcd(*minors) == 1), (seed, minors)
    assert 5 < sum(answers) < 55
    assert not is_alone(EVEN, nothing)


def test_elimination_finds_exact_dependences_and_lengths():
    for seed in range(20):
        x, _ = draw(seed, 9, 6)
        x[:, 3], x[:, 5] = x[:, 1], 1 - x[:, 0]
        z = np.c_[np.ones(9, dtype=int), x].astype(object)
        result = eliminate((z.T @ z).astype(np.int64), nothing)
        assert len(result.pivots) == np.linalg.matrix_rank(z.astype(float))
        vectors = [z[:, result.pivots[: len(v)]] @ v for v in result.combinations]
        for one, length in zip(vectors, result.lengths, strict=True):
            assert [int(one @ other) for other in vectors if other is one] == [length]
        assert all(one @ other == 0 for one, other in itertools.combinations(vectors, 2))
        dependent = [relation for of_pivot in result.dependent for relation in of_pivot]
        for column, numerators, denominator in dependent:
            assert (denominator * z[:, column] == z[:, result.pivots[: len(numerators)]] @ numerators).all()
        assert len(dependent) + len(result.pivots) == 7
    assert eliminate(np.array([[1, 2], [2, 1]]), nothing) is None


def test_every_row_of_a_batch_is_within_the_bounds():
    for seed in range(20):
        rows, columns = 3 + seed % 7, 2 + seed % 9
        x, _ = draw(seed, rows, columns, density=0.4)
        x[0] = x[-1]
        gram = Gram.of(x).with_intercept
        elimination = eliminate(gram, nothing)
        bits, most = RowBounds(gram, elimination, 1 << 16, nothing).listed()
        allowed = {row.tobytes(): int(count) for row, count in zip(np.ascontiguousarray(bits), most, strict=True)}
        whole = np.c_[np.ones(rows, dtype=np.int64), x][:, elimination.pivots]
        for row, count in zip(*np.unique(whole, axis=0, return_counts=True), strict=True):
            assert allowed.get(np.ascontiguousarray(row).tobytes(), 0) >= count, seed


def test_matched_sums_are_those_of_exhaustive_search():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        unknowns, equations = int(rng.integers(1, 6)), int(rng.integers(0, 4))
        member, low = rng.integers(0, 2, (unknowns, equations)), rng.integers(0, 2, unknowns)
        high = low + rng.integers(0, 4, unknowns)
        target = rng.integers(low, high + 1) @ member
        grid = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
        expected = sorted(n for n in grid if np.array_equal(np.array(n) @ member, target))
        assert sorted(tuple(n.tolist()) for n in matched_sums(member, target, low, high, nothing)) == expected, seed


def test_labellings_are_counted_with_and_without_a_known_one():
    for seed in range(30):
        rows = 2 + seed % 6
        x, y = draw(seed, rows, 4, density=0.4)
        x = x[np.lexsort(x.T[::-1])]
        gram = Gram.of(x, y)
        expected = set()
        for signs in itertools.product((-1, 1), repeat=rows):
            if gram.matches(x, np.array(signs)):
                pairs = [(tuple(row), sign) for row, sign in zip(x.tolist(), signs, strict=True) if any(row)]
                expected.add(tuple(sorted(pairs)))
        (known, *_), *_ = exact.labellings(gram, x, 1, exact.TimeLimit(None))
        for start in (known, None):
            assert number_of_labellings(x, gram.alpha, gram.beta, start, 1000, nothing) == len(expected), seed


def test_a_form_that_vanishes_elsewhere_proves_nothing():
    x, _ = draw(4, 23, 20)
    gram = Gram.of(x).with_intercept
    assert not is_alone_among(gram, x, np.zeros_like(gram), nothing)
    assert not is_alone_among(gram, x, np.eye(len(gram), dtype=np.int64), nothing)


@pytest.mark.slow
def test_a_second_search_finds_what_the_first_one_finds():
    for seed in range(150):
        rng = np.random.default_rng(seed)
        rows, columns = int(rng.integers(2, 15)), int(rng.integers(1, 14))
        x, _ = draw(seed, rows, columns, density=(0.2, 0.5, 0.8)[seed % 3])
        x = x[rng.integers(0, rows, rows)] if seed % 2 else x
        gram = Gram.of(x)
        tree = exact.enumerate_batches(gram, method="columns", time_limit=None, max_batches=10**6)
        again = {other.tobytes() for other in second_search(gram.with_intercept, nothing)}
        assert again == {other.tobytes() for other in tree.batches}, seed
