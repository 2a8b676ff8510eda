import pytest
import torch
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.models.networks import Cnn
from vflbench.numerics.pixels import pixel_names


def test_layers_are_relu_of_convolutions_of_the_picture(rng):
    bottom = Cnn(width=3).bottom(pixel_names(6, 5), (), 10, rng)
    x = torch.rand(4, 30, generator=rng)
    out = bottom(x, torch.empty(4, 0))
    first, second = bottom.stack.values()
    by_hand = F.relu(F.conv2d(x.view(4, 1, 6, 5), first.weight, first.bias, padding=1))
    torch.testing.assert_close(out["f1"], by_hand.flatten(1))
    by_hand = F.relu(F.conv2d(by_hand, second.weight, second.bias, padding=1, stride=2))
    torch.testing.assert_close(out["f2"], by_hand.flatten(1))
    assert bottom.cut_width == out["f2"].shape[1] == 3 * 3 * 3


def test_the_second_moment_is_kept_from_layer_to_layer(rng):
    bottom = Cnn(bottom_layers=3, width=64).bottom(pixel_names(16, 16), (), 10, rng)
    out = bottom(torch.randn(64, 256, generator=rng), torch.empty(64, 0))
    moments = [out[name].square().mean().item() for name in bottom.layers]
    assert all(0.6 < m < 1.4 for m in moments)  # zero padding loses some


def test_columns_that_are_no_rectangle_of_pixels_raise(rng):
    for numeric, cardinalities in ((["age"], ()), (pixel_names(3, 3)[:-1], ()), (pixel_names(2, 2), (5,))):
        with pytest.raises(UserError, match="use mlp or wide_deep"):
            Cnn().bottom(numeric, cardinalities, 10, rng)
