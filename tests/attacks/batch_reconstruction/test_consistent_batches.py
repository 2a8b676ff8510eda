"""The brute force that claims are held against, on examples that can be checked by hand."""

import numpy as np
from support.consistent_batches import all_batches, explaining, key, with_sums
from support.reconstruction_rounds import batch, rounds

EVEN = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 0]])


def test_two_batches_have_the_products_of_the_even_rows():
    found = with_sums(EVEN.T @ EVEN, None, 4)
    assert sorted(map(key, found)) == sorted([key(EVEN), key(1 - EVEN)])
    assert [key(x) for x in with_sums(EVEN.T @ EVEN, np.array([2, 2, 0]), 4)] == [key(1 - EVEN)]


def test_messages_of_few_rounds_leave_more_batches_than_sums_do():
    rng = np.random.default_rng(0)
    x, y = batch(3, 3, rng)
    thetas, updates = rounds(x, y, 5, rng)
    by_sums = {key(found) for found in with_sums(x.T @ x, x.T @ y, 3)}
    assert {key(all_batches(3, 3).x[k]) for k in explaining(thetas, updates, 0.1, 3, 1e-9)} == by_sums
    zero = np.zeros((1, 3))
    more = explaining(zero, 0.1 / 2 * (x.T @ y)[None].astype(float), 0.1, 3, 1e-9)
    assert by_sums < {key(all_batches(3, 3).x[k]) for k in more}
