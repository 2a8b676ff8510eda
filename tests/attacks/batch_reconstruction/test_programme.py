import os
import signal
import threading
from itertools import combinations_with_replacement, product
from tempfile import gettempdir

import numpy as np
import pulp
import pytest

from vflbench.attacks.batch_reconstruction.gram import Gram, in_order
from vflbench.attacks.batch_reconstruction.integer_programme import pulp_solvers as mixed_integer
from vflbench.attacks.batch_reconstruction.integer_programme import solve as programme
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import prefixes, write
from vflbench.attacks.batch_reconstruction.integer_programme.pulp_solvers import PulpProgramme, cbc_program, read_cbc
from vflbench.attacks.batch_reconstruction.integer_programme.solve import shares_of_positives, solve, verified
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import Budget, Outcome
from vflbench.errors import UserError

SOLVERS = ["highs", "cbc", "cpsat"]


def draw(rows, columns, seed, density=0.5):
    rng = np.random.default_rng(seed)
    return (rng.random((rows, columns)) < density).astype(int), 2 * rng.integers(0, 2, rows) - 1


def sorted_with(x, y):
    order = np.lexsort(x.T[::-1])
    return x[order], y[order]


# Passes every simple test, and no seven rows have it: a batch's alpha with one pair's count moved by one.
NO_SUCH_BATCH = Gram(
    np.array(
        [
            [2, 1, 1, 1, 0, 1],
            [1, 5, 2, 3, 3, 2],
            [1, 2, 4, 3, 3, 2],
            [1, 3, 3, 4, 3, 2],
            [0, 3, 3, 3, 4, 2],
            [1, 2, 2, 2, 2, 3],
        ]
    ),
    None,
    7,
)
# CP-SAT takes seconds to start: not every pair of these.
PAIRS = [("tight", "highs"), ("tight", "cbc"), ("tight", "cpsat"), ("published", "highs"), ("published", "cbc")]


@pytest.mark.parametrize(("formulation", "solver"), PAIRS)
def test_a_planted_batch_and_its_labels_come_back(formulation, solver):
    x, y = draw(6, 10, seed=1)
    assert len(np.unique(x, axis=0)) == 6  # else labels are shares
    assert x.any(axis=1).all()
    answer = solve(Gram.of(x, y), formulation=formulation, solver=solver)
    truth, labels = sorted_with(x, y)
    assert (answer.status, answer.count, answer.complete, answer.labellings) == ("proved", 1, False, 1)
    assert np.array_equal(answer.batches[0], truth)
    assert np.array_equal(answer.labels[0][0], labels == 1)
    assert not answer.unique  # a programme can't tell


@pytest.mark.parametrize(("rows", "columns"), [(8, 20), (11, 15), (11, 20)])
def test_batches_of_the_papers_sizes_come_back(rows, columns):
    x, y = draw(rows, columns, seed=3)
    answer = solve(Gram.of(x, y))
    truth, labels = sorted_with(x, y)
    assert answer.status == "proved"
    assert np.array_equal(answer.batches[0], truth)
    assert np.array_equal(answer.labels[0][0], labels == 1)


def test_random_batches_of_any_density_are_answered_with_their_gram_matrix():
    rng = np.random.default_rng(0)
    for seed in range(40):
        rows, columns = (int(k) for k in rng.integers(1, 7, 2))
        x, y = draw(rows, columns, seed, density=rng.uniform(0.05, 0.95))
        gram = Gram.of(x, y)
        answer = solve(gram)
        assert answer.status == "proved", (x, answer.note)
        assert np.array_equal(Gram.of(answer.batches[0]).alpha, gram.alpha)
        ones = answer.batches[0].astype(int)
        positives = np.nan_to_num(answer.labels[0][0])
        assert np.allclose(2 * ones.T @ positives - ones.sum(0), gram.beta)  # shares of equal rows add up alike


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_without_beta_no_labels_are_told(solver):
    x, _ = draw(5, 8, seed=2)
    answer = solve(Gram.of(x), solver=solver)
    assert (answer.status, answer.labels, answer.labellings) == ("proved", None, None)
    assert np.array_equal(answer.batches[0], in_order(x))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_one_row_and_one_column(solver):
    for x in ([[1]], [[0]], [[1, 0, 1]], [[0], [1], [1]]):
        answer = solve(Gram.of(np.array(x)), solver=solver)
        assert answer.status == "proved"
        assert np.array_equal(answer.batches[0], in_order(np.array(x)))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_an_empty_batch_is_its_own_answer(shape):
    answer = solve(Gram.of(np.zeros(shape, dtype=int), np.ones(shape[0], dtype=int)))
    assert answer.status == "proved"
    assert answer.batches[0].shape == shape
    assert np.isnan(answer.labels[0][0]).all()
    assert len(answer.labels[0][0]) == shape[0]


def test_labels_of_equal_rows_are_their_share_and_of_rows_of_zeros_nothing():
    x = np.array([[0, 0], [1, 0], [1, 0], [1, 1]])
    answer = solve(Gram.of(x, np.array([1, 1, -1, -1])))
    assert np.array_equal(answer.batches[0], x)
    assert np.array_equal(answer.labels[0][0], [np.nan, 0.5, 0.5, 0.0], equal_nan=True)
    assert np.array_equal(shares_of_positives(x, np.array([1, 1, 0, 0])), [np.nan, 0.5, 0.5, 0.0], equal_nan=True)


@pytest.mark.parametrize(("formulation", "solver"), [*PAIRS[:3], ("published", "cpsat")])
def test_a_consistent_alpha_that_no_batch_has_is_proved_infeasible(formulation, solver):
    assert NO_SUCH_BATCH.inconsistency() is None
    answer = solve(NO_SUCH_BATCH, formulation=formulation, solver=solver)
    assert (answer.status, answer.batches, answer.count, answer.complete) == ("infeasible", (), 0, True)
    assert "nfeasible" in answer.note


def test_labels_that_no_batch_has_are_infeasible():
    gram = Gram.of(np.array([[1, 1, 0], [1, 1, 0]]), np.array([1, 1]))
    for solver in ("highs", "cbc"):
        answer = solve(Gram(gram.alpha, np.array([2, 0, 0]), 2), solver=solver)  # two equal columns, two answers
        assert answer.status == "infeasible"


@pytest.mark.parametrize(
    ("alpha", "reason"),
    [
        ([[2, 1], [0, 2]], "not symmetric"),
        ([[2, 3], [3, 2]], "more than"),
        ([[3, 0], [0, 3]], "less than"),
        ([[2.0, 1.0], [1.0, 2.0]], "not integers"),
    ],
)
def test_an_inconsistent_alpha_is_infeasible_with_its_reason(alpha, reason):
    answer = solve(Gram(np.array(alpha), None, 4 if reason != "less than" else 5))
    assert (answer.status, answer.complete) == ("infeasible", True)
    assert reason in answer.note


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_size_that_does_not_end_in_time_says_so_and_tells_nothing_unverified(solver):
    x, y = draw(14, 24, seed=0)
    gram = Gram.of(x, y)
    answer = solve(gram, formulation="published", solver=solver, time_limit=1.0)
    assert answer.status in ("limit", "found")
    assert not answer.complete
    assert all(gram.holds(batch) for batch in answer.batches)


def test_time_may_be_up_before_the_programme_is_written():
    answer = solve(Gram.of(draw(14, 24, seed=0)[0]), time_limit=0.005)
    assert (answer.status, answer.batches, answer.complete) == ("limit", (), False)
    assert "before the programme was written" in answer.note


def test_a_solvers_word_is_no_proof(monkeypatch):
    x, y = draw(4, 5, seed=0)
    gram = Gram.of(x, y)
    right = [float(bit) for bit in [*x.ravel(), *((y + 1) // 2)]]
    wrong = [1 - right[0], *right[1:]]
    told = {
        "proved": Outcome([value + 1e-7 for value in right], True, ""),
        "found": Outcome(right, None, ""),
        "limit": Outcome(wrong, True, "optimal"),
        "infeasible": Outcome(None, False, ""),
    }
    for status, outcome in told.items():
        monkeypatch.setitem(programme.SOLVERS, "highs", lambda *_, outcome=outcome: outcome)
        assert solve(gram).status == status
    assert verified([0.5] * len(right), gram) is None
    monkeypatch.setitem(programme.SOLVERS, "highs", lambda *_: Outcome(None, False, "infeasible"))
    assert solve(gram, time_limit=0.0).status == "limit"  # a solver that was stopped may say infeasible


def test_what_cbc_had_when_stopped_is_found_not_proved(monkeypatch, tmp_path):
    stopped = tmp_path / "cbc"
    stopped.write_text(
        f'#!/bin/sh\n"{cbc_program()}" "$@"\nfor last; do :; done\nsed -i "1s/Optimal/Stopped on $WORD/" "$last"\n'
    )
    stopped.chmod(0o755)
    monkeypatch.setattr(mixed_integer, "cbc_program", lambda: str(stopped))
    x, _ = draw(4, 6, seed=0)
    for word, status in (("time", "found"), ("time (no integer solution - continuous used)", "limit")):
        monkeypatch.setenv("WORD", word)
        answer = solve(Gram.of(x), solver="cbc")
        assert answer.status == status, answer.note
        assert "Stopped" in answer.note


def test_broken_lines_of_cbc_are_read(tmp_path):
    answer = tmp_path / "a.sol"
    answer.write_text("Infeasible - objective value 0\n**    0 C0    0.5   0\n      1 X1   1    0\n")
    assert read_cbc(answer) == ("Infeasible - objective value 0", {"C0": 0.5, "X1": 1.0})


def test_the_first_two_columns_follow_from_alpha():
    x, _ = draw(9, 2, seed=4)
    bits = [prefix for prefix, count in prefixes(Gram.of(x).alpha, 9) for _ in range(count)]
    assert np.array_equal(bits, in_order(x)[::-1])


def test_the_tight_programme_holds_each_batch_once():
    """All its solutions, by cutting off one after the other: the number of batches there are, up to row order."""
    rows = [np.array(bits) for bits in product((0, 1), repeat=4)]
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # four rows that XOR to zero: ambiguous
    gram = Gram.of(x)
    batches = sum(
        np.array_equal(Gram.of(np.array(batch)).alpha, gram.alpha) for batch in combinations_with_replacement(rows, 4)
    )
    model = PulpProgramme(Budget(float("inf"), 1, 0))
    entries = write(model, gram, "tight").all
    found = set()
    while model.problem.solve(pulp.HiGHS(msg=False, threads=1)) == pulp.LpStatusOptimal:
        bits = [round(entry.varValue) for entry in entries]
        found.add(tuple(bits))
        model.add(pulp.lpSum(1 - entry if bit else entry for entry, bit in zip(entries, bits, strict=True)) >= 1)
    assert len(found) == batches > 1
    assert len({in_order(np.array(bits).reshape(4, 4)).tobytes() for bits in found}) == batches


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_nothing_is_printed_or_left_behind(solver, capfd, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert gettempdir() == str(tmp_path / "temporary")
    x, y = draw(5, 6, seed=0)
    assert solve(Gram.of(x, y), solver=solver).status == "proved"
    assert solve(NO_SUCH_BATCH, solver=solver).status == "infeasible"
    assert capfd.readouterr() == ("", "")
    assert not list((tmp_path / "here").iterdir())
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("solver", SOLVERS)
def test_control_c_ends_a_solver(solver):
    x, y = draw(14, 24, seed=0)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            solve(Gram.of(x, y), formulation="published", solver=solver, time_limit=300)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def test_threads_may_change_from_call_to_call():
    x, y = draw(5, 6, seed=0)
    assert [solve(Gram.of(x, y), threads=threads).status for threads in (1, 2, 1)] == ["proved"] * 3


def test_the_same_seed_gives_the_same_batch():
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # two batches have its alpha
    first, second = (solve(Gram.of(x), seed=5).batches[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_a_solver_that_is_missing_or_unknown_is_told(monkeypatch):
    gram = Gram.of(np.eye(2, dtype=int))
    with pytest.raises(UserError, match=r"solver=gurobi: one of highs, cbc, cpsat"):
        solve(gram, solver="gurobi")
    with pytest.raises(UserError, match=r"formulation=loose: tight or published"):
        solve(gram, formulation="loose")
    monkeypatch.setattr(pulp.HiGHS, "available", lambda _: False)
    with pytest.raises(
        UserError, match=r"batch_reconstruction.solver=highs: HiGHS (is not installed: pip install highspy|cannot be loaded)"
    ):
        solve(gram)
    monkeypatch.setattr(mixed_integer, "cbc_program", lambda: None)
    with pytest.raises(UserError, match=r"solver=cbc: no CBC"):
        solve(gram, solver="cbc")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"solver=cpsat: OR-Tools is not installed"):
        solve(gram, solver="cpsat")
