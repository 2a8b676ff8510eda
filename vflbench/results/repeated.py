"""A look at something every few seconds, beside what the main thread does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """While entered, a thread calls `look` every so many seconds, first after so many. It has ended when this is left."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=work, name="repeated look", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
