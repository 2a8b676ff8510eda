import torch

from vflbench.attacks.model_inversion import descend


def test_a_convex_problem_is_solved_within_the_box(rng):
    """min |x - c|^2 over a box is c clipped to it; more precisely so if c is inside, where the minimum is 0."""
    c = 3 * torch.randn(50, 4, generator=rng)
    c[:25] = torch.rand(25, 4, generator=rng) * torch.tensor([1.0, 1, 1, 0.5])
    low, high = torch.tensor([-1.0, -1, 0, 0]), torch.tensor([1.0, 2, 1, 0.5])
    expected = torch.minimum(torch.maximum(c, low), high)

    def objective(x, rows):
        return (x - c[rows]).square().sum(1)

    x, value = descend(objective, torch.zeros(50, 4), low, high, steps=400, size=0.1)
    torch.testing.assert_close(x[:25], expected[:25], atol=2e-3, rtol=0)
    torch.testing.assert_close(x, expected, atol=0.1, rtol=0)
    torch.testing.assert_close(value, objective(x, slice(None)))
