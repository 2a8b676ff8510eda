"""Where messages are independent of the label, every attack on labels reads a coin, whatever labels it was given."""

import pytest
import torch
import yaml
from attacks.views import embeddings, positives, shares, view_of

from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.messages.facts import ClassHints, Gradients, Known, OwnColumns, OwnModel, SummedGradients
from vflbench.messages.threat import Seat
from vflbench.numerics.auc import auc
from vflbench.places import config_folder

ROWS, BATCH, D, EPOCHS, POSITIVE, GIVEN = 2000, 250, 12, 2, 0.25, 100
SHARES = shares(POSITIVE)
ELSEWHERE = {"exploit"}  # slow, and tested for the same in its own file


def attacks_on_labels():
    """Name -> attack with the options of its file, of all that sit at a non-label party."""
    made = {}
    for file in sorted((config_folder() / "attack").glob("*.yaml")):
        node = yaml.safe_load(file.read_text()).get(file.stem)  # sets, and `none`, have none
        attack = component(node, f"attack.{file.stem}", Attack) if node else None
        if attack is not None and attack.threat.seat is Seat.NON_LABEL and file.stem not in ELSEWHERE:
            made[file.stem] = attack
    return made


def facts_about(h, g, y):
    """All that an attacker of labels can be given about these rows: messages, columns, known positives and classes."""
    first = [int((y == k).nonzero()[0]) for k in (0, 1)]
    return (
        embeddings(h),
        Gradients({"f1": g}),
        SummedGradients({"f1.weight": g.T @ h[:, :4], "f1.bias": g.sum(dim=0)}),
        OwnColumns(h[:, :4], (h[:, 4:6] > 0).long()),
        positives(y.nonzero()[:5, 0].tolist()),
        ClassHints(torch.tensor(first)),
        SHARES,
    )


def readings(attack, rng):
    """The AUC of each answer of two epochs, without the rows whose label was given."""
    y = (torch.rand(ROWS, generator=rng) < POSITIVE).long()
    h = torch.randn(ROWS, D, generator=rng) @ torch.randn(D, D, generator=rng)
    known = torch.arange(GIVEN)
    of_run = OwnModel(lambda ids: {"f1": h[ids]}), Known(known, y[known])
    read = []

    def grade(answer, given):
        if answer is None:
            return
        for s in [answer.layers] if isinstance(answer.layers, torch.Tensor) else answer.layers.values():
            scored = ~torch.isin(answer.ids, given)
            values = s[:, 1] - s[:, 0] if s.ndim == 2 else s
            read.append(auc(values[scored], y[answer.ids[scored]]))

    for epoch in range(EPOCHS):
        for ids in torch.randperm(ROWS, generator=rng).split(BATCH):
            g = torch.randn(len(ids), 1, generator=rng) * torch.ones(D) + torch.randn(len(ids), D, generator=rng)
            facts = facts_about(h[ids], g, y[ids])
            given = torch.cat([known, ids[y[ids].nonzero()[:5, 0]], ids[facts[5].places]])
            attack.observe(view_of(attack.threat, *facts, *of_run, ids=ids, epoch=epoch))
            grade(attack.batch(view_of(attack.threat, *facts, *of_run, ids=ids, epoch=epoch)), given)
    if not attack.overrides("epoch"):
        return read
    everyone = torch.arange(ROWS)
    facts = facts_about(h, torch.zeros(ROWS, D), y)[3:]  # no messages between rounds
    given = torch.cat([known, y.nonzero()[:5, 0]])
    grade(attack.epoch(view_of(attack.threat, *facts, *of_run, ids=everyone, step=None, epoch=EPOCHS - 1)), given)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("name", attacks_on_labels())
def test_messages_that_say_nothing_of_the_label_read_a_coin(name, rng):
    read = readings(attacks_on_labels()[name], rng)
    assert read, "it answered nothing"
    assert sum(read) / len(read) == pytest.approx(0.5, abs=0.04)
