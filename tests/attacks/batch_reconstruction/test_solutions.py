"""Matching batches: the order of their rows, and what several of them say about each entry."""

import numpy as np
from reconstruction_rounds import batch

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.solutions import align_rows, share_of_ones, sort_rows


def test_sorted_rows_are_sorted_as_tuples_are():
    x, _ = batch(30, 4, np.random.default_rng(1))
    assert sort_rows(x).tolist() == sorted(x.tolist())


def test_alignment_undoes_a_permutation_of_distinct_rows():
    x = np.array([[a >> k & 1 for k in range(4)] for a in range(16)], dtype=np.uint8)
    order = np.random.default_rng(0).permutation(16)
    assert np.array_equal(x[order][align_rows(x[order], x)], x)


def test_the_share_of_ones_of_the_smallest_ambiguous_pair():
    # Even and odd rows of three bits: both halves have the same Gram matrix.
    even = sort_rows(np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]]))
    odd = sort_rows(1 - even)
    assert Gram.of(even).matches(odd)
    share = share_of_ones((even, odd))
    # Each row of one half differs in one bit from some row of the other half; these bits are open.
    assert (share == 0.5).sum() == 4
    assert np.array_equal(np.where(share == 0.5, even, share), even)
