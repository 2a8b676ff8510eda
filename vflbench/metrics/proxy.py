"""A proxy of P(label | features), for audits without canaries: it never sees the label of a row that it is asked about."""

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LEAST_ROWS = 100  # to learn from, below which every row has the same chance
_LEAST_OF_A_CLASS = 10


def proxy_scores(features: Tensor, positive: Tensor, learn: Tensor, ask: Tensor, seed: int) -> dict[str, Tensor]:
    """Log odds of a positive label by each of two models, learned from the rows `learn`, for the rows `ask`.

    features: (n, d) finite numbers. positive: (n,) bool. learn, ask: (m,), (k,) places of rows, with none in common. Returns
    `logistic` (standardised features, L2 penalty 1) and `trees` (100 boosted trees of depth 3), (k,) float64 each. Of too
    few rows or features of none, all scores are 0.
    """
    x, asked, y = _finite(features[learn]), _finite(features[ask]), positive[learn].cpu().numpy()
    fewest = min(y.sum(), (~y).sum())
    if len(x) < _LEAST_ROWS or fewest < _LEAST_OF_A_CLASS or not x.shape[1] or not len(asked):
        return {
            "logistic": torch.zeros(len(asked), dtype=torch.float64),
            "trees": torch.zeros(len(asked), dtype=torch.float64),
        }
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    mean, deviation = x.mean(axis=0), x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    standardised, asked_standardised = (((values - mean) / scale).clip(-20, 20) for values in (x, asked))
    trees_of = (
        GradientBoostingClassifier(n_estimators=60, max_depth=3, random_state=seed)
        if len(x) < 500
        else HistGradientBoostingClassifier(max_iter=100, max_depth=3, early_stopping=False, random_state=seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a logistic regression that stops at its last iteration
        linear = LogisticRegression(max_iter=300).fit(standardised, y)
    trees = trees_of.fit(x, y)
    return {
        "logistic": torch.from_numpy(np.asarray(linear.decision_function(asked_standardised), dtype=np.float64)),
        "trees": torch.from_numpy(np.asarray(trees.decision_function(asked), dtype=np.float64)),
    }


def _finite(features: Tensor) -> NDArray[np.float64]:
    x: NDArray[np.float64] = torch.nan_to_num(features.double(), 0.0, 0.0, 0.0).cpu().numpy()
    return x


def better(scores: Mapping[str, Tensor], positive: Tensor) -> str:
    """The name of the scores with the least mean logistic loss on these rows. positive: (k,) bool."""
    y = positive.double()
    return min(scores, key=lambda name: float((torch.nn.functional.softplus(scores[name]) - y * scores[name]).mean()))
