"""No attack reads more than label_gdp and label_dp promise, in whole runs on labels that features say nothing about."""

import math
from typing import Any

import pytest
from builders import run_in
from planted_labels import CEILING, EPS, MU, AfterTheTop, Coins, Leaky, TrueLabels, Unplanned, response_of_zero_sum
from run.test_resume import CrashError, Tripwire, crash, ctrl_c

from vflbench.attacks.alignment import Alignment
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.base import Attack
from vflbench.attacks.completion import Completion
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.direct import Direct
from vflbench.attacks.directions import Directions
from vflbench.attacks.exploit import Exploit
from vflbench.attacks.fake_classes import FakeClasses
from vflbench.attacks.hints import Hints
from vflbench.attacks.mixture import Mixture
from vflbench.attacks.norm import Norm
from vflbench.attacks.posterior import Posterior
from vflbench.attacks.remainder import Remainder
from vflbench.attacks.residual import Residual
from vflbench.attacks.residual_sum import ResidualSum
from vflbench.attacks.spectral import Spectral
from vflbench.attacks.ungroup import Ungroup
from vflbench.defenses.base import LabelDefense
from vflbench.defenses.dcor import Dcor
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.label_gdp import LabelGdp
from vflbench.defenses.marvell import Marvell
from vflbench.metrics.privacy import Exposure
from vflbench.models.optimizers.adam import Adam
from vflbench.models.wide_deep import WideDeep
from vflbench.protocols.parties import LabelParty
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings


def few() -> dict[str, Attack]:
    """One attack of each kind: on one message, on all, on both kinds, and with known labels."""
    return {
        "direct": Direct(),
        "remainder": Remainder(rank=3),
        "averaging": Averaging(),
        "ungroup": Ungroup(),
        "residual_sum": ResidualSum(),
        "directions": Directions(),
        "completion_both": Completion(known=100, message="both"),
    }


def everything() -> dict[str, Attack]:
    return {
        **few(),
        "posterior": Posterior(),
        "norm": Norm(),
        "cosine": Cosine(),
        "hints": Hints(),
        "mixture": Mixture(),
        "alignment": Alignment(),
        "exploit": Exploit(),
        "fake_classes": FakeClasses(),
        "residual": Residual(),
        "averaging_cosine": Averaging(base="cosine"),
        "averaging_hints": Averaging(base="hints"),
        **{f"remainder_{rank}": Remainder(rank=rank) for rank in (1, 2, 6, "auto")},
        **{f"spectral_{k}": Spectral(component=k) for k in (1, 2, 3, "auto")},
        **{f"spectral_gradients_{k}": Spectral(message="gradients", component=k) for k in (1, 2)},
        **{f"directions_{k}": Directions(component=k) for k in (1, 2)},
        **{f"completion_{m}": Completion(known=100, message=m) for m in ("embeddings", "gradients")},
        "completion_400": Completion(known=400, message="both"),
    }


def attacked(folder: Any, defenses: dict[str, LabelDefense], attacks: dict[str, Attack], **changes: Any) -> dict[str, Any]:
    """The summary of a run on coins. Features name each row, and the network learns what it is told by heart."""
    settings = {
        "epochs": 5,
        "batch_size": 128,
        "seed": 0,
        "audit": Audit(batches="all", probe=False),
        **changes.pop("settings", {}),
    }
    return run_in(
        folder,
        dataset=Coins(**changes.pop("dataset", {})),
        model=WideDeep(bottom_layers=2, top_layers=1, width=16, wide=True),
        optimizer=Adam(lr=1e-2),
        defenses=defenses,
        attacks=attacks,
        settings=Settings(**settings),
        **changes,
    )


def largest(summary: dict[str, Any]) -> float:
    return max(max(leak["two_sided"]["mean"], leak["net"]["mean"]) for leak in summary["leaks"] if leak["visible"])


KEPT = {
    "label_gdp": lambda: LabelGdp(mu=MU),
    "label_gdp, estimate": lambda: LabelGdp(mu=MU, target="estimate"),
    "label_gdp, once": lambda: LabelGdp(mu=MU, noise="once"),
    "label_dp": lambda: LabelDp(eps=EPS),
    "label_dp, posterior": lambda: LabelDp(eps=EPS, target="posterior"),
    "label_dp, debias": lambda: LabelDp(eps=EPS, debias=True),
    "label_dp, zero_sum": lambda: LabelDp(eps=EPS, mechanism="zero_sum"),
    "label_dp, lp_2st": lambda: LabelDp(eps=EPS, mechanism="lp_2st"),
}
QUICK = "label_gdp"
ATTACKED_BY_ALL = ("label_gdp", "label_gdp, once", "label_dp", "label_dp, zero_sum")
ALL_KEPT = [pytest.param(QUICK, few, id=f"{QUICK}, few")] + [
    pytest.param(name, everything if name in ATTACKED_BY_ALL else few, id=name, marks=pytest.mark.slow) for name in KEPT
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "attacks"), ALL_KEPT)
def test_no_attack_exceeds_the_ceiling(tmp_path, name, attacks):
    audit = Audit(batches="all", probe=False, canaries=67)
    summary = attacked(tmp_path / "run", {"it": KEPT[name]()}, attacks(), settings={"audit": audit})
    promise = summary["guarantees"]["it"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert not summary["privacy"]["violated"]
    assert largest(summary) > 0.55  # and they read something


@pytest.mark.slow
def test_one_message_of_the_last_epoch_counts_with_all_that_networks_remember(tmp_path):
    """The wide part adds up what it is told about each row, whose category is its own."""
    summary = attacked(tmp_path / "run", {"it": LabelGdp(mu=MU)}, {"directions": Directions()})
    first = LabelGdp(mu=MU)
    first.plan(5)
    of_first_message = first.guarantee().leak_auc_after(Exposure())
    read = max(leak["two_sided"]["mean"] for leak in summary["leaks"] if leak["layer"] == "wide")
    assert of_first_message + 0.03 < read < CEILING
    assert summary["guarantees"]["it"]["leak_auc_one_message"] == pytest.approx(CEILING, abs=5e-4)
    assert summary["guarantees"]["it"]["exceeded"] == []


# Others beside it.


class Peek(LabelDefense):
    """Has a hook for labels."""

    def labels(self, y, logits, context):
        return y


@pytest.mark.slow
@pytest.mark.parametrize("others", ["marvell behind", "dcor behind", pytest.param("marvell before", marks=pytest.mark.slow)])
def test_with_others_beside_it_the_promise_stands(tmp_path, others):
    other: dict[str, LabelDefense] = {"dcor": Dcor(alpha_d=0.02)} if "dcor" in others else {"marvell": Marvell()}
    one: dict[str, LabelDefense] = {"label_gdp": LabelGdp(mu=MU)}
    defenses = {**one, **other} if "behind" in others else {**other, **one}
    attacks = {
        "remainder": Remainder(rank=3),
        "remainder_1": Remainder(rank=1),
        "directions": Directions(),
        "completion_both": Completion(message="both"),
    }
    summary = attacked(tmp_path / "run", defenses, attacks, settings={"epochs": 3})
    promise = summary["guarantees"]["label_gdp"]
    assert promise["leak_auc_all_messages"] == pytest.approx(CEILING, abs=5e-4)
    assert promise["exceeded"] == []
    assert summary["claims_refused"] == {}
    assert summary["privacy"]["mu"] == pytest.approx(MU)
    assert not summary["privacy"]["violated"]


def test_behind_a_hook_for_labels_nothing_is_promised_and_that_is_said(tmp_path, capsys):
    defenses = {"peek": Peek(), "label_gdp": LabelGdp(mu=MU)}
    summary = attacked(tmp_path / "run", defenses, {"norm": Norm()}, settings={"epochs": 1})
    assert summary["guarantees"] == {"peek": None, "label_gdp": None}
    assert summary["privacy"] is None
    assert "peek before it sees labels" in summary["claims_refused"]["label_gdp"]
    assert "label_gdp claims nothing here: peek before it sees labels" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "epochs"), [(TrueLabels(mu=MU), 2), (AfterTheTop(), 2), (Unplanned(mu=MU), 10), (Leaky(eps=EPS), 2)]
)
def test_canaries_find_what_is_broken(tmp_path, broken, epochs):
    changes = {"settings": {"epochs": epochs, "audit": Audit(batches=1, canaries=500)}, "dataset": {"share": 0.5}}
    summary = attacked(tmp_path / "run", {"it": broken}, {"norm": Norm()}, **changes)
    assert summary["privacy"]["violated"]
    assert summary["failed"].startswith("it: the promise of ")


@pytest.mark.slow
def test_true_labels_handed_on_are_read_from_what_stands_behind(tmp_path):
    """Marvell gives noise to one class only, and sees which."""
    attacks = {"remainder": Remainder(rank=3)}
    for first, is_found in ((TrueLabels(mu=MU), True), (LabelGdp(mu=MU), False)):
        folder = tmp_path / type(first).__name__
        summary = attacked(folder, {"it": first, "marvell": Marvell()}, attacks, settings={"epochs": 2})
        assert bool(summary["guarantees"]["it"]["exceeded"]) is is_found


# All that zero_sum tells.


def told_by_zero_sum(folder: Any, monkeypatch: Any, epochs: int, stop: tuple[Any, int, type[BaseException]] | None):
    """What was sent about each row in a run that may be stopped on its way: id -> epoch -> x_t; and id -> y'."""
    told: dict[int, dict[int, set[float]]] = {}
    answers: dict[int, int] = {}

    def respond(self, embeddings, epoch=0, real=LabelParty.respond):
        response = real(self, embeddings, epoch)
        ids, logits = embeddings[0].ids, response.logits.double()[:, 0]
        residual = len(ids) * response.messages[0].tensors["wide"].double()[:, 0]
        x = response_of_zero_sum((logits.sigmoid() - residual).logit() - logits, EPS, epochs)
        handed_on = response.labels.tolist()
        for row, value, answer in zip(ids.tolist(), x.round(decimals=2).tolist(), handed_on, strict=True):
            told.setdefault(row, {}).setdefault(epoch, set()).add(value)
            assert answers.setdefault(row, answer) == answer
        return response

    with monkeypatch.context() as patch:
        patch.setattr(LabelParty, "respond", respond)

        def again(**changes):
            attacked(folder, {"it": LabelDp(eps=EPS, mechanism="zero_sum")}, {}, settings={"epochs": epochs}, **changes)

        if stop is not None:
            trip, at, error = stop
            with pytest.raises(error):
                again(engine=Tripwire(at=at, trip=trip))
        again()
    return told, answers


@pytest.mark.slow
@pytest.mark.parametrize("stop", [(crash, 45, CrashError), (ctrl_c, 45, Interrupted)], ids=["crash", "ctrl-c"])
def test_all_that_zero_sum_tells_in_a_run_is_one_answer(tmp_path, monkeypatch, stop):
    """However often a row comes back, where a run goes on, and whatever the number of epochs."""
    told, answers = told_by_zero_sum(tmp_path / "stopped", monkeypatch, 4, stop)
    for row, visits in told.items():
        first = [sorted(values)[0] for values in visits.values()]
        assert all(max(values) - min(values) < 0.05 for values in visits.values())  # at each visit of an epoch the same
        mean = math.fsum(first) / len(first)
        assert len(first) < 4 or (mean > 0.5) == bool(answers[row])
        assert len(first) < 4 or min(abs(mean - 1.89), abs(mean + 0.89)) < 0.05
    assert sum(len(visits) == 4 for visits in told.values()) > 1000  # the last rows of an epoch's order are in no batch
    _, of_two_epochs = told_by_zero_sum(tmp_path / "whole", monkeypatch, 2, None)
    both = of_two_epochs.keys() & answers.keys()
    assert len(both) > 1200
    assert all(of_two_epochs[row] == answers[row] for row in both)
    assert 0.25 < sum(answers.values()) / len(answers) < 0.6
