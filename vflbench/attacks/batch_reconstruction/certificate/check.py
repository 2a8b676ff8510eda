"""Whether a list of batches is what it claims to be: each one right, and none missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.certificate.matched_sums import matched_sums
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
    most_work: int = MOST_WORK,
) -> Verdict:
    """Whether these are all batches of so many rows with X^T X = alpha for which labels with X^T Y = beta exist.

    alpha: (d, d) and beta: (d,) or None, integers. batches: each (m, d) of 0 and 1. labels: of each batch, shares of positives
    among equal rows, None without beta. tick: called often; what it raises ends the check. Work is counted in steps, not
    in seconds. Every batch and labelling is verified; that none is missing is proved by `is_alone` or by `second_search`.
    """
    listed = {}
    for x in batches:
        ones = np.asarray(x, dtype=np.int64)
        if ones.shape != (rows, len(alpha)) or ((ones != 0) & (ones != 1)).any() or (ones.T @ ones != alpha).any():
            return Verdict(False, "a listed batch does not have this alpha")
        listed[_key(ones)] = ones
    if len(listed) < len(batches):
        return Verdict(False, "a batch is listed twice")
    for x, of_batch in zip(batches, labels or (), strict=labels is not None):
        if beta is None or not of_batch or not all(_labels_fit(x, share, beta) for share in of_batch):
            return Verdict(False, "a listed labelling does not have this beta")
    if len(batches) == 1 and rows and is_alone(batches[0]):
        return Verdict(True, "the columns of [1, X] generate every vector of integers: no other batch has this alpha")
    if is_impossible(alpha, beta, rows):
        return Verdict(not batches, "no batch has these sums")
    work = Work(most_work, tick)
    found = 0
    try:
        for x in second_search(alpha, rows, work) if rows else [np.zeros((0, len(alpha)), dtype=np.uint8)]:
            if _key(x) in listed:
                found += 1
            elif beta is None or _has_labels(x, alpha, beta, work):
                return Verdict(False, "a second search yields another batch")
    except WorkLimitReached:
        return Verdict(False, f"a second search did not end within {most_work} steps")
    if found < len(listed):
        return Verdict(False, "a second search does not yield all of the batches")
    return Verdict(True, "a second search in integers yields the same batches")


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


def _labels_fit(x: np.ndarray, share: np.ndarray, beta: np.ndarray) -> bool:
    """Whether some labels -1 and +1 have these shares of positives among equal rows, and the sums beta."""
    positives: dict[tuple, float] = {}
    sizes: dict[tuple, int] = {}
    for row, part in zip(map(tuple, x.tolist()), share.tolist(), strict=True):
        if any(row):
            positives[row], sizes[row] = positives.get(row, 0.0) + part, sizes.get(row, 0) + 1
    sums = [0] * len(beta)
    for row, total in positives.items():
        count = round(total)
        if abs(total - count) > 1e-6 or not 0 <= count <= sizes[row]:
            return False
        sums = [s + bit * (2 * count - sizes[row]) for s, bit in zip(sums, row, strict=True)]
    return sums == beta.tolist()


def _has_labels(x: np.ndarray, alpha: np.ndarray, beta: np.ndarray, work: Work) -> bool:
    groups, sizes = np.unique(x.astype(np.int64), axis=0, return_counts=True)
    target = (beta + np.diagonal(alpha)) // 2
    return next(matched_sums(groups, target, np.zeros_like(sizes), sizes, work), None) is not None
