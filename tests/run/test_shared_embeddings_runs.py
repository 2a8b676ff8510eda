"""Runs in which parties share embeddings: bytes by link, attackers in either role, what is refused, and going on."""

import pytest
from support.builders import Stop, every_attack, results, rows_of, run_in

from vflbench.attacks.model_inversion import ModelInversion
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.quantize import Quantize
from vflbench.errors import UserError
from vflbench.models.networks import Mlp
from vflbench.protocols.shared_embeddings import SharedEmbeddings
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings


def parts(**changes):
    """A run of a second."""
    settings = {"epochs": 2, "batch_size": 64, "audit": Audit(batches=1, epochs="last"), **changes.pop("settings", {})}
    parties = {"a": ["I1", "C1*"], "b": ["I2*"], "label": ["C2*", "I3"]}
    return {
        "dataset": Synthetic(rows=400, vocabulary=100, parties=parties),
        "protocol": SharedEmbeddings(local_steps=2),
        "defenses": {"quantize": Quantize(levels=4, learn_batches=8)},
        "attacks": {"model_inversion": ModelInversion(role="non_label", party="b", rows=4, steps=20, candidates=4)},
        "settings": Settings(**settings),
        **changes,
    }


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_bytes_of_one_that_was_not(tmp_path):
    run_in(tmp_path / "whole", **parts())
    with pytest.raises(Interrupted):
        run_in(tmp_path / "stopped", **parts(engine=Stop(at=70)))
    run_in(tmp_path / "stopped", **parts())
    assert results(tmp_path / "whole") == results(tmp_path / "stopped")


def test_traffic_is_counted_by_link_and_adds_up(tmp_path):
    attacks = every_attack("norm", "spectral", "no_message")
    summary = run_in(tmp_path / "run", **parts(attacks=attacks))
    why = "it infers labels, and every party holds the labels in this protocol"
    assert summary["skipped"] == dict.fromkeys(attacks, why)
    assert not summary["leaks"]  # not even the probe's, which would read labels where all hold them
    assert {(one["sender"], one["receiver"], one["message"]) for one in summary["links"]} == {
        *((party, "label", "embedding") for party in "ab"),
        *(("label", party, kind) for party in "ab" for kind in ("embedding", "model")),
    }
    for kind in ("embedding", "model"):
        assert sum(one["bytes"] for one in summary["links"] if one["message"] == kind) == summary["bytes_sent"][kind] > 0
    assert summary["bytes_sent"]["gradient"] == 0
    rows = [r for r in rows_of(tmp_path / "run") if r["split"] == "train" and r["metric"].startswith("bytes_sent:")]
    both_ways = [pair for party in "ab" for pair in ((party, "bytes_sent:label"), ("label", f"bytes_sent:{party}"))]
    assert {(r["party"], r["metric"]) for r in rows} == {*both_ways}
    assert sum(int(r["value"]) for r in rows if r["message"] == "embedding") == summary["bytes_sent"]["embedding"]


def test_what_can_not_be_done_is_refused(tmp_path):
    with pytest.raises(UserError, match="every party holds the labels"):
        run_in(tmp_path / "recorded", **parts(settings={"record": "messages"}))
    with pytest.raises(UserError, match="no such party attacks here; there are a, b, label, and all"):
        run_in(tmp_path / "who", **parts(attacks={"it": ModelInversion(role="non_label", party="z", rows=2, steps=1)}))


@pytest.mark.slow
def test_a_party_attacks_all_but_itself_and_reads_as_well_as_the_label_party(tmp_path):
    options = {"rows": 16, "steps": 200}
    attacks = {"label": ModelInversion(**options), "party": ModelInversion(role="non_label", party="a", **options)}
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
    assert (summary["skipped"], summary["leaks"]) == ({}, [])
