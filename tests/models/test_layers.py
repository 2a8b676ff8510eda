import pytest
import torch

from vflbench.models.base import ReluStack, Wide, linear


def test_relu_layers_keep_the_second_moment(rng):
    stack = ReluStack([f"f{i}" for i in range(1, 9)], 256, [256] * 8, rng)
    activations = stack(torch.randn(2000, 256, generator=rng))
    # E max(0, z)^2 is half of E z^2, which the gain compensates.
    assert activations["f8"].square().mean().item() == pytest.approx(1.0, rel=0.25)
    assert list(activations) == [f"f{i}" for i in range(1, 9)]


def test_initial_weights_depend_on_the_generator_alone():
    torch.manual_seed(1)
    first = linear(8, 8, torch.Generator().manual_seed(3)).weight
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(first, linear(8, 8, torch.Generator().manual_seed(3)).weight)
    assert torch.equal(state, torch.get_rng_state())


def test_wide_part_is_the_linear_formula(rng):
    wide = Wide(2, [3, 4], outputs=1, rng=rng)
    with torch.no_grad():
        wide.numeric.copy_(torch.tensor([[2.0], [3.0]]))
        wide.categories.table.copy_(torch.arange(7.0)[:, None])
    numeric, ids = torch.tensor([[1.0, 10.0]]), torch.tensor([[1, 2]], dtype=torch.int32)
    assert wide(numeric, ids).item() == 2 * 1 + 3 * 10 + 1 + (3 + 2)
