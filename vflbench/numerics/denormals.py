"""Whether this thread takes numbers that are too small to be normal for 0."""

import torch


def flushes_denormals() -> bool:
    """Whether this thread takes numbers below 2.2e-308 for 0. Each thread has a setting of its own."""
    return not bool((torch.tensor(1e-310, dtype=torch.float64) * 1.0).item())
