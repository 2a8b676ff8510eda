"""A whole private batch from the updates that answer it: the attack, and its exact solvers on integer arrays."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction

__all__ = ["BatchReconstruction"]


def __getattr__(name: str) -> Any:
    """The attack on first use: its solvers need no torch, and CP-SAT starts a process of its own for each batch."""
    if name == "BatchReconstruction":
        from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction

        return BatchReconstruction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
