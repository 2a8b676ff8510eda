import pytest
import torch
from torch import nn

from vflbench.models.optimizers import Adam, Sgd, load_state


def network():
    return nn.ParameterList([torch.ones(1)])


def step(optimizer, weights, gradient):
    weights[0].grad = torch.tensor([gradient])
    optimizer.step()
    return weights[0].item()


def test_adam_follows_kingma_and_ba():
    layer, m, v, w = network(), 0.0, 0.0, 1.0
    optimizer = Adam(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-6).attach(layer)
    for t, g in enumerate([0.5, -2.0, 3.0], 1):
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g * g
        w -= 0.1 * (m / (1 - 0.8**t)) / ((v / (1 - 0.9**t)) ** 0.5 + 1e-6)
        assert step(optimizer, layer, g) == pytest.approx(w, rel=1e-5)


def test_sgd_with_momentum_and_weight_decay():
    layer, velocity, w = network(), None, 1.0
    optimizer = Sgd(lr=0.1, momentum=0.5, weight_decay=0.01).attach(layer)
    for g in (0.5, -2.0, 3.0):
        g_decayed = g + 0.01 * w
        velocity = g_decayed if velocity is None else 0.5 * velocity + g_decayed
        w -= 0.1 * velocity
        assert step(optimizer, layer, g) == pytest.approx(w, rel=1e-5)


@pytest.mark.parametrize("of_torch", [False, True])
def test_a_state_that_does_not_fit_its_parameter_is_refused(of_torch):
    """Fused steps write as many numbers as the parameter has, whatever the memory behind the state. Also of a user's own."""
    layer = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(layer.parameters(), fused=True) if of_torch else Adam().attach(layer)
    layer(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    load_state(optimizer, state)
    for odd in (torch.zeros(1).expand(8, 8), torch.zeros(2, 2), torch.zeros(8, 8).T[::2]):
        of_first = {**state["state"][0], "exp_avg_sq": odd}
        with pytest.raises(ValueError, match="the optimiser's exp_avg_sq"):
            load_state(optimizer, {**state, "state": {**state["state"], 0: of_first}})
    group = {**state["param_groups"][0], "lr": "fast"}
    with pytest.raises(ValueError, match="of other types"):
        load_state(optimizer, {**state, "param_groups": [group]})
