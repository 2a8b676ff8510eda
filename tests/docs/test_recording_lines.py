"""The loops that README.md and the how-to page on audits show: what they record can be audited."""

import re
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from vflbench import audit
from vflbench.attacks.norm import Norm
from vflbench.messages.recording_format import manifest_in

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/howto/audit.md"])
def test_the_lines_shown_make_a_recording_with_epochs_and_labels(tmp_path, monkeypatch, page):
    shown = re.search(r"\n( +from vflbench import Recording\n(?: .*\n|\n)*)", (ROOT / page).read_text("utf-8"))
    assert shown
    monkeypatch.chdir(tmp_path)
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=rng), (torch.arange(40) % 4 == 0).float()
    names = {
        "bottom": torch.nn.Linear(3, 4),
        "top": torch.nn.Linear(4, 1),
        "batches": [(ids, x[ids], y[ids]) for ids in torch.arange(40).split(20)],
        "loss_of": lambda out, y: torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y),
    }
    exec(textwrap.dedent(shown[1].split("\n    vflbench ")[0]), names)
    assert len(pq.read_table("recorded/labels.parquet")) == 40
    assert manifest_in(Path("recorded")).labels == "label"
    rows = audit("recorded", {"norm": Norm()}).rows()
    assert {row.epoch for row in rows if row.metric == "leak_auc"} == {0, 1}
