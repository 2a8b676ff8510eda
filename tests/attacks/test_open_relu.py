import torch
from torch import nn
from torch.nn import functional as F

from vflbench.attacks.model_inversion import OpenRelu


def test_values_stay_and_inactive_units_pass_a_share_of_the_gradient():
    x = torch.tensor([-2.0, -1.0, 3.0], requires_grad=True)
    weights = torch.tensor([1.0, 10.0, 100.0])
    for relu in (F.relu, torch.relu, nn.ReLU(), lambda z: F.relu(z * 1, inplace=True)):
        with OpenRelu(0.1):
            y = relu(x)
            (g,) = torch.autograd.grad((y * weights).sum(), x)
        assert y.tolist() == [0, 0, 3]
        torch.testing.assert_close(g, torch.tensor([0.1, 1.0, 100.0]))
    (g,) = torch.autograd.grad((F.relu(x) * weights).sum(), x)
    assert g.tolist() == [0, 0, 100]  # outside the context nothing is changed
