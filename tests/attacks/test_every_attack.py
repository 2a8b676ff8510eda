"""What holds for every attack on labels, with the options of its file: a coin where messages say nothing of the label
whatever labels it was given, numbers where they are degenerate, no more facts declared than read, and the same answers after
an interruption at any place.
"""

import itertools
from functools import partial

import pytest
import torch
from attacks.test_esa import rows_of, started_with
from attacks.views import auxiliary_of, embeddings, label_view, positives, shares, view_of
from support.builders import attack_nodes

from vflbench.attacks.base import Attack
from vflbench.attacks.esa import Esa
from vflbench.attacks.grna import Grna
from vflbench.attacks.model_inversion import ModelInversion
from vflbench.attacks.simulator import Simulator
from vflbench.attacks.unsplit import Unsplit
from vflbench.cli.components import component
from vflbench.messages.facts import ClassHints, Gradients, Known, LocalModel, PartyFeatures, SummedGradients
from vflbench.messages.threat import Role, View
from vflbench.numerics.auc import auc
from vflbench.options import restore_state, state_of

ROWS, BATCH, D, EPOCHS, POSITIVE = 2000, 250, 12, 2, 0.25
FEWER = {"model_completion": {"steps": 20}}  # of 4,500
ELSEWHERE = {"exploit"}  # slow, and tested for a coin in its own file


def made(name):
    """The attack with the options of its file, or fewer steps; None for sets, and for `none`, which have none."""
    node = attack_nodes()[name].get(name)
    return component({**node, **FEWER.get(name, {})}, f"attack.{name}", Attack) if node else None


NAMES = [name for name in attack_nodes() if (attack := made(name)) and attack.threat.role is Role.NON_LABEL]
SLOW = ("alignment", "exploit", "fake_classes", "posterior")
ALL = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES]


def facts_about(h, g, y, prior):
    """All that an attacker of labels can be given about these rows: messages, columns, known positives and classes."""
    first = [int((y == k).nonzero()[0]) for k in (0, 1)]
    return (
        embeddings(h),
        Gradients({"f1": g}),
        SummedGradients({"f1.weight": g.T @ h[:, :4], "f1.bias": g.sum(dim=0)}),
        PartyFeatures(h[:, :4], (h[:, 4:6] > 0).long()),
        positives(y.nonzero()[:5, 0].tolist()),
        ClassHints(torch.tensor(first)),
        shares(prior),
    )


def calls(attack, rng, h, gradients_of, y, *, batch=BATCH, prior=POSITIVE, epochs=EPOCHS):
    """(method, view, rows whose label was given) of each call in these epochs. gradients_of: number of rows -> (n, d)."""
    everyone, known = torch.arange(len(y)), torch.arange(len(y) // 20)
    of_run = LocalModel(lambda ids: {"f1": h[ids]}), Known(known, y[known])
    for epoch in range(epochs):
        for ids in torch.randperm(len(y), generator=rng).split(batch):
            facts = facts_about(h[ids], gradients_of(len(ids)), y[ids], prior)
            given = torch.cat([known, ids[y[ids].nonzero()[:5, 0]], ids[facts[5].places]])
            for method in ("observe", "batch"):
                yield method, view_of(attack.threat, *facts, *of_run, ids=ids, epoch=epoch), given
        facts = facts_about(h, torch.zeros(len(y), h.shape[1]), y, prior)[3:]  # no messages between rounds
        given = torch.cat([known, y.nonzero()[:5, 0]])
        yield "epoch", view_of(attack.threat, *facts, *of_run, ids=everyone, step=None, epoch=epoch), given


def scores_in(answer):
    if answer is None:
        return []
    return [answer.layers] if isinstance(answer.layers, torch.Tensor) else list(answer.layers.values())


def labels(rng, rows):
    y = (torch.rand(rows, generator=rng) < POSITIVE).long()
    y[:2] = torch.arange(2)
    return y


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_messages_that_say_nothing_of_the_label_read_a_coin(name, rng):
    attack, y, read = made(name), labels(rng, ROWS), []
    h = torch.randn(ROWS, D, generator=rng) @ torch.randn(D, D, generator=rng)

    def of_one_direction(n):
        return torch.randn(n, 1, generator=rng) * torch.ones(D) + torch.randn(n, D, generator=rng)

    for method, view, given in calls(attack, rng, h, of_one_direction, y):
        answer = getattr(attack, method)(view)
        for s in scores_in(answer):
            scored = ~torch.isin(answer.ids, given)
            read.append(auc((s[:, 1] - s[:, 0] if s.ndim == 2 else s)[scored], y[answer.ids[scored]]))
    assert read, "it answered nothing"
    assert sum(read) / len(read) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("name", ALL)
def test_an_attack_that_is_interrupted_before_every_call_answers_as_one_that_is_not(name, monkeypatch):
    """And reads all that it declares: a threat that declared more would overstate the attacker."""
    answers, read, original = [], set(), View.__getitem__
    monkeypatch.setattr(View, "__getitem__", lambda view, kind: (read.add(kind), original(view, kind))[1])
    for interrupted in (False, True):
        rng = torch.Generator().manual_seed(3)
        attack, y = made(name), labels(rng, 240)
        h = torch.randn(240, D, generator=rng) + y[:, None]
        answers.append([])
        for method, view, _ in calls(attack, rng, h, lambda n, rng=rng: torch.randn(n, D, generator=rng), y, batch=80):
            if interrupted:
                state, attack = state_of(attack), made(name)
                restore_state(attack, state)
            answer = getattr(attack, method)(view)
            answers[-1] += [answer.ids, *scores_in(answer)] if answer is not None else []
    assert answers[0], "it answered nothing"
    assert attack.threat.knows <= read
    torch.testing.assert_close(*answers, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "attack",
    [
        *(Esa(), Esa(prior="normal"), Grna(width=8, steps=2), Grna(width=8, steps=2, auxiliary=5, sees_labels=True)),
        *(ModelInversion(steps=2), ModelInversion(mode="black_box", decoder_steps=2), ModelInversion(prior="pca")),
        *(ModelInversion(steps=2, knows_compression=True, knows_noise_mean=True), Unsplit(rounds=1), Simulator()),
    ],
)
def test_an_attack_of_the_label_party_reads_all_that_it_declares(rng, monkeypatch, attack):
    rows, read, original = rows_of(rng, {"a": 2, "label": 1}), set(), View.__getitem__
    monkeypatch.setattr(View, "__getitem__", lambda view, kind: (read.add(kind), original(view, kind))[1])
    view = label_view(rows, attack, started_with(rows, rng), auxiliary_of(rows))
    attack.observe(view)
    attack.batch(view)
    assert read == attack.threat.knows


DEGENERATE = {
    "zeros": lambda n, d: torch.zeros(n, d),
    "ones": lambda n, d: torch.ones(n, d),
    "a tenth": lambda n, d: torch.full((n, d), 0.1),
    "1e-30": lambda n, d: 1e-30 * torch.linspace(-1, 2, n * d).view(n, d).sin(),
    "1e15": lambda n, d: 1e15 * torch.linspace(-1, 2, n * d).view(n, d).sin(),
    "a line": lambda n, d: torch.linspace(-1, 2, n)[:, None].expand(n, d),
}


@pytest.mark.parametrize("name", ALL)
def test_degenerate_messages_have_finite_scores_or_none(name):
    shapes_and_priors = ((40, 6, 0.25), (8, 7, 0.0), (2, 6, 1.0), (40, 6, 0.5))
    for (case, message), (rows, width, prior) in itertools.product(DEGENERATE.items(), shapes_and_priors):
        attack, rng, y = made(name), torch.Generator().manual_seed(0), torch.arange(rows) % 2
        h = message(rows, width)
        for method, view, _ in calls(attack, rng, h, partial(message, d=width), y, batch=20, prior=prior, epochs=1):
            for s in scores_in(getattr(attack, method)(view)):
                assert s.isfinite().all(), (case, rows, width, prior, method)
