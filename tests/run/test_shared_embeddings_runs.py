"""Runs in which parties share embeddings: bytes by link, attackers at either seat, what is refused, and going on."""

import csv
import json
import os
import signal

import pytest
import torch
from builders import TappedWire, run_in

from vflbench.attacks.base import RebuiltRows
from vflbench.attacks.model_inversion import ModelInversion
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.quantize import Quantize
from vflbench.engines.local import Local
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.models.mlp import Mlp
from vflbench.options import options
from vflbench.protocols.shared_embeddings import SharedEmbeddings
from vflbench.protocols.split import Split
from vflbench.run.grade_reconstruction import ReconstructionGrader
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings


@options
class CtrlC(Local):
    """Ctrl-C when the message of number `at` crosses."""

    at: int = -1

    def wire(self):
        return TappedWire(self.carried)

    def carried(self, message):
        self.crossed = getattr(self, "crossed", -1) + 1
        if self.crossed == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def parts(**changes):
    """A run of a second."""
    settings = {"epochs": 2, "batch_size": 64, "audit": Audit(batches=1, epochs="last"), **changes.pop("settings", {})}
    parties = {"a": ["I1", "C1*"], "b": ["I2*"], "label": ["C2*", "I3"]}
    return {
        "dataset": Synthetic(rows=400, vocabulary=100, parties=parties),
        "protocol": SharedEmbeddings(local_steps=2),
        "defenses": {"quantize": Quantize(levels=4, learn_batches=8)},
        "attacks": {"model_inversion": ModelInversion(seat="non_label", party="b", rows=4, steps=20, candidates=4)},
        "settings": Settings(**settings),
        **changes,
    }


def rows_of(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_bytes_of_one_that_was_not(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run_in(whole, **parts())
    for at in (13, 70):
        with pytest.raises(Interrupted):
            run_in(stopped, **parts(engine=CtrlC(at=at)))
    run_in(stopped, **parts())
    texts = [
        json.loads((folder / "summary.json").read_text()) | {"seconds": 0, "cpu_seconds": 0} for folder in (whole, stopped)
    ]
    assert texts[0] == texts[1]
    lines = [[row for row in rows_of(folder) if "seconds" not in row["metric"]] for folder in (whole, stopped)]
    assert lines[0] == lines[1]


def test_traffic_is_counted_by_link_and_adds_up(tmp_path):
    summary = run_in(tmp_path / "run", **parts(attacks={"norm": Norm(), "spectral": Spectral(), "no": NoMessage()}))
    assert set(summary["skipped"].values()) == {"it infers labels, and every party holds the labels in this protocol"}
    assert set(summary["skipped"]) == {"norm", "spectral", "no"}
    assert not summary["leaks"]  # not even the probe's, which would read labels where all hold them
    links = {(one["sender"], one["receiver"], one["message"]): one for one in summary["links"]}
    assert set(links) == {
        *(("ab"[k], "label", "embedding") for k in (0, 1)),
        *(("label", "ab"[k], kind) for k in (0, 1) for kind in ("embedding", "model")),
    }
    for kind in ("embedding", "model"):
        assert sum(one["bytes"] for one in summary["links"] if one["message"] == kind) == summary["bytes_sent"][kind] > 0
    assert summary["bytes_sent"]["gradient"] == 0
    rows = [row for row in rows_of(tmp_path / "run") if row["split"] == "train"]
    assert (
        sum(int(r["value"]) for r in rows if r["metric"] == "bytes_sent" and r["message"] == "embedding")
        == (summary["bytes_sent"]["embedding"])
    )
    of_link = {(r["party"], r["metric"]) for r in rows if r["metric"].startswith("bytes_sent:")}
    assert of_link == {
        ("a", "bytes_sent:label"),
        ("b", "bytes_sent:label"),
        ("label", "bytes_sent:a"),
        ("label", "bytes_sent:b"),
    }
    assert (
        sum(int(r["value"]) for r in rows if r["metric"].startswith("bytes_sent:") and r["message"] == "embedding")
        == (summary["bytes_sent"]["embedding"])
    )


def test_what_can_not_be_done_is_refused(tmp_path):
    with pytest.raises(UserError, match="every party holds the labels"):
        run_in(tmp_path / "recorded", **parts(settings={"record": "messages"}))
    with pytest.raises(UserError, match="no such party attacks here; there are a, b, label, and all"):
        run_in(tmp_path / "who", **parts(attacks={"it": ModelInversion(seat="non_label", party="z", rows=2, steps=1)}))
    with pytest.raises(ValueError, match="the label party is one alone"):
        ModelInversion(party="a")


def test_split_learning_has_nothing_for_an_inversion_from_a_party(tmp_path):
    changes = {"protocol": Split(), "settings": {"epochs": 1, "audit": Audit(batches=1, probe=False)}}
    summary = run_in(tmp_path / "run", **parts(**changes))
    assert "not in this protocol for the non-label party" in summary["skipped"]["model_inversion"]


@pytest.mark.slow
def test_a_party_attacks_all_but_itself_and_reads_as_well_as_the_label_party(tmp_path):
    options = {"rows": 16, "steps": 200}
    attacks = {
        "label": ModelInversion(**options),
        "party": ModelInversion(seat="non_label", party="a", **options),
    }
    changes = {"dataset": Digits(parties=4), "model": Mlp(bottom_layers=2, width=32), "defenses": {}, "attacks": attacks}
    summary = run_in(tmp_path / "run", **parts(**changes, settings={"epochs": 1, "audit": Audit(batches=1)}))
    mse = {
        (one["attack"], one["party"]): one["figures"]["mse"]["mean"]
        for one in summary["reconstructions"]
        if one["message"] == "embedding"
    }
    assert set(mse) == {*(("label", p) for p in (*"abcd", "all")), *(("party", f"{p} by a") for p in (*"bcd", "all"))}
    for party in "bcd":  # the same messages, and other random starts
        assert mse["party", f"{party} by a"] == pytest.approx(mse["label", party], rel=0.5, abs=2e-3)
    seats = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert seats["skipped"] == {}


@pytest.mark.slow
def test_an_attackers_own_part_is_filled_in_and_not_graded():
    data = Digits(parties=4).load(torch.Generator().manual_seed(0))
    rows = data.train.all().rows(torch.arange(5, 45))
    answer = {p: OwnColumns(1 - f.numeric, f.categorical) for p, f in rows.features.items() if p != "b"}
    table = ReconstructionTable()
    ReconstructionGrader(data.train, data.test, 5).grade("it", RebuiltRows(rows.ids, "f2", answer), rows, 0, table, "b")
    found = {(one.party, one.layer): one.figures["mse"].mean for one in table.found() if "mse" in one.figures}
    assert {party for party, _ in found} == {"a by b", "c by b", "d by b", "all by b"}
    parts_of_it = [found[f"{p} by b", "f2"] for p in "acd"]
    assert found["all by b", "f2"] == pytest.approx(sum(parts_of_it) / 4, rel=1e-5)  # nothing is wrong in its own quarter
    errors = [(rows.features[p].numeric - data.test.all().features[p].numeric.mean(0)).square().mean() for p in "acd"]
    assert found["all by b", "mean"] == pytest.approx(float(sum(errors)) / 4, rel=1e-4)  # nor in that of a guess
    examples = table.examples()
    whole, truth = examples["it/all by b/f2/answer"], examples["it/all by b/f2/truth"]
    assert whole.shape == truth.shape == (20, 8, 8)
    assert (whole[:, :4, 4:] == truth[:, :4, 4:]).all()  # b holds the upper right quarter
