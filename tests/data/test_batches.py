import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import table

from vflbench.data.rows import Batches, choose_batch_size, evenly_spaced, ordered_batches


def epoch(rows, size, rng):
    """The ids of each batch."""
    return list(Batches(rows, size, rng))


@given(st.integers(1, 500), st.integers(1, 600))
def test_evenly_spaced_positions(count, wanted):
    positions = evenly_spaced(count, wanted)
    assert len(positions) == min(count, wanted)
    assert positions.unique().tolist() == positions.tolist()
    assert (positions[0], positions[-1]) == (0, count - 1 if min(count, wanted) > 1 else 0)
    gaps = positions.diff()
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


@settings(deadline=None)
@given(st.integers(1, 200_000))
def test_auto_is_the_largest_power_of_two_that_leaves_a_hundred_steps(rows):
    fitting = [2**k for k in range(5, 10) if rows >= 100 * 2**k]
    assert choose_batch_size("auto", rows) == (max(fitting) if fitting else min(32, rows))


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 70))
def test_batches_are_full_distinct_and_leave_less_than_a_batch(rows, wanted):
    size = choose_batch_size(wanted, rows)
    everything = table(torch.Generator().manual_seed(rows), rows=rows)
    met = epoch(everything, size, torch.Generator().manual_seed(wanted))
    assert {len(ids) for ids in met} == {size}
    assert len(met) == rows // size
    assert len(torch.cat(met).unique()) == size * len(met)


def test_the_order_is_drawn_from_the_generator_alone(rng):
    rows = table(rng, rows=40)

    def met(seed):
        return [ids.tolist() for ids in epoch(rows, 8, torch.Generator().manual_seed(seed))]

    assert met(1) == met(1) != met(2)


def test_every_row_is_as_likely_as_any_other_to_be_left_over(rng):
    """19 rows in batches of 10: each is left out of 9/19 of the epochs; 5 standard errors."""
    rows, epochs = table(rng, rows=19), 2000
    met = torch.cat([ids for _ in range(epochs) for ids in epoch(rows, 10, rng)]).bincount(minlength=19)
    p = 10 / 19
    assert (met / epochs - p).abs().max() < 5 * (p * (1 - p) / epochs) ** 0.5


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 70))
def test_ordered_batches_are_full_but_the_last(rows, size):
    everything = table(torch.Generator().manual_seed(0), rows=rows)
    met = [batch.ids for batch in ordered_batches(everything, size)]
    assert torch.cat(met).tolist() == list(range(rows))
    assert all(len(ids) == size for ids in met[:-1])
    assert 1 <= len(met[-1]) <= size
