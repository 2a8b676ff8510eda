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

    for method in ("adam", "momentum"):
        x, value = descend(objective, torch.zeros(50, 4), low, high, steps=400, size=0.1, method=method)
        torch.testing.assert_close(
            x[:25], expected[:25], atol=2e-3, rtol=0, msg=lambda text, method=method: f"{method}: {text}"
        )
        torch.testing.assert_close(x, expected, atol=0.1, rtol=0, msg=lambda text, method=method: f"{method}: {text}")
        torch.testing.assert_close(value, objective(x, slice(None)), msg=lambda text, method=method: f"{method}: {text}")


def test_rows_are_independent(rng):
    c = torch.rand(20, 3, generator=rng)

    def run(chosen):
        target = c[chosen]
        return descend(
            lambda x, rows: ((x - target[rows]) * torch.tensor([1.0, 9, 30])).square().sum(1),
            torch.full((len(target), 3), 0.5),
            torch.zeros(3),
            torch.ones(3),
            steps=100,
            size=0.05,
        )[0]

    torch.testing.assert_close(run(slice(None))[3:7], run(slice(3, 7)), atol=1e-6, rtol=0)


def test_the_best_point_is_returned_and_the_search_stops_by_itself():
    steps = []

    def objective(x, _rows):
        steps.append(x)
        return x.abs().sum(1)

    x, value = descend(objective, torch.full((1, 1), 0.33), -torch.ones(1), torch.ones(1), steps=10_000, size=0.1)
    assert len(steps) < 500
    assert value.item() == min(abs(s.item()) for s in steps) == abs(x.item())
