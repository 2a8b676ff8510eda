"""A recording that claims label DP is held against its messages, whichever attacks an audit chooses."""

import math

import pytest
import torch

from vflbench.attacks.norm import Norm
from vflbench.messages.recording_format import Claims, LabelDpClaim, Manifest, PartyLayers, write_batch_file, write_manifest
from vflbench.messages.tables import write_rows
from vflbench.run.offline import audit

EPOCHS, ROWS, BATCH = 3, 3000, 250


def recorded(folder, *, eps, fresh, claim):
    """Messages about labels that went through randomized response. Features tell labels, and embeddings are features."""
    rng = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, 3, generator=rng)
    y = (torch.rand(ROWS, generator=rng) < torch.sigmoid(2 * x[:, 0] - 1)).long()
    keep = 1 / (1 + math.exp(-eps))
    write_manifest(folder, Manifest(2, {"a": PartyLayers({"cut": 3})}, claims=claim))
    released = None
    direction = torch.tensor([1.0, -0.5, 0.3])
    for epoch in range(EPOCHS):
        if released is None or fresh:
            released = torch.where(torch.rand(ROWS, generator=rng) < keep, y, 1 - y)
        for step, ids in enumerate(torch.randperm(ROWS, generator=rng).split(BATCH)):
            residual = torch.sigmoid(x[ids, 0])[:, None] - released[ids, None]
            tensors = {"embedding/cut": x[ids], "gradient/cut": residual * direction}
            write_batch_file(folder, "a", ids, tensors, epoch=epoch, step=step)
    write_rows(folder / "labels.parquet", {"id": torch.arange(ROWS), "label": y})
    return audit(folder, {"norm": Norm()}, probe=False).observed


def promise(eps, *, fresh=False):
    return Claims(LabelDpClaim(eps, fresh))


@pytest.mark.slow
def test_flips_drawn_again_in_each_epoch_and_twice_the_promise_are_found_and_a_kept_promise_is_not(tmp_path):
    kept = recorded(tmp_path / "kept", eps=1.0, fresh=False, claim=promise(1.0))
    assert (kept.outcome, kept.claimed) == ("nothing", 1.0)
    assert 0 < kept.eps_low <= 1
    assert "This proves nothing." in kept.verdict
    again = recorded(tmp_path / "again", eps=1.0, fresh=True, claim=promise(1.0))
    assert again.outcome == "against"
    assert 1.3 < again.eps_low <= 3
    assert again.attack == "direct on every batch at a cut"  # the audit's own attack knows nothing of the sign
    twice = recorded(tmp_path / "twice", eps=2.0, fresh=False, claim=promise(1.0))
    assert twice.outcome == "against"
    assert twice.eps_low <= 2
    honest = recorded(tmp_path / "honest", eps=1.0, fresh=True, claim=promise(1.0, fresh=True))
    assert (honest.outcome, honest.claimed) == ("nothing", 3.0)


def test_without_a_claim_nothing_is_checked(tmp_path):
    assert recorded(tmp_path, eps=1.0, fresh=False, claim=Claims()) is None
