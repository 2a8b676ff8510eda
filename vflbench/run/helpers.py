"""Threads beside the main one, which read ahead and ask attacks. Nothing depends on which of them is done first."""

import queue
import threading
from collections.abc import Callable, Generator, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

import torch

from vflbench.numerics.denormals import flushes_denormals

T = TypeVar("T")


class Helpers:
    """So many threads for work that the main one takes up in the order in which it asked for it.

    Usage:

        with Helpers(2) as helpers:
            first, second = helpers.begin("norm", work), helpers.begin("cosine", work)
            first.result()

    Work of one key is done in order, one piece after the other. At the end, what hasn't begun is dropped.
    """

    def __init__(self, count: int):
        self._flushes, self._gradients = flushes_denormals(), torch.is_grad_enabled()
        self._pool = ThreadPoolExecutor(count, "vflbench", initializer=self._prepare)
        self._last: dict[Hashable, Future[Any]] = {}

    def _prepare(self) -> None:
        torch.set_flush_denormal(self._flushes)
        torch.set_grad_enabled(self._gradients)

    def begin(self, key: Hashable, work: Callable[[], T]) -> "Future[T]":
        """Have it done."""
        before = self._last.get(key)

        def in_order() -> T:
            if before is not None:
                wait([before])
            return work()

        self._last[key] = self._pool.submit(in_order)
        return self._last[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def read_ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """The same items in the same order, the next of them made in a thread while one is in use: two are in memory.

    What making one raises is raised where it would have come. Closing it ends the thread after the item that it is making.
    """
    made: queue.SimpleQueue[tuple[T | None, BaseException | None, bool]] = queue.SimpleQueue()
    wanted, stopped, flushes = threading.Semaphore(1), threading.Event(), flushes_denormals()

    def make() -> None:
        torch.set_flush_denormal(flushes)
        error: BaseException | None = None
        try:
            source = iter(items)
            while True:
                wanted.acquire()
                if stopped.is_set():
                    return
                made.put((next(source), None, False))
        except StopIteration:
            pass
        except BaseException as caught:
            error = caught
        made.put((None, error, True))

    thread = threading.Thread(target=make, name="vflbench reader", daemon=True)
    thread.start()
    try:
        while True:
            item, error, is_over = made.get()
            if error is not None:
                raise error
            if is_over:
                return
            wanted.release()
            yield item  # type: ignore[misc]
            del item
    finally:
        stopped.set()
        wanted.release()
        thread.join()
