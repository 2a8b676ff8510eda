"""No claim of the batch reconstruction is wrong, and a wrong one is noticed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reconstruction_fuzz as fuzz

from vflbench.attacks.batch_reconstruction.attack import SearchResult, search

SHARES = {path: share for path, (_, share) in fuzz.PATHS.items()}
FEW = 3  # instances of the rarest path


def wrong_of(path: str, seeds: range) -> list[str]:
    return [line for seed in seeds for line in fuzz.try_one(path, seed)[0].wrong]


@pytest.mark.slow
@pytest.mark.parametrize("path", SHARES)
def test_no_claim_is_wrong(path):
    """`pytest -m slow --hypothesis-profile=long` tries thirteen times as many."""
    claims: Counter[str] = Counter()

    @settings(max_examples=max(FEW, round(5000 * SHARES[path] * settings.default.max_examples / 100)))
    @given(st.integers(0, 2**32 - 1))
    def hold(seed: int) -> None:
        verdict, instance = fuzz.try_one(path, seed)
        claims.update(verdict.claims.keys())
        assert not verdict.wrong, (verdict.wrong, instance)

    hold()
    made = sum(claims[name] for name in ("matches", "proved", "unique", "certain", "batches_separated", "infeasible"))
    assert path == "programme" or made >= 20, claims  # no claim can't be wrong


@pytest.fixture
def lying(monkeypatch):
    """(a function of the search's result) -> the search's results are changed by it."""

    def change(lie: Callable[[SearchResult], SearchResult]) -> None:
        monkeypatch.setattr(fuzz, "search", lambda *arguments, **named: lie(search(*arguments, **named)))

    return change


def claim(result: SearchResult, **claims: float) -> dict[str, float]:
    return {**result.figures, **claims}


@pytest.mark.parametrize("path", ["binary", "mixed", "asynchronous"])
def test_a_list_that_lacks_the_batch_is_wrong(path, lying):
    def lie(result):
        shifted = tuple(np.where(np.isnan(batch), batch, 1 - batch) for batch in result.candidates)
        return replace(result, candidates=shifted, figures=claim(result, proved=1.0))

    lying(lie)
    wrong = wrong_of(path, range(20))
    assert len([line for line in wrong if "the true batch is not among the candidates" in line]) > 3


@pytest.mark.slow
def test_a_second_batch_with_the_same_sums_contradicts_unique_and_certain(lying):
    def lie(result):
        if len(result.candidates) < 2:
            return result
        claims = {"unique": 1.0, "proved": 1.0, "entries_certain": 1.0}
        return replace(result, candidates=result.candidates[:1], shares=result.rows, figures=claim(result, **claims))

    lying(lie)
    assert any("unique:" in line for line in wrong_of("binary", range(100)))


def test_a_wrong_division_is_wrong(lying):
    def lie(result):
        if result.steps is None:
            return result
        return replace(result, steps=1 - result.steps, figures=claim(result, batches_separated=1.0))

    lying(lie)
    assert any("batches_separated: the true division" in line for line in wrong_of("asynchronous", range(25)))


def test_infeasible_is_wrong_where_there_is_a_batch(lying):
    lying(lambda _: SearchResult(figures={"proved": 1.0}))
    assert any("infeasible, and the batch is binary" in line for line in wrong_of("binary", range(5)))
