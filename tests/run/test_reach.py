"""What attacks, cheating parties and modules of a user's own can't reach, each by the way that once led there."""

import copy

import pytest
import torch
from support.audited import scripted
from support.builders import run_in, session, table
from torch import nn

from vflbench import Adversary, Gradients, Model, Scores, UserError
from vflbench.attacks.norm import Norm
from vflbench.data.synthetic import Synthetic
from vflbench.options import options
from vflbench.protocols.adversaries import LabelAdversary

SMALL = {"dataset": Synthetic(rows=700, vocabulary=100)}


class Peeper(torch.Tensor):
    """Scores that keep whatever they are compared with."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        cls.seen += [a for a in arguments if isinstance(a, torch.Tensor) and not isinstance(a, cls)]
        return super().__torch_function__(function, types, arguments, keywords or {})


def peep(view):
    layers = view[Gradients].layers
    return Scores(view.ids, {layer: torch.rand(len(g), 2).as_subclass(Peeper) for layer, g in layers.items()})


@pytest.mark.slow
def test_scores_see_nothing_of_what_they_are_graded_against(tmp_path):
    Peeper.seen.clear()
    run_in(tmp_path, attacks={"peeping": scripted(Gradients, batch=peep)}, **SMALL)
    assert not any(values.dtype in (torch.int64, torch.bool) for values in Peeper.seen)


class Frozen(nn.Sequential):
    """Its normalisation is frozen, as after pretraining."""

    def __init__(self):
        super().__init__(nn.Linear(2, 4), nn.BatchNorm1d(4).eval())

    def forward(self, numeric, categorical):
        return super().forward(numeric)


@options
class FrozenModel(Model):
    def bottom(self, numeric, cardinalities, outputs, rng):
        return SHARED

    def top(self, inputs, outputs, rng):
        return nn.Linear(inputs, outputs)


SHARED = Frozen()


def test_predicting_and_asking_leave_modules_in_their_modes_and_parties_share_no_module(rng):
    rows = table(rng, parties=("a", "b"))
    before = copy.deepcopy(SHARED.state_dict())
    started = session(rows, model=FrozenModel())
    started.round(rows.ids)
    started.predict(rows.ids)
    started.parties[0].activations_of(rows.ids)
    for party in started.parties:
        assert party.bottom.module.training
        assert not party.bottom.module[1].training
    assert started.parties[0].bottom.module is not started.parties[1].bottom.module
    assert all(torch.equal(before[name], value) for name, value in SHARED.state_dict().items())


@options
class Renamer(Adversary):
    """Writes over the ids that it is shown."""

    returns: str = "honest"

    def embedding(self, layer, h, context):
        context.ids.fill_(0)
        return {"honest": h, "nothing": None, "narrow": h[:, :1], "array": h.numpy()}[self.returns]


@options
class Forgetful(LabelAdversary):
    """Sends a gradient to nobody."""

    def answer(self, held, honest, y):
        return {}


@pytest.mark.slow
def test_a_cheat_can_not_rename_the_rows_of_others(tmp_path):
    cheated = run_in(tmp_path / "cheated", adversaries={"renamer": Renamer()}, attacks={"norm": Norm()}, **SMALL)
    plain = run_in(tmp_path / "plain", attacks={"norm": Norm()}, **SMALL)
    assert cheated["leaks"] == plain["leaks"]
    assert cheated["test_auc"] == plain["test_auc"]
    for returns in ("nothing", "narrow", "array"):
        with pytest.raises(UserError, match=r"^adversary=Renamer: its embedding must return a tensor of shape"):
            run_in(tmp_path / returns, adversaries={"renamer": Renamer(returns=returns)}, **SMALL)
    with pytest.raises(UserError, match=r"^adversary=Forgetful: its answer must return a tensor of shape .*, not NoneType"):
        run_in(tmp_path / "forgetful", adversaries={"forgetful": Forgetful()}, **SMALL)
