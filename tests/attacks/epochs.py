"""Epochs for tests of attacks that collect batches."""

import torch
from attacks.views import shares, view_of

from vflbench.attacks.base import MESSAGE_FACTS


def read(attack, batches, prior):
    """Scores of all rows after these batches, in the order of their ids."""
    first = 0
    for x in batches:
        ids = torch.arange(first, first + len(x))
        attack.observe(
            view_of(attack.threat, MESSAGE_FACTS[getattr(attack, "message", "gradients")]({"f1": x}), shares(prior), ids=ids)
        )
        first += len(x)
    answer = attack.epoch(view_of(attack.threat, shares(prior), ids=torch.arange(first), step=None))
    return answer.layers["f1"][answer.ids.argsort()]


def along(rng, z, d=32, other=0.05):
    """(n, d): z along one direction, and a little in all."""
    direction = torch.nn.functional.normalize(torch.randn(d, generator=rng), dim=0)
    return z[:, None] * direction + other * torch.randn(len(z), d, generator=rng)
