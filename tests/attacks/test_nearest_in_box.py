import numpy as np
import torch
from scipy.optimize import LinearConstraint, minimize

from vflbench.attacks.esa import nearest_in_box


def conditions(rng, n=6, unknowns=5, rows=2):
    truth = torch.rand(n, unknowns, generator=rng, dtype=torch.float64)
    c = torch.randn(rows, unknowns, generator=rng, dtype=torch.float64)
    return truth, c, truth @ c.T


def test_it_is_what_a_general_solver_finds(rng):
    truth, c, value = conditions(rng)
    start = truth + torch.randn(truth.shape, generator=rng, dtype=torch.float64)
    for width in (0.0, 0.1):
        found = nearest_in_box(start, c, value - width, value + width)
        for i in range(len(start)):
            between = LinearConstraint(c.numpy(), value[i].numpy() - width, value[i].numpy() + width)
            best = minimize(
                lambda x, s: 0.5 * np.square(x - s).sum(),
                np.full(5, 0.5),
                (start[i].numpy(),),
                jac=lambda x, s: x - s,
                bounds=[(0, 1)] * 5,
                constraints=between,
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            np.testing.assert_allclose(found[i].numpy(), best.x, atol=2e-5)
