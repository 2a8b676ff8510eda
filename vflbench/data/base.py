"""Dataset: what every entry of configs/dataset builds."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from vflbench.data.assignment import Assignment, Parties, assign_columns, left_out
from vflbench.data.encode import RawTable, fit, measure
from vflbench.data.rows import EncodedRows, TrainTest
from vflbench.errors import UserError
from vflbench.options import Count, Fraction, options

_STRATUM = 1 << 18
"""Rows are drawn stratum by stratum of so many neighbours, each giving its share: no draw needs memory for all rows."""

_DROPPED, _TRAIN, _TEST = 0, 1, 2


@options
class Dataset:
    """Rows with labels, split into training and test rows and between parties.

    parties: a number of non-label parties, or party -> columns (see `assign_columns`).
    rows: use the first so many rows only. sample: then keep a random share of them.
    positive_ratio: then drop rows of the class that is too frequent, at random, until the other has this share; as
    published with 0.45, 0.49 and 0.50, by dropping negatives.
    test_fraction: share of the rows that is held out for testing.
    split: `random` draws them; `chronological` takes the last rows.
    fit_on: what vocabularies and min-max see, `all` rows (as published) or `train` rows alone.
    numeric_transform: `none` (as published) or `log`, x <- sign(x) log(1 + |x|) before min-max.
    min_count: categories seen less often share one id (1 as published: none do).

    A subclass overrides `read`.
    """

    parties: Parties = 1
    rows: Count | None = None
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    positive_ratio: Fraction | None = None
    test_fraction: Fraction = 0.1
    split: Literal["random", "chronological"] = "random"
    fit_on: Literal["all", "train"] = "all"
    numeric_transform: Literal["none", "log"] = "none"
    min_count: Count = 1

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        """The raw columns, and facts about them for the run's manifest; a fact `notes` is shown to the user."""
        raise NotImplementedError

    def load(self, rng: torch.Generator) -> TrainTest:
        """Read, split, fit the encoding. The same generator state gives the same rows, bit for bit."""
        raw, facts = self.read(rng)
        notes = tuple(facts.pop("notes", ()))
        names = list(raw.names)
        assignment = self.assign(names)
        kept = self._choose_rows(raw, rng)
        role = self._choose_test_rows(kept, rng)
        self._check_classes(raw, role)
        every_row_fitted = self.fit_on == "all"
        statistics = raw.statistics if every_row_fitted and kept.all() else None
        if statistics is None:
            fitted = kept if every_row_fitted else role == _TRAIN
            statistics = measure(raw, (start + found for start, found in _strata(fitted)))
        encoding = fit(
            raw,
            assignment,
            statistics,
            every_row_fitted=every_row_fitted,
            min_count=self.min_count,
            numeric_transform=self.numeric_transform,
        )
        unused = left_out(assignment, names)
        if unused:
            facts = {**facts, "columns_left_out": list(unused)}
        digest = hashlib.sha256(raw.fingerprint.encode())
        digest.update(role)
        encoding.update(digest)
        train, test = (EncodedRows(raw, encoding, role, wanted) for wanted in (_TRAIN, _TEST))
        return TrainTest(train, test, digest.hexdigest(), facts, notes)

    def assign(self, names: Sequence[str]) -> Assignment:
        """Which party holds which of the columns, which are in the source's order."""
        return assign_columns(self.parties, names)

    def ratio_to_thin_to(self) -> float | None:
        """The positive ratio that rows are dropped for."""
        return self.positive_ratio

    def _choose_rows(self, raw: RawTable, rng: torch.Generator) -> np.ndarray:
        """(n,) bool: the rows that `sample` and `positive_ratio` leave."""
        kept = np.ones(len(raw), dtype=bool)
        if self.sample < 1:
            _thin(kept, kept, max(1, round(self.sample * len(kept))), rng)
        wanted = self.ratio_to_thin_to()
        if wanted is None:
            return kept
        if raw.classes > 2:
            problem = f"the labels have {raw.classes} classes; a positive ratio goes with two"
            raise UserError(problem, key="dataset.positive_ratio", value=wanted)
        positive = raw.labels != 0
        negatives, positives = np.count_nonzero(kept & ~positive), np.count_nonzero(kept & positive)
        if not negatives or not positives:
            return kept  # one class; `load` says so
        odds = wanted / (1 - wanted)
        if positives < odds * negatives:
            _thin(kept, kept & ~positive, round(positives / odds), rng)
        else:
            _thin(kept, kept & positive, round(negatives * odds), rng)
        return kept

    def _choose_test_rows(self, kept: np.ndarray, rng: torch.Generator) -> np.ndarray:
        """(n,) uint8: what each row is for."""
        rows = np.count_nonzero(kept)
        count = max(1, math.floor(rows * self.test_fraction + 0.5))
        if rows - count < 1:
            raise UserError(
                f"{rows} rows leave no row to train on beside {count} test row(s); it needs more rows",
                key="dataset.test_fraction",
                value=self.test_fraction,
            )
        role = kept.astype(np.uint8)
        if self.split == "random":
            for start, found, share in _shares(kept, count):
                role[start + found[torch.randperm(len(found), generator=rng)[:share].numpy()]] = _TEST
            return role
        seen = 0
        for start, found in _strata(kept):
            seen += len(found)
            role[start + found[len(found) - min(len(found), max(0, seen - (rows - count))) :]] = _TEST
        return role

    @staticmethod
    def _check_classes(raw: RawTable, role: np.ndarray) -> None:
        seen: set[int] = set()
        for start, found in _strata(role == _TRAIN):
            seen.update(np.unique(raw.labels[start : start + _STRATUM][found]).tolist())
            if len(seen) > 1:
                return
        raise UserError(
            f"every training row has the label {min(seen)}; a label leak needs at least two classes", key="dataset"
        )


def _strata(chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The first row of each stratum, and the places in it of the rows that are chosen. chosen: (n,) bool."""
    for start in range(0, len(chosen), _STRATUM):
        yield start, chosen[start : start + _STRATUM].nonzero()[0]


def _shares(chosen: np.ndarray, count: int) -> Iterator[tuple[int, np.ndarray, int]]:
    """`_strata`, and how many of each stratum's chosen rows are due for `count` of them all."""
    total, seen = np.count_nonzero(chosen), 0
    for start, found in _strata(chosen):
        due = (seen + len(found)) * count // total - seen * count // total if total else 0
        seen += len(found)
        yield start, found, due


def _thin(kept: np.ndarray, candidates: np.ndarray, count: int, rng: torch.Generator) -> None:
    """Of the candidates keep so many, drawn at random."""
    for start, found, share in _shares(candidates, count):
        drawn = torch.randperm(len(found), generator=rng)[:share].numpy()
        kept[start + found] = False
        kept[start + found[drawn]] = True
