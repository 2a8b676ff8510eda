import re

import pytest
import torch
from support.builders import every_attack, figures, rows_of, run_in

from vflbench.attacks.averaging import Averaging
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Bernoulli, Synthetic
from vflbench.defenses.base import NonLabelDefense
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.errors import UserError
from vflbench.models.networks import Mlp, WideDeep
from vflbench.models.optimizers import Optimizer, Sgd
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings, choose_device
from vflbench.run.setup import FOR_MANY_CLASSES


def settings(**changes) -> Settings:
    return Settings(**{"epochs": 2, "batch_size": 128, "audit": Audit(batches=5), **changes})


def test_what_ran_before_in_the_same_process_changes_nothing(tmp_path):
    """A run switches denormal numbers off, which the run after it finds so, as the second one of a sweep does."""
    parts = {"dataset": Synthetic(rows=2000, vocabulary=300), "attacks": {}, "settings": settings(seed=1, epochs=1)}
    first, second = (run_in(tmp_path / name, **parts)["facts"] for name in ("first", "second"))
    assert first == second
    assert figures(tmp_path / "first") == figures(tmp_path / "second")


class Scale(NonLabelDefense):
    """Divides by the largest value seen so far."""

    largest = 1e-9

    def embedding(self, h, context):
        self.largest = max(self.largest, h.abs().max().item())
        return h / self.largest


@pytest.mark.slow
def test_auditing_more_less_or_not_at_all_trains_the_same_model(tmp_path):
    audits = {
        "few": {"settings": settings(audit=Audit(batches=1, dcor=True))},
        "all": {"settings": settings(audit=Audit(batches="all"))},
        "none": {"attacks": {}},
        "short": {"settings": settings(audit=Audit(train_rows=10))},
        "following": {"attacks": {"averaging": Averaging(rows=300), **every_attack("cosine")}},
    }
    models = set()
    for name, changes in audits.items():
        run_in(tmp_path / name, defenses={"scale": Scale(), "marvell": Marvell()}, **changes)
        rows = [row for row in rows_of(tmp_path / name) if row["metric"] == "loss" or row["split"] == "test"]
        models.add(str([(row["epoch"], row["metric"], row["value"]) for row in rows]))
    assert len(models) == 1


def test_auto_audits_a_15th_but_five_at_least_and_twenty_at_most():
    for steps, audited in ((3, 3), (5, 5), (99, 6), (192, 12), (400, 20), (10**6, 20)):
        assert Audit().audited(steps) == audited
        assert Audit(batches=7).audited(steps) == min(7, steps)
        assert Audit(batches="all").audited(steps) == steps


@pytest.mark.slow
def test_every_layer_is_attacked_and_every_message_counted_and_what_no_attacker_sees_is_marked(tmp_path):
    model = WideDeep(bottom_layers=3, top_layers=2, width=8, wide=True)
    summary = run_in(tmp_path / "run", model=model, defenses={"marvell": Marvell()})
    rows = rows_of(tmp_path / "run")
    leaks = {(r["attack"], r["message"], r["party"], r["layer"], r["visible"]) for r in rows if r["metric"] == "leak_auc"}
    at_a = {"f1", "f2", "f3", "wide"}
    assert leaks == {
        *(("norm", "gradient", "a", layer, "true") for layer in at_a),
        *(("spectral", "embedding", "a", layer, "true") for layer in at_a),
        *(("spectral", "embedding", "label", layer, "false") for layer in ("h1", "h2")),
        *(("probe", "none", "a", layer, "true") for layer in ("embeddings", "gradients", "messages")),
    }
    assert summary["guarantees"]["marvell"]["messages"] == 4  # a linear part doubles them
    first = [r for r in rows if r["split"] == "train" and r["epoch"] == "0"]
    sent = {(r["message"], r["metric"]): int(r["value"]) for r in first if "sent" in r["metric"]}
    for message in ("embedding", "gradient"):
        assert sent[message, "messages_sent"] == 2700 // 128
        assert sent[message, "bytes_sent"] == 2700 // 128 * 128 * (8 + 1) * 4


@pytest.mark.slow
def test_any_number_of_parties_and_a_label_party_with_features(tmp_path):
    for parties, names in ((4, set("abcd")), ({"x": ["I*"], "label": ["C*"]}, {"x"})):
        folder = tmp_path / str(len(names) + isinstance(parties, dict) * 10)
        summary = run_in(folder, dataset=Synthetic(rows=1500, vocabulary=300, parties=parties), settings=settings(epochs=1))
        assert {r["party"] for r in rows_of(folder) if r["metric"] == "bytes_sent"} == names
        assert {leak["party"] for leak in summary["leaks"] if leak["visible"]} == names


@pytest.mark.slow
def test_more_than_two_classes_train_and_default_attacks_are_replaced(tmp_path):
    model, how = Mlp(bottom_layers=2, width=64), settings(epochs=6, batch_size=32)
    summary = run_in(tmp_path / "run", dataset=Digits(), model=model, settings=how)
    assert summary["test_accuracy"] > 0.85
    assert summary["test_auc"] > 0.97
    assert FOR_MANY_CLASSES in (tmp_path / "run" / "train.log").read_text()


def reason(folder, **changes):
    """Why a run without attacks failed."""
    with pytest.raises(UserError) as stopped:
        run_in(folder / "run", attacks={}, **changes)
    return str(stopped.value)


def test_a_run_that_diverges_names_the_options_that_decide_a_step(tmp_path):
    small = {"dataset": Synthetic(rows=1000, vocabulary=100), "settings": settings(epochs=5, batch_size="auto")}
    text = reason(tmp_path, optimizer=Sgd(lr=1e4), defenses={"label_dp": LabelDp()}, **small)
    assert text.startswith("optimizer: the loss became ")
    assert re.search(r"at epoch 0, step \d+; what decides the size of a step is", text)
    assert "optimizer.lr=10000.0, optimizer.momentum=0.0, optimizer.weight_decay=0.0, defense=label_dp" in text
    assert text.endswith("Completed epochs are in metrics.csv")
    assert (tmp_path / "run" / "metrics.csv").exists()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_the_rate_of_federated_training_is_named_and_not_the_optimiser(tmp_path):
    how = settings(epochs=300, batch_size="auto", audit=Audit(batches=1, epochs="last"))
    text = reason(tmp_path, dataset=Bernoulli(), protocol=FederatedLr(rate=20.0), settings=how)
    assert text.startswith("protocol: ")
    assert "protocol.rate=20.0" in text


def test_a_divergence_on_the_last_step_is_seen_as_well(tmp_path):
    class Wild(Optimizer):
        def attach(self, network):
            return torch.optim.SGD(network.parameters(), lr=1e30)

    text = reason(tmp_path, optimizer=Wild(), settings=settings(epochs=1, batch_size=2700))
    assert "prediction is not a finite number after epoch 0" in text


def test_what_a_defense_withholds_counts_and_promises_is_reported(tmp_path):
    """Batches of two rows are often of one class; none is ever sent without noise."""
    parts = {"dataset": Synthetic(rows=60, vocabulary=300), "settings": settings(epochs=2, batch_size=2)}
    summary = run_in(tmp_path / "run", defenses={"marvell": Marvell(one_class="withhold")}, **parts)
    counts = {figure["figure"]: figure["value"] for figure in summary["figures"]}
    withheld, rows = counts["marvell.withheld_batches"], rows_of(tmp_path / "run")
    assert withheld == counts["marvell.one_class_batches"] > 0
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("no gradient is sent to party a: the batch has rows of one class only") == withheld
    sent = [int(r["value"]) for r in rows if (r["metric"], r["message"]) == ("messages_sent", "gradient")]
    assert sum(sent) + withheld == 2 * 27
    per_epoch = [int(r["value"]) for r in rows if r["metric"] == "marvell.withheld_batches"]
    assert (len(per_epoch), sum(per_epoch)) == (2, withheld)
    assert summary["guarantees"]["marvell"]["messages"] == 2


@pytest.mark.slow
def test_dependence_of_embeddings_and_labels_is_measured_where_asked_for(tmp_path):
    parts = {"dataset": Synthetic(rows=1000, vocabulary=300, parties=2), "attacks": {}}
    summary = run_in(tmp_path, settings=settings(audit=Audit(batches=5, dcor=True, probe=False)), **parts)
    values = {(d["party"], d["layer"], d["visible"]): d["dcor"]["mean"] for d in summary["distance_correlation"]}
    assert set(values) == {*((p, f, True) for p in ("a", "b") for f in ("f1", "f2")), ("label", "h1", False)}
    assert all(0 < value < 1 for value in values.values())
    assert len([r for r in rows_of(tmp_path) if r["metric"] == "distance_correlation"]) == 2 * len(values)


def test_no_leak_auc_is_undefined_and_never_zero(tmp_path):
    """With one row a batch there are no two classes to tell apart."""
    summary = run_in(tmp_path / "run", dataset=Synthetic(rows=40, vocabulary=300), settings=settings(epochs=1, batch_size=1))
    assert ", worst leak undefined, " in (tmp_path / "run" / "train.log").read_text()
    assert all(r["value"] == "" for r in rows_of(tmp_path / "run") if r["metric"].startswith("leak_auc"))
    assert summary["leaks"][0]["left_out"] == 5


def test_a_table_smaller_than_a_batch_is_one_batch(tmp_path):
    run_in(tmp_path / "run", dataset=Synthetic(rows=60, vocabulary=300), settings=settings(batch_size=8192))
    sent = [r for r in rows_of(tmp_path / "run") if r["metric"] == "messages_sent" and r["split"] == "train"]
    assert {r["value"] for r in sent} == {"1"}


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == choose_device("cpu").type == "cpu"
    with pytest.raises(UserError, match="device=cuda"):
        choose_device("cuda")
