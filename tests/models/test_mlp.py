import pytest
import torch

from vflbench.errors import UserError
from vflbench.models.networks import Mlp


def test_layers_are_relu_of_an_affine_map(rng):
    bottom = Mlp(bottom_layers=2, width=4).bottom(["x", "y"], [], 1, rng)
    x = torch.randn(3, 2, generator=rng)
    out = bottom(x, torch.empty(3, 0, dtype=torch.int32))
    first, second = bottom.stack.layers.values()
    by_hand = (x @ first.weight.T + first.bias).clamp_min(0)
    assert torch.allclose(out["f1"], by_hand)
    assert torch.allclose(out["f2"], (by_hand @ second.weight.T + second.bias).clamp_min(0))


def test_categorical_columns_raise_and_another_model_is_named(rng):
    with pytest.raises(UserError, match="wide_deep"):
        Mlp().bottom(["x"], [3], 1, rng)
