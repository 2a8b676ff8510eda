"""Values as numpy arrays, whether they come from torch or from a file: what is counted in arrays is counted in one way."""

import numpy as np
from torch import Tensor


def array_of(values: Tensor | np.ndarray) -> np.ndarray:
    """The same values on the CPU, in the memory that they have there; floating-point types of less than 32 bits, of which
    numpy lacks one, as float32, without loss.
    """
    if isinstance(values, np.ndarray):
        return values
    plain = values.detach().cpu()
    return (plain.float() if plain.is_floating_point() and plain.element_size() < 4 else plain).numpy()
