"""Threads beside the main one change no order, no error and no number."""

import threading

import pytest
import torch

from vflbench.numerics.denormals import flushes_denormals
from vflbench.run.helpers import Helpers, read_ahead


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "vflbench reader"]


def test_items_come_in_order_and_the_thread_ends():
    assert list(read_ahead(iter(range(50)))) == list(range(50))
    assert list(read_ahead([])) == []
    assert not readers()


def test_an_error_is_raised_where_it_would_have_come():
    def items():
        yield 1
        yield 2
        raise ValueError("the third is broken")

    ahead = read_ahead(items())
    assert (next(ahead), next(ahead)) == (1, 2)
    with pytest.raises(ValueError, match="the third is broken"):
        next(ahead)
    assert not readers()


def test_what_is_closed_early_makes_one_item_more_at_most():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    ahead = read_ahead(items())
    assert next(ahead) == 0
    ahead.close()
    assert not readers()
    assert len(made) <= 2


def test_an_interrupt_of_the_consumer_ends_the_thread():
    ahead = read_ahead(iter(range(100)))
    assert next(ahead) == 0
    with pytest.raises(KeyboardInterrupt):
        ahead.throw(KeyboardInterrupt())
    assert not readers()


def test_work_of_one_key_is_done_in_order_and_errors_belong_to_their_work():
    done = []

    def work(number):
        done.append(number)
        if number == 5:
            raise ValueError("five")
        return number

    with Helpers(3) as helpers:
        futures = [helpers.begin("one", lambda n=number: work(n)) for number in range(20)]
        for number, future in enumerate(futures):
            if number == 5:
                with pytest.raises(ValueError, match="five"):
                    future.result()
            else:
                assert future.result() == number
    assert done == list(range(20))


def test_threads_compute_as_the_one_that_began_them():
    before = flushes_denormals()
    try:
        for flushes in (True, False):
            torch.set_flush_denormal(flushes)
            with Helpers(1) as helpers, torch.no_grad():
                assert helpers.begin("a", flushes_denormals).result() is flushes
            assert list(read_ahead(flushes_denormals() for _ in range(2))) == [flushes] * 2
    finally:
        torch.set_flush_denormal(before)
