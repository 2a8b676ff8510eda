"""Batches from integer programmes: every solver and formulation, verified in integers, stopped, interrupted and killed."""

import functools
import os
import signal
import subprocess
import threading
import time
from itertools import combinations_with_replacement, product
from tempfile import gettempdir

import numpy as np
import pulp
import pytest
from reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme import cpsat, pulp_solvers, solver_run
from vflbench.attacks.batch_reconstruction.integer_programme import solve as programme
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import prefixes, write_programme
from vflbench.attacks.batch_reconstruction.integer_programme.pulp_solvers import PulpProgramme, cbc_program, read_cbc
from vflbench.attacks.batch_reconstruction.integer_programme.solve import shares_of_positives, verified
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import SolverBudget, SolverResult, run_program
from vflbench.attacks.batch_reconstruction.solutions import sort_rows
from vflbench.errors import UserError

ENDLESS = 1e6  # seconds: a limit that no test reaches
solve = functools.partial(programme.solve, time_limit=ENDLESS)

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
IN_PROCESS = [("tight", "highs"), ("tight", "cbc"), ("published", "highs"), ("published", "cbc")]


def draw(rows, columns, seed, density=0.5):
    return batch(rows, columns, np.random.default_rng(seed), density)


def sorted_with(x, y):
    order = np.lexsort(x.T[::-1])
    return x[order], y[order]


@pytest.fixture
def solved_here(monkeypatch):
    """CP-SAT in this process: its own one takes seconds to start."""
    monkeypatch.setitem(programme.SOLVERS, "cpsat", cpsat.solve_in_process)


class StoppedEarly(SolverBudget):
    """Any time to write the programme, and 0.05 seconds to solve it."""

    @property
    def left(self) -> float:
        return 0.05

    def check(self) -> None:
        pass


def check_planted_batch(formulation, solver) -> None:
    x, y = draw(6, 10, seed=1)
    assert len(np.unique(x, axis=0)) == 6  # otherwise labels are shares
    assert x.any(axis=1).all()
    solutions = solve(Gram.of(x, y), formulation=formulation, solver=solver)
    truth, labels = sorted_with(x, y)
    case = (formulation, solver, solutions.note)
    assert (solutions.status, solutions.count, solutions.complete, solutions.labellings) == ("found", 1, False, 1), case
    assert np.array_equal(solutions.batches[0], truth), case
    assert np.array_equal(solutions.labels[0][0], labels == 1), case
    assert not solutions.unique  # a programme does not prove it


def check_infeasible(formulation, solver) -> None:
    assert NO_SUCH_BATCH.inconsistency() is None
    solutions = solve(NO_SUCH_BATCH, formulation=formulation, solver=solver)
    case = (formulation, solver, solutions.note)
    assert (solutions.status, solutions.batches, solutions.count, solutions.complete) == ("infeasible", (), 0, True), case
    assert "nfeasible" in solutions.note


@pytest.mark.usefixtures("solved_here")
def test_a_planted_batch_and_its_labels_are_recovered():
    for formulation, solver in [*IN_PROCESS, ("tight", "cpsat")]:
        check_planted_batch(formulation, solver)


@pytest.mark.usefixtures("solved_here")
def test_a_consistent_alpha_that_no_batch_has_is_proved_infeasible():
    for formulation, solver in [*IN_PROCESS[:2], ("tight", "cpsat"), ("published", "cpsat")]:
        check_infeasible(formulation, solver)


@pytest.mark.slow
def test_cp_sat_answers_from_a_process_of_its_own():
    check_planted_batch("tight", "cpsat")
    check_infeasible("published", "cpsat")


def check_paper_size(rows, columns) -> None:
    x, y = draw(rows, columns, seed=3)
    solutions = solve(Gram.of(x, y))
    truth, labels = sorted_with(x, y)
    assert solutions.status == "found"
    assert np.array_equal(solutions.batches[0], truth)
    assert np.array_equal(solutions.labels[0][0], labels == 1)


@pytest.mark.slow
def test_a_batch_of_the_papers_size_is_recovered():
    check_paper_size(8, 20)


@pytest.mark.slow
def test_larger_batches_of_the_papers_sizes_are_recovered():
    check_paper_size(11, 15)
    check_paper_size(11, 20)


def test_random_batches_of_any_density_are_answered_with_their_gram_matrix():
    rng = np.random.default_rng(0)
    for seed in range(40):
        rows, columns = (int(k) for k in rng.integers(1, 7, 2))
        x, y = draw(rows, columns, seed, density=rng.uniform(0.05, 0.95))
        gram = Gram.of(x, y)
        solutions = solve(gram)
        assert solutions.status == "found", (x, solutions.note)
        assert np.array_equal(Gram.of(solutions.batches[0]).alpha, gram.alpha), seed
        ones = solutions.batches[0].astype(int)
        positives = np.nan_to_num(solutions.labels[0][0])
        assert np.allclose(2 * ones.T @ positives - ones.sum(0), gram.beta), seed  # shares have the same sums as labels


def test_without_beta_there_are_no_labels():
    x, _ = draw(5, 8, seed=2)
    for solver in ("highs", "cbc"):
        solutions = solve(Gram.of(x), solver=solver)
        assert (solutions.status, solutions.labels, solutions.labellings) == ("found", None, None), solver
        assert np.array_equal(solutions.batches[0], sort_rows(x)), solver


def test_one_row_and_one_column():
    for solver, x in product(("highs", "cbc"), ([[1]], [[0]], [[1, 0, 1]], [[0], [1], [1]])):
        solutions = solve(Gram.of(np.array(x)), solver=solver)
        assert solutions.status == "found", (solver, x)
        assert np.array_equal(solutions.batches[0], sort_rows(np.array(x))), (solver, x)


def test_an_empty_batch_is_its_own_solution():
    for shape in ((0, 3), (4, 0), (0, 0)):
        solutions = solve(Gram.of(np.zeros(shape, dtype=int), np.ones(shape[0], dtype=int)))
        assert solutions.status == "found", shape
        assert solutions.batches[0].shape == shape
        assert np.isnan(solutions.labels[0][0]).all()
        assert len(solutions.labels[0][0]) == shape[0]


def test_labels_of_equal_rows_are_their_share_and_of_rows_of_zeros_unknown():
    x = np.array([[0, 0], [1, 0], [1, 0], [1, 1]])
    solutions = solve(Gram.of(x, np.array([1, 1, -1, -1])))
    assert np.array_equal(solutions.batches[0], x)
    assert np.array_equal(solutions.labels[0][0], [np.nan, 0.5, 0.5, 0.0], equal_nan=True)
    assert np.array_equal(shares_of_positives(x, np.array([1, 1, 0, 0])), [np.nan, 0.5, 0.5, 0.0], equal_nan=True)


def test_labels_that_no_batch_has_are_infeasible():
    gram = Gram.of(np.array([[1, 1, 0], [1, 1, 0]]), np.array([1, 1]))
    for solver in ("highs", "cbc"):
        solutions = solve(Gram(gram.alpha, np.array([2, 0, 0]), 2), solver=solver)  # equal columns, different betas
        assert solutions.status == "infeasible", solver


def test_an_inconsistent_alpha_is_infeasible_with_its_reason():
    for alpha, rows, reason in (
        ([[2, 1], [0, 2]], 4, "not symmetric"),
        ([[2, 3], [3, 2]], 4, "more than"),
        ([[3, 0], [0, 3]], 5, "less than"),
        ([[2.0, 1.0], [1.0, 2.0]], 4, "not integers"),
    ):
        solutions = solve(Gram(np.array(alpha), None, rows))
        assert (solutions.status, solutions.complete) == ("infeasible", True), reason
        assert reason in solutions.note


def check_stopped(monkeypatch, solver) -> None:
    """Before its first branch, whatever the machine: this published programme needs several."""
    monkeypatch.setattr(programme, "SolverBudget", functools.partial(SolverBudget, steps=0))
    x, y = draw(9, 9, seed=0)
    gram = Gram.of(x, y)
    solutions = solve(gram, formulation="published", solver=solver)
    assert solutions.status in ("limit", "partial"), (solver, solutions.note)
    assert not solutions.ended
    assert not solutions.complete
    assert all(gram.matches(other) for other in solutions.batches), solver


@pytest.mark.usefixtures("solved_here")
def test_a_solver_that_is_stopped_reports_only_verified_batches(monkeypatch):
    for solver in ("highs", "cpsat"):
        check_stopped(monkeypatch, solver)


@pytest.mark.slow
def test_cbc_that_is_stopped_reports_only_verified_batches(monkeypatch):
    check_stopped(monkeypatch, "cbc")


@pytest.mark.usefixtures("solved_here")
def test_the_time_may_be_up_before_the_programme_is_written():
    for solver in ("highs", "cbc"):
        solutions = solve(Gram.of(draw(4, 6, seed=0)[0]), solver=solver, time_limit=0.0)
        assert (solutions.status, solutions.batches, solutions.complete) == ("limit", (), False), solver
        assert "before the programme was written" in solutions.note
    stopped = cpsat.solve_in_process(Gram.of(draw(4, 6, seed=0)[0]), "tight", SolverBudget(time.monotonic(), 1, 0))
    assert stopped == SolverResult(None, None, "the time limit was reached before the programme was written")


def test_a_solvers_word_is_no_proof(monkeypatch):
    x, y = draw(4, 5, seed=0)
    gram = Gram.of(x, y)
    right = [float(bit) for bit in [*x.ravel(), *((y + 1) // 2)]]
    wrong = [1 - right[0], *right[1:]]
    results = {
        "found": SolverResult([value + 1e-7 for value in right], True, ""),
        "partial": SolverResult(right, None, ""),
        "limit": SolverResult(wrong, True, "optimal"),
    }
    for status, result in results.items():
        monkeypatch.setitem(programme.SOLVERS, "highs", lambda *_, result=result: result)
        assert solve(gram).status == status
    assert verified([0.5] * len(right), gram) is None
    monkeypatch.setitem(programme.SOLVERS, "highs", lambda *_: SolverResult(None, False, "infeasible"))
    mistaken = solve(gram)
    assert (mistaken.status, mistaken.complete) == ("limit", False)
    assert "not confirmed" in mistaken.note
    confirmed = solve(NO_SUCH_BATCH)
    assert (confirmed.status, confirmed.complete) == ("infeasible", True)
    assert solve(NO_SUCH_BATCH, time_limit=0.0).status == "limit"  # a solver that was stopped may report infeasibility


def a_program(folder, text):
    """A shell script, as CBC."""
    path = folder / "cbc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return lambda: str(path)


def test_a_batch_of_a_stopped_cbc_is_partial(monkeypatch, tmp_path):
    stopped = f'"{cbc_program()}" "$@"\nfor last; do :; done\nsed -i "1s/Optimal/Stopped on $WORD/" "$last"'
    monkeypatch.setattr(pulp_solvers, "cbc_program", a_program(tmp_path, stopped))
    x, _ = draw(4, 6, seed=0)
    for word, status in (("time", "partial"), ("time (no integer solution - continuous used)", "limit")):
        monkeypatch.setenv("WORD", word)
        solutions = solve(Gram.of(x), solver="cbc")
        assert solutions.status == status, solutions.note
        assert "Stopped" in solutions.note


def test_programs_that_run_past_their_limit_are_killed(monkeypatch, tmp_path):
    x, _ = draw(4, 6, seed=0)
    monkeypatch.setattr(programme, "SolverBudget", StoppedEarly)
    monkeypatch.setattr(pulp_solvers, "cbc_program", a_program(tmp_path, "exec sleep 3600"))
    monkeypatch.setattr(pulp_solvers, "GRACE_SECONDS", 0)
    monkeypatch.setattr(cpsat.sys, "executable", a_program(tmp_path, "exec sleep 3600")())
    monkeypatch.setattr(cpsat, "STARTUP_SECONDS", 0)
    for solver in ("cbc", "cpsat"):
        solutions = solve(Gram.of(x), solver=solver)
        assert solutions.status == "limit", solver
        assert "killed 0 seconds after the time limit" in solutions.note


def test_a_program_that_fails_is_reported_with_its_errors():
    assert run_program(["cat"], ENDLESS, b"what it reads") == b"what it reads"
    with pytest.raises(RuntimeError, match="sh ended with 3: no licence"):
        run_program(["sh", "-c", "echo no licence >&2; exit 3"], ENDLESS)


def test_violated_bounds_of_cbc_are_read(tmp_path):
    solution = tmp_path / "a.sol"
    solution.write_text("Infeasible - objective value 0\n**    0 C0    0.5   0\n      1 X1   1    0\n")
    assert read_cbc(solution) == ("Infeasible - objective value 0", {"C0": 0.5, "X1": 1.0})


def test_the_first_two_columns_follow_from_alpha():
    x, _ = draw(9, 2, seed=4)
    bits = [prefix for prefix, count in prefixes(Gram.of(x).alpha, 9) for _ in range(count)]
    assert np.array_equal(bits, sort_rows(x)[::-1])


def test_the_tight_programme_has_each_batch_once():
    """All its solutions, by cutting off one after the other: as many as there are batches, up to row order."""
    rows = [np.array(bits) for bits in product((0, 1), repeat=4)]
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # four rows that XOR to zero: ambiguous
    gram = Gram.of(x)
    batches = sum(
        np.array_equal(Gram.of(np.array(other)).alpha, gram.alpha) for other in combinations_with_replacement(rows, 4)
    )
    model = PulpProgramme(SolverBudget(float("inf"), 1, 0))
    entries = write_programme(model, gram, "tight").all
    solutions = set()
    while model.problem.solve(pulp.HiGHS(msg=False, threads=1)) == pulp.LpStatusOptimal:
        bits = [round(entry.varValue) for entry in entries]
        solutions.add(tuple(bits))
        model.add(pulp.lpSum(1 - entry if bit else entry for entry, bit in zip(entries, bits, strict=True)) >= 1)
    assert len(solutions) == batches > 1
    assert len({sort_rows(np.array(bits).reshape(4, 4)).tobytes() for bits in solutions}) == batches


def test_nothing_is_printed_or_left_behind(capfd, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    assert gettempdir() == str(tmp_path / "temporary")
    x, y = draw(5, 6, seed=0)
    for solver in ("highs", "cbc"):
        assert solve(Gram.of(x, y), solver=solver).status == "found"
        assert solve(NO_SUCH_BATCH, solver=solver).status == "infeasible"
        assert capfd.readouterr() == ("", ""), solver
        assert not list((tmp_path / "here").iterdir()), solver
        assert not list((tmp_path / "temporary").iterdir()), solver


def interrupt_soon() -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()


@pytest.fixture
def default_interrupt():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("default_interrupt")
def test_control_c_cancels_highs_while_it_runs(monkeypatch):
    cancelled = []

    def interrupted(run, cancel):
        def running():
            interrupt_soon()
            run()

        run_interruptible(running, lambda: cancelled.append(cancel()))

    run_interruptible = pulp_solvers.run_interruptible
    monkeypatch.setattr(pulp_solvers, "run_interruptible", interrupted)
    x, y = draw(10, 18, seed=0)
    with pytest.raises(KeyboardInterrupt):
        programme.solve(Gram.of(x, y), formulation="published", solver="highs", time_limit=60)
    assert len(cancelled) == 1


@pytest.mark.usefixtures("default_interrupt")
def test_control_c_kills_the_programs_of_cbc_and_cp_sat(monkeypatch, tmp_path):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self)
            interrupt_soon()

    monkeypatch.setattr(solver_run.subprocess, "Popen", Interrupted)
    endless = a_program(tmp_path, "exec sleep 3600")
    monkeypatch.setattr(pulp_solvers, "cbc_program", endless)
    monkeypatch.setattr(cpsat.sys, "executable", endless())
    for solver in ("cbc", "cpsat"):
        with pytest.raises(KeyboardInterrupt):
            solve(Gram.of(draw(4, 6, seed=0)[0]), solver=solver)
        assert started[-1].returncode == -signal.SIGKILL, solver
    assert len(started) == 2


def test_the_number_of_threads_may_change_between_calls():
    x, y = draw(5, 6, seed=0)
    assert [solve(Gram.of(x, y), threads=threads).status for threads in (1, 2, 1)] == ["found"] * 3


def test_the_same_seed_gives_the_same_batch():
    x = np.array([[1, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]])  # two batches have its alpha
    first, second = (solve(Gram.of(x), seed=5).batches[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_a_missing_or_unknown_solver_is_an_error_with_the_choices(monkeypatch):
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
    monkeypatch.setattr(pulp_solvers, "cbc_program", lambda: None)
    with pytest.raises(UserError, match=r"solver=cbc: PuLP includes no CBC"):
        solve(gram, solver="cbc")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"solver=cpsat: OR-Tools is not installed"):
        solve(gram, solver="cpsat")
