"""No claim of the batch reconstruction is wrong, and a wrong one is noticed."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import reconstruction_fuzz as fuzz

from vflbench.attacks.batch_reconstruction.attack import SearchResult, search

SHARES = {path: share for path, (_, share) in fuzz.PATHS.items()}
FEW = 3  # instances of the rarest path


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


def claiming(result: SearchResult, *claims: str, **changes: Any) -> SearchResult:
    return replace(result, **changes, figures={**result.figures, **dict.fromkeys(claims, 1.0)})


def shifted(result: SearchResult) -> SearchResult:
    return claiming(result, "proved", candidates=tuple(1 - batch for batch in result.candidates))


def alone(result: SearchResult) -> SearchResult:
    claims = ("unique", "proved", "entries_certain") if len(result.candidates) > 1 else ()
    return claiming(result, *claims, candidates=result.candidates[:1], shares=result.rows if claims else result.shares)


def divided(result: SearchResult) -> SearchResult:
    return result if result.steps is None else claiming(result, "batches_separated", steps=1 - result.steps)


def infeasible(_: SearchResult) -> SearchResult:
    return SearchResult(figures={"proved": 1.0})


@pytest.mark.parametrize(
    ("path", "lie", "seeds", "verdict"),
    [
        *((path, shifted, 20, "the true batch is not among the candidates") for path in ("binary", "mixed", "asynchronous")),
        pytest.param("binary", alone, 100, "unique:", marks=pytest.mark.slow),
        ("asynchronous", divided, 25, "batches_separated: the true division"),
        ("binary", infeasible, 5, "infeasible, and the batch is binary"),
    ],
)
def test_a_lie_is_noticed(path, lie, seeds, verdict, monkeypatch):
    monkeypatch.setattr(fuzz, "search", lambda *arguments, **named: lie(search(*arguments, **named)))
    wrong = [line for seed in range(seeds) for line in fuzz.try_one(path, seed)[0].wrong]
    assert any(verdict in line for line in wrong)
