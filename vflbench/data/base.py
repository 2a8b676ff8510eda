"""Dataset, the base class of every entry of configs/dataset."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any, Literal

import numpy as np
import torch

from vflbench.data.columns import Assignment, ColumnSplit, Parties, assign_columns, training_sample, unassigned_columns
from vflbench.data.rows import EncodedRows, TrainTest
from vflbench.data.table import LABEL_PARTY, Encoding, RawTable, fit
from vflbench.errors import UserError, shown
from vflbench.options import Count, Fraction, Rows, Share, ShareOrZero, options

DROPPED, TRAIN, TEST, VALIDATION = 0, 1, 2, 3
"""What a row is for."""


@options
class Dataset:
    """Rows with labels, split into training and test rows and between parties.

    A subclass overrides `read`.

    Args:
        parties: a number of non-label parties, party -> columns (see `assign_columns`), or how to divide the columns (see
            `columns`): `random`, or {kind: importance, alpha: 1.0, count: 2}.
        rows: number of rows to use, from the first on; all if left out.
        sample: share of these rows to keep, at random, in (0, 1].
        positive_ratio: share of positive rows, in (0, 1), reached by dropping rows of the too frequent class at random;
            published values are 0.45, 0.49 and 0.50, reached by dropping negatives.
        overlap: share of these rows that each non-label party holds, in (0, 1], drawn by each for itself; rows that one
            lacks are left out.
        test_fraction: share of the rows that is held out for testing, in (0, 1).
        validation_fraction: share of all rows that is held out of the others, to choose settings by, in [0, 1); 0 holds out
            none.
        split: test rows are drawn (`random`) or are the last rows (`chronological`); so are validation rows from what is
            left.
        fit_on: vocabularies and min-max are fitted on `all` rows (as published) or on the `train` rows.
        numeric_transform: `none` (as published) or `log`, x <- sign(x) log(1 + |x|) before min-max.
        min_count: categories that occur less often share one id (1 as published, so none do).
    """

    parties: Parties = 1
    rows: Rows | None = None
    sample: Share = 1.0
    positive_ratio: Fraction | None = None
    overlap: Share = 1.0
    test_fraction: Fraction = 0.1
    validation_fraction: ShareOrZero = 0.0
    split: Literal["random", "chronological"] = "random"
    fit_on: Literal["all", "train"] = "all"
    numeric_transform: Literal["none", "log"] = "none"
    min_count: Count = 1

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        """The raw columns, and facts for the run's manifest. The fact `notes` is a list of lines to print instead."""
        raise NotImplementedError

    def load(self, rng: torch.Generator) -> TrainTest:
        """Read the rows, split them and fit the encoding. The same generator state gives the same rows, bit for bit."""
        raw, facts = self.read(rng)
        notes = tuple(facts.pop("notes", ()))
        facts = {"class_rows": class_rows(raw, facts.get("classes_are") or facts.get("class_names")), **facts}
        names, about_columns, doubts = self.usable(raw, facts)
        facts, notes = {**facts, **about_columns}, (*notes, *doubts)
        is_split = isinstance(self.parties, ColumnSplit)
        assignment = {} if is_split else self.assign(names)
        others = [party for party in assignment if party != LABEL_PARTY] or ascii_lowercase[: self.parties.count]
        role, more, lines = self.choose(raw, others, rng, tuple(facts["class_rows"]))
        if is_split:
            assignment, note = self.divide(names, raw, role)
            lines = (*lines, note)
        notes = (*notes, *lines)
        encoding = self.fitted(raw, assignment, role)
        unused = unassigned_columns(assignment, raw.names)
        facts = {**facts, **more, **({"columns_left_out": list(unused)} if unused else {})}
        digest = hashlib.sha256(raw.fingerprint.encode())
        digest.update(role)
        encoding.update(digest)
        return self.split_rows(raw, encoding, role, digest.hexdigest(), facts, notes)

    def usable(self, raw: RawTable, facts: Mapping[str, Any]) -> tuple[list[str], dict[str, Any], tuple[str, ...]]:
        """The columns that are features, facts on them for the manifest, and lines to print. facts: of `read`."""
        return list(raw.names), {}, ()

    def choose(
        self, raw: RawTable, parties: Sequence[str], rng: torch.Generator, classes: Sequence[str] = ()
    ) -> tuple[np.ndarray, dict[str, Any], tuple[str, ...]]:
        """(n,) uint8, what each row is for, from the labels alone; facts for the manifest, and lines to print. parties: the
        non-label parties. classes: their names, for errors.
        """
        kept = self._choose_rows(raw, rng)
        facts: dict[str, Any] = {}
        notes: tuple[str, ...] = ()
        if self.overlap < 1:
            kept, facts, note = shared_rows(kept, self.overlap, parties, rng)
            notes = (note,)
        role = self._test_rows(raw, kept, rng)
        if self.validation_fraction:
            role = self._hold_out(role, VALIDATION, "validation_fraction", rng)
        self._check_classes(raw, role, classes)
        return role, facts, notes

    def fitted(self, raw: RawTable, assignment: Assignment, role: np.ndarray) -> Encoding:
        """The encoding of these parties' columns, each fitted by itself."""
        every_row_fitted = self.fit_on == "all"
        return fit(
            raw,
            assignment,
            np.flatnonzero(role != DROPPED if every_row_fitted else role == TRAIN),
            every_row_fitted=every_row_fitted,
            min_count=self.min_count,
            numeric_transform=self.numeric_transform,
        )

    def split_rows(
        self,
        raw: RawTable,
        encoding: Encoding,
        role: np.ndarray,
        fingerprint: str,
        facts: Mapping[str, Any],
        notes: tuple[str, ...],
    ) -> TrainTest:
        """The rows of each role, of one table and encoding."""
        train = EncodedRows(raw, encoding, role, TRAIN)
        validation = replace(train, wanted=VALIDATION) if self.validation_fraction else None
        return TrainTest(train, replace(train, wanted=TEST), fingerprint, facts, notes, validation)

    def assign(self, names: Sequence[str]) -> Assignment:
        """The columns of each party. names: all columns in the source's order."""
        return assign_columns(self.parties, names)

    def divide(self, names: Sequence[str], raw: RawTable, role: np.ndarray) -> tuple[Assignment, str]:
        """The columns of each party where they are divided by what the training rows hold, and a line on it."""
        split: ColumnSplit = self.parties
        return split.assign(names, raw, training_sample(role == TRAIN))

    def target_positive_ratio(self) -> float | None:
        """The positive ratio to reach by dropping rows; None drops no row."""
        return self.positive_ratio

    def _choose_rows(self, raw: RawTable, rng: torch.Generator) -> np.ndarray:
        """(n,) bool: the rows that remain after `sample` and `positive_ratio`."""
        kept = np.ones(len(raw), dtype=bool)
        if self.sample < 1:
            _thin(kept, kept, max(1, round(self.sample * len(kept))), rng)
        ratio = self.target_positive_ratio()
        if ratio is None:
            return kept
        if raw.classes > 2:
            problem = f"the labels have {raw.classes} classes; a positive ratio needs exactly two"
            raise UserError(problem, key="dataset.positive_ratio", value=ratio)
        positive = raw.labels != 0
        negatives, positives = np.count_nonzero(kept & ~positive), np.count_nonzero(kept & positive)
        if not negatives or not positives:
            return kept  # one class only: `load` raises an error
        odds = ratio / (1 - ratio)
        if positives < odds * negatives:
            _thin(kept, kept & ~positive, round(positives / odds), rng)
        else:
            _thin(kept, kept & positive, round(negatives * odds), rng)
        return kept

    def _test_rows(self, raw: RawTable, kept: np.ndarray, rng: torch.Generator) -> np.ndarray:
        """(n,) uint8: TEST for test rows, TRAIN for other rows that are kept, DROPPED for the rest. kept: (n,) bool."""
        return self._hold_out(kept.astype(np.uint8), TEST, "test_fraction", rng)

    def _hold_out(self, role: np.ndarray, purpose: int, option: str, rng: torch.Generator) -> np.ndarray:
        """(n,) uint8: `role` with training rows taken for this purpose; `option` names their share of all rows."""
        kept, rows = role == TRAIN, int(np.count_nonzero(role))
        count, left = max(1, math.floor(rows * getattr(self, option) + 0.5)), int(np.count_nonzero(kept))
        if left - count < 1:
            purposes = {TEST: "testing", VALIDATION: "validation"}
            raise UserError(
                f"of {left} row(s), {count} are for {purposes[purpose]} and none remains for training; more rows are needed",
                key=f"dataset.{option}",
                value=getattr(self, option),
            )
        places = np.flatnonzero(kept)
        chosen = torch.randperm(left, generator=rng)[:count].numpy() if self.split == "random" else slice(left - count, None)
        role[places[chosen]] = purpose
        return role

    def _check_classes(self, raw: RawTable, role: np.ndarray, names: Sequence[str]) -> None:
        seen = np.unique(raw.labels[role == TRAIN])
        if len(seen) > 1:
            return
        label, column = int(seen[0]), getattr(self, "label", None)
        name = shown(names[label], 40) if label < len(names) else str(label)
        where = f" in column {shown(column, 40)}" if column else ""
        problem = f"every training row has the label {name}{where}; a label leak needs at least two classes"
        raise UserError(problem, key="dataset")


def class_rows(raw: RawTable, names: Sequence[str] | None = None) -> dict[str, int]:
    """How many rows each class has, before any is dropped. names: of the classes; None: their numbers."""
    rows = np.bincount(raw.labels, minlength=raw.classes)
    return {names[k] if names and k < len(names) else str(k): int(count) for k, count in enumerate(rows)}


def _thin(kept: np.ndarray, candidates: np.ndarray, count: int, rng: torch.Generator) -> None:
    """Keep `count` of the candidates, drawn at random, and drop the others. kept, candidates: (n,) bool."""
    places = np.flatnonzero(candidates)
    kept[places[torch.randperm(len(places), generator=rng)[count:].numpy()]] = False


def shared_rows(
    kept: np.ndarray, share: float, parties: Sequence[str], rng: torch.Generator
) -> tuple[np.ndarray, dict[str, Any], str]:
    """(n,) bool: the rows of `kept` that every non-label party holds; facts for the manifest, and a line.

    Each of the K parties holds round(share m) of the m rows of `kept`, drawn from a generator of its own, so about m share^K
    rows are shared. The label party holds all. kept: (n,) bool. Raises UserError where fewer than two rows are shared.
    """
    shared, total = kept.copy(), int(np.count_nonzero(kept))
    held = max(1, round(share * total))
    for _ in parties:
        draws = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=rng)))
        mine = kept.copy()
        _thin(mine, kept, held, draws)
        shared &= mine
    count = int(np.count_nonzero(shared))
    if count < 2:
        problem = f"of {total:,} rows, each of {len(parties)} holds {held:,}, and {count} are shared; training needs more"
        raise UserError(problem, key="dataset.overlap", value=share)
    facts = {"overlap": {"rows": total, "shared": count, "held": dict.fromkeys(parties, held)}}
    note = (
        f"overlap: of the label party's {total:,} rows each non-label party holds {held:,}; the {count:,} that all share "
        f"are used, and {total - count:,} are left out"
    )
    return shared, facts, note
