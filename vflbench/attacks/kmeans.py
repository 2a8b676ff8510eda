"""K-means attack: the classes are the clusters of a batch."""

import math
import warnings
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import ABOUT, Attack
from vflbench.messages.transcript import Knowledge, View
from vflbench.messages.wire import Kind
from vflbench.options import options

_STARTS, _ITERATIONS = 4, 100


@options
class Kmeans(Attack):
    """Cluster a batch into as many clusters as there are classes, at every layer, and take each for a class.

        s_ik = - |x_i - c_m(k)|^2,   c_1 .. c_K the centres of k-means,  m: class -> cluster, one to one

    message: embeddings (those of the label party's own layers among them, for the record) or gradients.
    map: `ratios` (the attacker knows how frequent the classes are: the largest cluster is the most frequent class, and so
    on down) or `hints` (it knows one row of each class, drawn by the run afresh in each batch and not scored; clusters and
    classes are paired so that these rows are nearest to their clusters' centres, in the sum of squares).

    With nearly equal ratios, as in digits, their order is noise, and accuracy and AUC under `ratios` are those of an
    arbitrary pairing: read the adjusted mutual information, which does not depend on the pairing, or use `hints`.

    The best of four k-means++ starts, in units of the largest value. A batch with fewer rows than classes is not scored.

    Source: Lloyd, "Least squares quantization in PCM", 1982; Arthur and Vassilvitskii, "k-means++", 2007; clusters as
    labels: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
    """

    knows = frozenset({Knowledge.EMBEDDINGS, Knowledge.PRIOR})
    scores = Kind.EMBEDDING
    max_classes = math.inf

    message: Literal["embeddings", "gradients"] = "embeddings"
    map: Literal["ratios", "hints"] = "ratios"

    def __post_init__(self) -> None:
        seen, self.scores = ABOUT[self.message]
        self.knows = frozenset({seen, Knowledge.PRIOR if self.map == "ratios" else Knowledge.HINTS})
        self.class_hints = self.map == "hints"

    def infer(self, view: View) -> Mapping[str, Tensor]:
        answer = {}
        for layer, values in view.layers(self.scores).items():
            centred = (values.double() - values.double().mean(dim=0)).cpu().numpy()
            x = (centred / max(np.abs(centred).max(initial=0), np.finfo(np.float64).tiny)).astype(np.float32)
            seed = int(torch.randint(2**31 - 1, (), generator=view.rng, device=view.rng.device))
            known = view.class_hints.cpu().numpy() if self.map == "hints" else None
            classes = len(view.class_ratios) if known is None else len(known)
            if len(x) < classes:
                continue
            labels, distances = clusters(x, classes, seed)
            order = by_ratios(labels, view.class_ratios) if known is None else by_hints(distances[known])
            answer[layer] = torch.from_numpy(-distances[:, order]).to(values.device)
        return answer


def clusters(x: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The cluster of each row, (n,), and its squared distance to every centre, (n, count). x: (n, d)."""
    from sklearn.cluster import KMeans  # takes a second to import, which other attacks needn't wait
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters: a layer that says little
        found = KMeans(count, n_init=_STARTS, max_iter=_ITERATIONS, random_state=seed).fit(x)
    squares = np.stack([np.square(x - centre).sum(axis=1, dtype=np.float64) for centre in found.cluster_centers_], axis=1)
    return found.labels_, squares


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
