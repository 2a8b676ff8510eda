"""Epochs for tests of attacks that follow rows."""

import torch
from attacks.views import shares, view_of

from vflbench.attacks.base import MESSAGE_FACTS
from vflbench.messages.facts import Embeddings, Gradients, LocalModel


def show(attack, g, h=None, *, prior=0.25, batch=512, epoch=0, rng=None):
    """An epoch of rows 0, 1, ... with gradients g and embeddings h, (n, d) each, in this order or a random one."""
    order = torch.arange(len(g)) if rng is None else torch.randperm(len(g), generator=rng)
    for ids in order.split(batch) if len(g) else ():
        sent = (Gradients({"f1": g[ids]}), *([] if h is None else [Embeddings({"f1": h[ids]})]))
        assert attack.observe(view_of(attack.threat, *sent, shares(prior), ids=ids, epoch=epoch)) is None


def ask(attack, h, *, prior=0.25, rows=None):
    """The answer about these rows, or all, at the end of an epoch. h: (n, d) what the party's network makes of them."""
    rows, model = torch.arange(len(h)) if rows is None else rows, LocalModel(lambda ids: {"f1": h[ids]})
    return attack.epoch(view_of(attack.threat, model, shares(prior), ids=rows, step=None))


def ordered(answer):
    """Scores in the order of the rows' ids."""
    return answer.layers["f1"][answer.ids.argsort()]


def read(attack, batches, prior):
    """Scores of all rows after these batches, as many rows each, in the order of their ids."""
    x, fact = torch.cat([*batches]), MESSAGE_FACTS[getattr(attack, "message", "gradients")]
    for ids in torch.arange(len(x)).split(len(batches[0])):
        attack.observe(view_of(attack.threat, fact({"f1": x[ids]}), shares(prior), ids=ids))
    return ordered(attack.epoch(view_of(attack.threat, shares(prior), ids=torch.arange(len(x)), step=None)))


def along(rng, z, d=32, other=0.05):
    """(n, d): z along one direction, and a little in all."""
    direction = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    return z[:, None] * direction + other * torch.randn(len(z), d, generator=rng)
