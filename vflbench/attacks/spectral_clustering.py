"""Spectral-clustering attack: the classes are the parts of a batch's neighbourhood graph."""

import warnings

import numpy as np

from vflbench.attacks.kmeans import Kmeans
from vflbench.options import Number, Rows, options

_STARTS = 4


@options
class SpectralClustering(Kmeans):
    """Divide a batch into as many clusters as there are classes, at every layer, and assign a class to each cluster.

        s_ik = mean_(j in cluster m(k)) A_ij,   m: class -> cluster, one to one

    for an affinity A of the rows, whose normalised Laplacian's K smallest eigenvectors are clustered by k-means. Unlike
    `kmeans` it follows clusters of any shape, such as rings; unlike `spectral` it takes more than two classes.

    message: `embeddings` (including the label party's own layers, for comparison) or `gradients`.
    neighbours: A_ij = 1 if i is among so many nearest rows of j and vice versa, 1/2 if only one of the two, else 0.
    map: as in `kmeans`: `ratios` (the largest cluster is the most frequent class, and so on) or `hints` (one known row of
    each class; their total affinity to the clusters assigned to their classes is the largest).
    rows: if a batch has more rows, this number of rows, drawn at random, is divided into clusters (with all hints), because
    the eigenvectors of an (n, n) matrix are needed. Every row is then scored by its affinity to the clusters.

    A batch with fewer rows than classes, and a layer with fewer distinct rows than that, are not scored.

    Source: Ng, Jordan and Weiss, "On Spectral Clustering", NIPS 2001; von Luxburg, "A Tutorial on Spectral Clustering",
    2007; clusters as labels: Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated
    Learning", 2022.
    """

    neighbours: Number = 10
    rows: Rows = 1000

    def cluster(self, x: np.ndarray, classes: int, hints: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
        drawn = self._drawn(len(x), hints, seed)
        if len(np.unique(x[drawn], axis=0)) < classes:
            return None
        labels = _clusters(self._affinities(x[drawn], x[drawn], drawn, drawn), classes, seed)
        near = self._affinities(x, x[drawn], np.arange(len(x)), drawn)
        return labels, np.stack([near[:, labels == k].mean(axis=1) for k in range(classes)], axis=1)

    def _drawn(self, count: int, hints: np.ndarray, seed: int) -> np.ndarray:
        """Places of the rows that are cut into clusters, in rising order."""
        if count <= self.rows:
            return np.arange(count)
        others = np.setdiff1d(np.random.default_rng(seed).permutation(count)[: self.rows], hints)
        return np.sort(np.concatenate([hints, others[: max(0, self.rows - len(hints))]]))

    def _affinities(self, x: np.ndarray, to: np.ndarray, places: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """(n, m) affinities of rows x, at these places of the batch, to the m rows `to` at the places `drawn`."""
        squares = np.maximum(0, np.square(x).sum(1)[:, None] + np.square(to).sum(1)[None] - 2 * x @ to.T)
        squares[places[:, None] == drawn[None]] = 0
        within = np.square(to).sum(1)
        among = np.maximum(0, within[:, None] + within[None] - 2 * to @ to.T)
        np.fill_diagonal(among, 0)
        k = min(self.neighbours, len(to) - 1)
        reach_of_row, reach_of_drawn = np.partition(squares, k, axis=1)[:, [k]], np.partition(among, k, axis=1)[:, k]
        return 0.5 * (squares <= reach_of_row) + 0.5 * (squares <= reach_of_drawn)


def _clusters(affinities: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(n,) clusters 0 .. count - 1 of the rows of a symmetric (n, n) affinity matrix, each with at least one row."""
    from sklearn.cluster import SpectralClustering as Solver  # late: it takes a second to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of graphs in several parts, which are the clusters, and of as few rows as clusters
        solver = Solver(count, affinity="precomputed", n_init=_STARTS, random_state=seed)
        labels = np.asarray(solver.fit_predict(affinities), dtype=np.int64)
    for k in range(count):  # k-means of fewer distinct points than clusters leaves some empty
        if not (labels == k).any():
            labels[np.flatnonzero(labels == np.bincount(labels, minlength=count).argmax())[0]] = k
    return labels
