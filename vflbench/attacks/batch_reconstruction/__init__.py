"""A whole private batch from the updates that answer it: the attack, and its exact solvers on integer arrays."""

from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction

__all__ = ["BatchReconstruction"]
