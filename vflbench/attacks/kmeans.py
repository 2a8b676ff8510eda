"""K-means attack: the classes are the clusters of a batch."""

import math
import warnings
from typing import Literal

import numpy as np
import torch

from vflbench.attacks.base import MESSAGE_FACTS, Attack, Scores, message_threat
from vflbench.messages.facts import ClassHints, ClassShares
from vflbench.messages.threat import Threat, View
from vflbench.options import options

_STARTS, _ITERATIONS = 4, 100


@options
class Kmeans(Attack):
    """Cluster a batch into as many clusters as there are classes, at every layer, and assign a class to each cluster.

        s_ik = - |x_i - c_m(k)|^2,   c_1 .. c_K the centres of k-means,  m: class -> cluster, one to one

    message: `embeddings` (including the label party's own layers, for comparison) or `gradients`.
    map: `ratios` (the attacker knows the class shares: the largest cluster is the most frequent class, and so on) or `hints`
    (it knows one row of each class, which the run draws afresh in each batch and doesn't score; classes are assigned so that
    these rows are nearest to the centres of their clusters, in the sum of squares).

    With nearly equal shares, as in digits, their order is noise. Accuracy and AUC under `ratios` are then those of an
    arbitrary assignment: read the adjusted mutual information, which doesn't depend on the assignment, or use `hints`.

    It takes the best of four k-means++ starts, in units of the largest value. A batch with fewer rows than classes is not
    scored.

    Source: Lloyd, "Least squares quantization in PCM", 1982; Arthur and Vassilvitskii, "k-means++", 2007; clusters as
    labels: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    max_classes = math.inf

    message: Literal["embeddings", "gradients"] = "embeddings"
    map: Literal["ratios", "hints"] = "ratios"

    @property
    def threat(self) -> Threat:
        return message_threat(self.message, ClassShares if self.map == "ratios" else ClassHints)

    def batch(self, view: View) -> Scores:
        scores = {}
        shares = view[ClassShares].shares if self.map == "ratios" else ()
        hints = view[ClassHints].places.cpu().numpy() if self.map == "hints" else np.empty(0, dtype=np.int64)
        for layer, values in view[MESSAGE_FACTS[self.message]].layers.items():
            seed = int(torch.randint(2**31 - 1, (), generator=view.rng, device=view.rng.device))
            x = (values.double() - values.double().mean(dim=0)).cpu().numpy()
            x = x / max(np.abs(x).max(initial=0), np.finfo(np.float64).tiny)
            clustered = self.cluster(x, len(shares) or len(hints), hints, seed)
            if clustered is not None:
                labels, likeness = clustered
                order = by_hints(-likeness[hints]) if len(hints) else by_ratios(labels, shares)
                scores[layer] = torch.from_numpy(likeness[:, order]).to(values.device)
        return Scores(view.ids, scores)

    def cluster(self, x: np.ndarray, classes: int, hints: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The clusters of some rows, and how near every row is to each cluster, (n, K); None for too few rows.

        x: (n, d), centred, in units of the largest value. hints: places of known rows.
        """
        if len(x) < classes:
            return None
        labels, squares = clusters(x.astype(np.float32), classes, seed)
        return labels, -squares


def clusters(x: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of each row, (n,), and its squared distance to every centre, (n, count). x: (n, d)."""
    from sklearn.cluster import KMeans  # late: it takes a second to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        fitted = KMeans(count, n_init=_STARTS, max_iter=_ITERATIONS, random_state=seed).fit(x)
    squares = np.stack([np.square(x - centre).sum(axis=1, dtype=np.float64) for centre in fitted.cluster_centers_], axis=1)
    return fitted.labels_, squares


def by_ratios(labels: np.ndarray, ratios: tuple[float, ...]) -> np.ndarray:
    """(K,) the cluster of each class: the largest for the most frequent. labels: (n,) clusters; ratios: of the K classes."""
    order = np.empty(len(ratios), dtype=np.int64)
    sizes = np.bincount(labels, minlength=len(ratios))
    order[np.argsort(ratios, kind="stable")] = np.argsort(sizes, kind="stable")
    return order


def by_hints(distances: np.ndarray) -> np.ndarray:
    """(K,) the cluster of each class: the pairing with the least sum. distances: (K, K), of a row of class k to centre j."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(distances)[1]
