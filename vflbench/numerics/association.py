"""How strongly columns go together, numeric and categorical ones alike."""

import numpy as np

_MOST_VALUES = 32
"""Values of a category that are told apart; all rarer ones count as one."""


def association(numeric: np.ndarray, categorical: np.ndarray) -> np.ndarray:
    """(k + c, k + c) symmetric matrix over k numeric columns, then c categorical ones; the diagonal is 1.

    Two numeric columns: Spearman's rank correlation, in [-1, 1].
    A numeric column x and a category with values 1 .. V: the root of the share of the variance of the ranks of x that lies
    between the values, corrected for what V values explain by chance (Kelley's epsilon squared):
        eps^2 = 1 - (1 - eta^2) (n - 1) / (n - V)
    Two categories: Cramer's V, corrected in the same way (Bergsma 2013).
    Both are 0 where the corrected value is negative. A constant column has 0 with every other and with itself.

    numeric: (n, k). categorical: (n, c) codes; the 31 most frequent values of a column are told apart, all others are one.
    Source: Bergsma, "A bias-correction for Cramer's V and Tschuprow's T", Journal of the Korean Statistical Society, 2013.
    """
    k, c = numeric.shape[1], categorical.shape[1]
    from scipy.stats import rankdata  # takes half a second to import

    ranks = np.stack([_standard(rankdata(x)) for x in numeric.T]) if k else np.zeros((0, len(numeric)))
    values = [_frequent(codes) for codes in categorical.T]
    whole = np.zeros((k + c, k + c))
    whole[:k, :k] = ranks @ ranks.T / max(1, ranks.shape[1])
    for j, codes in enumerate(values):
        for i in range(k):
            whole[i, k + j] = whole[k + j, i] = _of_numeric(ranks[i], codes)
        for i in range(j):
            whole[k + i, k + j] = whole[k + j, k + i] = _of_categories(values[i], codes)
    varies = [bool(x.any()) for x in ranks] + [bool(codes.max(initial=0)) for codes in values]
    whole[np.diag_indices(k + c)] = varies
    return whole.clip(-1.0, 1.0)


def _standard(x: np.ndarray) -> np.ndarray:
    """With mean 0 and variance 1; zeros if it is constant."""
    centred = x - x.mean()
    scale = centred.std()
    return centred / scale if scale > 0 else np.zeros_like(centred)


def _frequent(codes: np.ndarray) -> np.ndarray:
    """(n,) 0 .. V - 1, the most frequent value first."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    place = np.empty(len(counts), np.int64)
    place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return np.minimum(place, _MOST_VALUES - 1)[inverse]


def _of_numeric(ranks: np.ndarray, codes: np.ndarray) -> float:
    n, counts = len(codes), np.bincount(codes)
    if n <= len(counts) or not ranks.any():
        return 0.0
    eta_squared = (np.bincount(codes, ranks) ** 2 / counts).sum() / n
    return float(np.sqrt(max(0.0, 1 - (1 - eta_squared) * (n - 1) / (n - len(counts)))))


def _of_categories(a: np.ndarray, b: np.ndarray) -> float:
    n, r, s = len(a), int(a.max(initial=0)) + 1, int(b.max(initial=0)) + 1
    if n < 2:
        return 0.0
    table = np.bincount(a * s + b, minlength=r * s).reshape(r, s)
    expected = np.outer(table.sum(1), table.sum(0)) / n
    phi_squared = max(0.0, ((table - expected) ** 2 / expected).sum() / n - (r - 1) * (s - 1) / (n - 1))
    least = min(size - (size - 1) ** 2 / (n - 1) for size in (r, s)) - 1
    return float(np.sqrt(min(1.0, phi_squared / least))) if least > 0 else 0.0
