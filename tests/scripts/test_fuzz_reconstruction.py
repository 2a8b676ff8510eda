from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from script_runs import load, run

from vflbench.attacks.batch_reconstruction import batch_search  # before the script, whose imports are undone


@pytest.fixture(scope="module")
def fuzz():
    """The script, with what it has tried one by one so far."""
    return load("fuzz_reconstruction")


def paths(printed: str) -> dict[str, list[str]]:
    """The line of each path."""
    return {line.split()[0]: line.split()[1:] for line in printed.splitlines()[1:] if line}


@pytest.mark.slow
def test_no_claim_about_150_instances_of_all_paths_is_wrong(fuzz):
    done = run(fuzz, "--instances", 150, "--seed", 1)
    assert done.returncode == 0, done.stdout
    table = paths(done.stdout)
    assert set(table) == {*fuzz.PATHS, "all"}
    assert int(table["all"][1]) > 75  # certificates


@pytest.mark.slow
def test_no_claim_about_1500_instances_of_all_paths_is_wrong(fuzz):
    done = run(fuzz, "--instances", 1500, "--seed", 2)
    assert done.returncode == 0, done.stdout
    for path, line in paths(done.stdout).items():
        assert path in ("size", "programme") or int(line[1]) >= 20, path


@pytest.fixture
def lying(fuzz, monkeypatch):
    """(a function of the search's result) -> the script, with a search whose results it changes."""

    def change(lie: Callable[[batch_search.SearchResult], batch_search.SearchResult]):
        monkeypatch.setattr(fuzz, "search", lambda *arguments: lie(batch_search.search(*arguments)))
        return fuzz

    return change


def claim(result: batch_search.SearchResult, **claims: float) -> dict[str, float]:
    return {**result.figures, **claims}


@pytest.mark.parametrize("path", ["binary", "counts", "asynchronous"])
def test_a_list_that_lacks_the_batch_is_wrong(path, lying, tmp_path):
    def lie(result):
        shifted = tuple(np.where(np.isnan(batch), batch, 1 - batch) for batch in result.candidates)
        return replace(result, candidates=shifted, figures=claim(result, proved=1.0))

    out = tmp_path / "wrong.jsonl"
    done = run(lying(lie), "--path", path, "--instances", 20, "--out", out)
    assert done.returncode == 1
    assert "the true batch is not among the candidates" in done.stdout
    assert len(out.read_text().splitlines()) > 3


@pytest.mark.slow
def test_a_second_batch_with_the_same_sums_contradicts_unique_and_certain(lying):
    def lie(result):
        if len(result.candidates) < 2:
            return result
        claims = {"unique": 1.0, "proved": 1.0, "entries_certain": 1.0}
        return replace(result, candidates=result.candidates[:1], shares=result.rows, figures=claim(result, **claims))

    done = run(lying(lie), "--path", "binary", "--instances", 40, "--seed", 1)
    assert done.returncode == 1
    assert "another batch" in done.stdout


def test_a_wrong_division_is_wrong(lying):
    def lie(result):
        if result.steps is None:
            return result
        return replace(result, steps=1 - result.steps, figures=claim(result, told_apart=1.0))

    done = run(lying(lie), "--path", "asynchronous", "--instances", 25)
    assert done.returncode == 1
    assert "told_apart: the true division" in done.stdout


def test_infeasible_is_wrong_where_there_is_a_batch(lying):
    def lie(_):
        return batch_search.SearchResult(figures={"proved": 1.0})

    done = run(lying(lie), "--path", "binary", "--instances", 5)
    assert done.returncode == 1
    assert "infeasible, and the batch is binary" in done.stdout


def test_one_instance_is_drawn_again_from_its_seed_and_printed_whole(lying):
    script = lying(lambda result: replace(result, figures={}))
    shown = run(script, "--path", "zero", "--seed", 4, "--only", 3)
    assert shown.returncode == 0
    assert "thetas:" in shown.stdout
    assert shown.stdout == run(script, "--path", "zero", "--seed", 4, "--only", 3).stdout
