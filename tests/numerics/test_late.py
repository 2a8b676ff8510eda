import copy
import pickle

import pytest
import torch as real

from vflbench.numerics.late import F, Late, nn, no_grad, torch


def test_the_names_are_torchs_own():
    assert torch.Tensor is real.Tensor
    assert nn.Linear is real.nn.Linear
    assert F.relu is real.nn.functional.relu


def test_what_does_not_exist_is_no_attribute():
    with pytest.raises(AttributeError):
        _ = torch.nothing_of_that_name
    assert not hasattr(torch, "__fields__")


def test_a_function_of_no_grad_records_nothing_and_keeps_its_name():
    @no_grad
    def doubled(x):
        """Twice."""
        return 2 * x

    x = real.ones(2, requires_grad=True)
    assert not doubled(x).requires_grad
    assert (2 * x).requires_grad
    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Twice.")
    assert real.is_grad_enabled()


def test_it_can_be_copied_beside_what_holds_it():
    assert isinstance(copy.deepcopy(Late("torch")), Late)
    assert isinstance(pickle.loads(pickle.dumps(Late("torch"))), Late)
