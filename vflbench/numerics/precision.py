"""Where products keep the precision of their numbers although those of the networks' layers don't."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_DEVICES = ("cpu", "cuda")


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Inside, and in what it decorates, torch.autocast rounds nothing: what is computed from float32 is float32."""
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
