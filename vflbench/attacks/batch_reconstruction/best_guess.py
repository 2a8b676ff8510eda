"""Guesses of a batch: from its sums, where no search found one, and from the shares of ones in columns alone."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.solutions import align_rows

_STEPS = 3000
_HOT, _COLD = 20.0, 0.6
"""Temperatures at the first and the last step, in units of squared differences of alpha's entries."""


@dataclass(frozen=True)
class GuessedBatch:
    """rows: (m, d) uint8; labels: (m,) of -1 and +1, or None without beta. difference: |X^T X - alpha|^2; label_difference:
    |X^T y - beta|^2. Both 0: the guess has these very sums.
    """

    rows: np.ndarray
    labels: np.ndarray | None
    difference: float
    label_difference: float


def guess_batch(
    alpha: np.ndarray, beta: np.ndarray | None, rows: int, *, steps: int = _STEPS, seed: int = 0
) -> GuessedBatch:
    """A binary batch whose X^T X is near alpha, and labels with X^T y near beta.

    Minimises |X^T X - alpha|^2 by simulated annealing over exchanges: in one column a 1 and a 0 change places, so the
    diagonal of alpha stays right. One step draws an exchange of a random column among all of them, with probabilities
    exp(-change / temperature). Then |X^T y - beta|^2 likewise over changes of one label. The number of steps is fixed, the
    draws follow from the seed. alpha: (d, d), beta: (d,), integers or estimates of them.
    """
    draw = np.random.default_rng(seed)
    alpha = np.asarray(alpha, dtype=float)
    ones = np.clip(np.rint(np.diagonal(alpha)), 0, rows).astype(int)
    x = np.zeros((rows, len(alpha)))
    for column, count in enumerate(ones):
        x[draw.permutation(rows)[:count], column] = 1.0
    movable = np.flatnonzero((ones > 0) & (ones < rows))
    if len(movable):
        x = _annealed(x, alpha, movable, draw, steps)
    gram = x.T @ x
    difference = float(np.square(gram - alpha).sum())
    if beta is None:
        return GuessedBatch(x.astype(np.uint8), None, difference, 0.0)
    y = guess_labels(x, np.asarray(beta, dtype=float), seed=seed)
    return GuessedBatch(x.astype(np.uint8), y, difference, float(np.square(x.T @ y - beta).sum()))


def _annealed(x: np.ndarray, alpha: np.ndarray, movable: np.ndarray, draw: np.random.Generator, steps: int) -> np.ndarray:
    """The best X of all steps."""
    over = x.T @ x - alpha
    np.fill_diagonal(over, 0.0)
    scores, equal = x @ over, x @ x.T  # equal: common ones of two rows
    energy = best_energy = float(np.square(over).sum())
    best, columns, uniform = x.copy(), draw.choice(movable, steps), draw.random(steps)
    counts = x.sum(axis=1)
    for step, temperature in enumerate(np.geomspace(_HOT, _COLD, steps)):
        j = columns[step]
        with_one, with_zero = np.flatnonzero(x[:, j]), np.flatnonzero(x[:, j] == 0)
        f = scores[:, j]
        # Row r gives its 1 to row s: over_jk changes by v_k = x_sk - x_rk for k != j, and so does over_kj.
        hamming = counts[with_one, None] - 1 + counts[with_zero] - 2 * equal[np.ix_(with_one, with_zero)]
        change = 4 * (f[with_zero] - f[with_one, None]) + 2 * hamming
        weights = np.exp(np.minimum(-change / temperature, 50.0)).ravel()
        stay = 1.0
        cumulative = np.cumsum(weights)
        at = int(np.searchsorted(cumulative, uniform[step] * (cumulative[-1] + stay)))
        if at == len(weights):
            continue
        r, s = with_one[at // len(with_zero)], with_zero[at % len(with_zero)]
        energy += float(change.ravel()[at])
        v = x[s] - x[r]
        v[j] = 0.0
        over[j] += v
        over[:, j] += v
        scores[:, j] += x @ v
        scores += np.outer(x[:, j], v)
        scores[r] -= over[j]
        scores[s] += over[j]
        x[r, j], x[s, j] = 0.0, 1.0
        counts[r] -= 1
        counts[s] += 1
        for row in (r, s):
            equal[row] = equal[:, row] = x @ x[row]
        if energy < best_energy:
            best_energy, best = energy, x.copy()
            if energy <= 0.5 and np.array_equal(x.T @ x, np.rint(alpha)):
                break
    return best


def guess_labels(x: np.ndarray, beta: np.ndarray, *, steps: int = _STEPS // 2, seed: int = 0) -> np.ndarray:
    """y in {-1, +1} with a small |X^T y - beta|^2: least squares, then annealing. x: (m, d); beta: (d,). Returns (m,)."""
    draw, x, beta = np.random.default_rng(seed), np.asarray(x, dtype=float), np.asarray(beta, dtype=float)
    if not len(x):
        return np.zeros(0)
    y = np.where(np.linalg.lstsq(x.T, beta, rcond=None)[0] >= 0, 1.0, -1.0)
    over, norms = x.T @ y - beta, x.sum(axis=1)
    energy = best_energy = float(np.square(over).sum())
    best, uniform = y.copy(), draw.random(steps)
    for step, temperature in enumerate(np.geomspace(_HOT, _COLD, steps)):
        if best_energy < 0.5:
            break
        change = 4 * (norms - y * (x @ over))
        cumulative = np.cumsum(np.exp(np.minimum(-change / temperature, 50.0)))
        at = int(np.searchsorted(cumulative, uniform[step] * (cumulative[-1] + 1.0)))
        if at == len(y):
            continue
        over -= 2 * y[at] * x[at]
        y[at] = -y[at]
        energy += float(change[at])
        if energy < best_energy:
            best_energy, best = energy, y.copy()
    return best


def guesses_by_columns(shares: np.ndarray, rows: int, *, draws: int = 20, seed: int = 0) -> np.ndarray:
    """Batches that need no update, only each column's share of ones: (draws, m, d) uint8.

    Rows of a guess are matched to the true ones before they are compared, so independent draws are right more often than
    their entries alone. The entries are 1 with probability p^k / (p^k + (1 - p)^k), and k is that of 1, 2, 4 and infinity
    (the majority of each column) which does best on batches drawn by the shares themselves. shares: (d,) in [0, 1].
    """
    draw = np.random.default_rng(seed)
    shares = np.clip(np.asarray(shares, dtype=float), 0.0, 1.0)
    truths = draw.random((draws, rows, len(shares))) < shares
    best: np.ndarray = np.empty(0)
    most = -1.0
    for power in (1.0, 2.0, 4.0, np.inf):
        drawn = draw.random(truths.shape) < _sharpened(shares, power)
        right = float(np.mean([(g[align_rows(g, x)] == x).mean() for g, x in zip(drawn, truths, strict=True)]))
        if right > most:
            best, most = drawn, right
    return best.astype(np.uint8)


def _sharpened(shares: np.ndarray, power: float) -> np.ndarray:
    if power == np.inf:
        return np.where(shares > 0.5, 1.0, 0.0)
    ones, zeros = shares**power, (1 - shares) ** power
    return ones / (ones + zeros)
