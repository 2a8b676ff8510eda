"""Whether a list of batches is what it claims to be: each one right, and none missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.form import is_alone_among
from vflbench.attacks.batch_reconstruction.certificate.labels import have_beta, number_of_labellings
from vflbench.attacks.batch_reconstruction.certificate.second_search import WorkLimitReached, second_search
from vflbench.attacks.batch_reconstruction.certificate.whole_lattice import is_alone

# Steps of the second search and of the labels: seconds.
MOST_WORK = 200_000


@dataclass(frozen=True)
class Verdict:
    """confirmed: whether the claim is proved a second time. reason: how, or why not, as part of a sentence."""

    confirmed: bool
    reason: str


class Work:
    """Counts steps. Raises WorkLimitReached after `most`, and whatever `tick` raises."""

    def __init__(self, most: int, tick: Callable[[], None]):
        self.left, self._tick = most, tick

    def __call__(self, steps: int) -> None:
        self.left -= max(steps, 1)
        self._tick()
        if self.left < 0:
            raise WorkLimitReached


def confirm_complete(
    alpha: np.ndarray,
    beta: np.ndarray | None,
    rows: int,
    batches: Sequence[np.ndarray],
    labels: Sequence[Sequence[np.ndarray]] | None,
    tick: Callable[[], None],
    *,
    all_labels: bool = True,
    form: np.ndarray | None = None,
    most_work: int = MOST_WORK,
) -> Verdict:
    """Whether these are all batches of so many rows with X^T X = alpha for which labels with X^T Y = beta exist.

    alpha: (d, d) and beta: (d,) or None, integers. batches: each (m, d) of 0 and 1. labels: of each batch, shares of
    positives among equal rows, None without beta. all_labels: whether these should be all labellings of each batch. tick:
    called often; what it raises ends the check. Work is counted in steps, not in seconds. Every batch and labelling is
    verified; that no batch is missing is proved by `is_alone`, by `is_alone_among` with a form (d + 1, d + 1) if one is
    given, or by `second_search`; that no labelling is missing by `number_of_labellings`.
    """
    if (problem := _wrong_entry(alpha, beta, rows, batches, labels)) is not None:
        return Verdict(False, problem)
    if is_impossible(alpha, beta, rows):
        return Verdict(not batches, "a single entry shows that no batch has these sums")
    work = Work(most_work, tick)
    try:
        for x, of_batch in zip(batches, labels or (), strict=labels is not None) if all_labels and beta is not None else ():
            if number_of_labellings(x, alpha, beta, of_batch[0], len(of_batch) + 1, work) != len(of_batch):
                return Verdict(False, "labellings are missing")
        if len(batches) == 1 and rows and is_alone(batches[0], tick):
            return Verdict(True, "the columns of [1, X] generate every vector of integers, so no other batch has this alpha")
        if form is not None and len(batches) == 1 and is_alone_among(_with_intercept(alpha, rows), batches[0], form, work):
            return Verdict(True, "a quadratic form excludes every row that is not in the batch")
        return _same_as_second_search(alpha, beta, rows, batches, work)
    except WorkLimitReached:
        return Verdict(False, f"a second search did not end within {most_work} steps")


def _with_intercept(alpha: np.ndarray, rows: int) -> np.ndarray:
    ones = np.diagonal(alpha)
    return np.block([[np.full((1, 1), rows), ones[None]], [ones[:, None], alpha]]).astype(np.int64)


def _same_as_second_search(
    alpha: np.ndarray, beta: np.ndarray | None, rows: int, batches: Sequence[np.ndarray], work: Work
) -> Verdict:
    missing = {_key(x) for x in batches}
    listed = set(missing)
    for x in second_search(_with_intercept(alpha, rows), work):
        missing.discard(_key(x))
        if _key(x) not in listed and (beta is None or number_of_labellings(x, alpha, beta, None, 1, work)):
            return Verdict(False, "a second search yields another batch")
    if missing:
        return Verdict(False, "a second search does not yield all of the batches")
    return Verdict(True, "a second search in integers yields the same batches" if batches else "so says a second search")


def _wrong_entry(
    alpha: np.ndarray,
    beta: np.ndarray | None,
    rows: int,
    batches: Sequence[np.ndarray],
    labels: Sequence[Sequence[np.ndarray]] | None,
) -> str | None:
    """What is wrong with a listed batch or labelling, in integers, or None."""
    for x in batches:
        ones = np.asarray(x, dtype=np.int64)
        if ones.shape != (rows, len(alpha)) or ((ones != 0) & (ones != 1)).any() or (ones.T @ ones != alpha).any():
            return "a listed batch does not have this alpha"
    if len({_key(x) for x in batches}) < len(batches):
        return "a batch is listed twice"
    if (beta is None) != (labels is None) or (labels is not None and len(labels) != len(batches)):
        return "batches and labels do not belong together"
    listed = zip(batches, labels or (), strict=labels is not None)
    if any(not len(of_batch) or not have_beta(x, of_batch, beta) for x, of_batch in listed):
        return "a listed labelling does not have this beta"
    return None


def is_impossible(alpha: np.ndarray, beta: np.ndarray | None, rows: int) -> bool:
    """Whether a single entry shows that no batch of so many rows has these sums."""
    if alpha.ndim != 2 or alpha.shape[0] != alpha.shape[1] or alpha.dtype.kind not in "iu" or rows < 0:
        return True
    for i, line in enumerate(alpha.tolist()):
        for j, both in enumerate(line):
            one, other = int(alpha[i, i]), int(alpha[j, j])
            if both != alpha[j, i] or not max(0, one + other - rows) <= both <= min(one, other, rows):
                return True
    if beta is None:
        return False
    if beta.shape != alpha.shape[:1] or beta.dtype.kind not in "iu":
        return True
    return any((b - alpha[i, i]) % 2 or abs(b) > alpha[i, i] for i, b in enumerate(beta.tolist()))


def _key(x: np.ndarray) -> bytes:
    """The same for the same rows in any order."""
    return b"".join(sorted(row.tobytes() for row in np.asarray(x, dtype=np.uint8)))
