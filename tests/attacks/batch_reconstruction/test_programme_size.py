"""The published integer programme has as many constraints as its authors count."""

import math

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme import Programme, published


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 6), (3, 10)])
def test_the_published_programme_has_the_published_number_of_constraints(rows, columns):
    """(2 m + 1) d^2 - 2 m d. Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning"."""
    x = np.random.default_rng(1).integers(0, 2, (rows, columns))
    programme = Programme(math.inf)
    published(programme, Gram.of(x))
    assert programme.problem.numConstraints() == (2 * rows + 1) * columns**2 - 2 * rows * columns
