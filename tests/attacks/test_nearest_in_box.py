import numpy as np
import pytest
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


@pytest.mark.parametrize("rows", [1, 3])
def test_a_projection_never_leads_away_from_a_point_that_fulfils_the_conditions(rng, rows):
    truth, c, value = conditions(rng, n=200, unknowns=8, rows=rows)
    start = torch.randn(truth.shape, generator=rng, dtype=torch.float64)
    for low, high in ((value, value), (value - 0.2, value + 0.1), (torch.full_like(value, -torch.inf), value)):
        found = nearest_in_box(start, c, low, high)
        assert bool(((found >= 0) & (found <= 1)).all())
        assert bool((found @ c.T >= low - 1e-6).all() & (found @ c.T <= high + 1e-6).all())
        assert bool(((found - truth).norm(dim=1) <= (start - truth).norm(dim=1) + 1e-6).all())
