"""The published integer programme has as many constraints as its authors count."""

import math

import numpy as np
import pytest

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import write_programme
from vflbench.attacks.batch_reconstruction.integer_programme.pulp_solvers import PulpProgramme
from vflbench.attacks.batch_reconstruction.integer_programme.solver_run import SolverBudget


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (5, 6), (3, 10)])
def test_the_published_programme_has_the_published_number_of_constraints(rows, columns):
    """(2 m + 1) d^2 - 2 m d. Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning"."""
    x = np.random.default_rng(1).integers(0, 2, (rows, columns))
    programme = PulpProgramme(SolverBudget(math.inf, 1, 0))
    write_programme(programme, Gram.of(x), "published")
    assert programme.problem.numConstraints() == (2 * rows + 1) * columns**2 - 2 * rows * columns
