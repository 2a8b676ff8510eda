import copy
import pickle
import subprocess
import sys

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


@pytest.mark.slow
def test_facts_threats_and_figures_of_leaks_load_no_torch():
    """Every module that says so, in a process that has imported them all, and made every attack of ours."""
    code = """
import sys
from vflbench.cli.every_attack import every_attack
import vflbench.messages.recorded_messages, vflbench.messages.label_facts, vflbench.messages.peer_facts
import vflbench.run.graded, vflbench.run.contents, vflbench.run.audited, vflbench.run.summary
attacks, unusable = every_attack()
assert not unusable and len(attacks) > 25
assert all(attack.threat.record() and attack.follows >= 0 for attack in attacks.values())
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
