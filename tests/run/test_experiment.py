import re

import pytest
import torch
from support.audited import scripted
from support.builders import every_attack, figures, rows_of, run_in

from vflbench import Gradients, Scores
from vflbench.attacks.averaging import Averaging
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import NonLabelDefense
from vflbench.defenses.marvell import Marvell
from vflbench.errors import UserError
from vflbench.models.networks import Mlp, WideDeep
from vflbench.models.optimizers import Adam, Optimizer
from vflbench.report.terminal import final_table
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
def test_no_model_beats_the_planted_bayes_auc_and_a_good_one_comes_near(tmp_path):
    dataset, optimizer = Synthetic(rows=15_000, vocabulary=300), Adam(lr=3e-3)
    summary = run_in(tmp_path, dataset=dataset, model=WideDeep(width=32), optimizer=optimizer, attacks={})
    assert 0.76 < summary["test_auc"] < 0.82
    assert summary["facts"]["bayes_auc"] == pytest.approx(0.8, abs=1e-4)


@pytest.mark.slow
def test_every_layer_is_attacked_and_every_message_counted_and_what_no_attacker_sees_is_marked(tmp_path):
    model = WideDeep(bottom_layers=3, top_layers=2, width=8, wide=True)
    summary = run_in(tmp_path / "run", model=model, defenses={"marvell": Marvell()})
    rows = rows_of(tmp_path / "run")
    leaks = {(r["attack"], r["message"], r["party"], r["layer"], r["visible"]) for r in rows if r["metric"] == "leak_auc"}
    own = {"f1", "f2", "f3", "wide"}
    expected = {("norm", "gradient", "a", layer, "true") for layer in own}
    expected |= {("spectral", "embedding", "a", layer, "true") for layer in own}
    expected |= {("spectral", "embedding", "label", layer, "false") for layer in ("h1", "h2")}
    expected |= {("probe", "none", "a", layer, "true") for layer in ("embeddings", "gradients", "messages")}
    assert leaks == expected
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
        # A label party's own f-layers are hidden, and never stand in the summary for what an attacker sees.
        shown = [k for k in summary["leaks"] if (k["layer"], k["visible"], k["attack"]) == ("f2", True, "spectral")]
        worst = max(shown, key=lambda leak: max(leak["two_sided"]["mean"], leak["net"]["mean"]))
        assert summary["leak_auc"]["spectral"]["embedding"]["f2"] == worst["raw"]["mean"], parties


@pytest.mark.slow
def test_more_than_two_classes_train_and_default_attacks_are_replaced(tmp_path):
    summary = run_in(
        tmp_path / "run", dataset=Digits(), model=Mlp(bottom_layers=2, width=64), settings=settings(epochs=6, batch_size=32)
    )
    assert summary["test_accuracy"] > 0.85
    assert summary["test_auc"] > 0.97
    assert FOR_MANY_CLASSES in (tmp_path / "run" / "train.log").read_text()


def test_a_divergence_on_the_last_step_is_seen_as_well(tmp_path):
    class Wild(Optimizer):
        def attach(self, network):
            return torch.optim.SGD(network.parameters(), lr=1e30)

    with pytest.raises(UserError, match="prediction is not a finite number after epoch 0"):
        run_in(tmp_path / "run", optimizer=Wild(), settings=settings(epochs=1, batch_size=2700), attacks={})


@pytest.mark.slow
def test_row_names_are_stable_over_epochs_and_tell_nothing_of_the_file(tmp_path):
    met = {0: [], 1: []}

    def batch(view):
        met[view.epoch].append(view.ids)
        return Scores(view.ids, view.ids)

    class Sorted(Synthetic):
        """A file sorted by label: position would be the label."""

        def read(self, rng):
            raw, facts = super().read(rng)
            order = raw.labels.argsort(kind="stable")
            return raw.take(order), facts

    parts = {"dataset": Sorted(rows=2000, vocabulary=300), "attacks": {"clerk": scripted(Gradients, batch=batch)}}
    summary = run_in(tmp_path / "run", settings=settings(audit=Audit(batches="all")), **parts)
    assert 0.45 < summary["leak_auc"]["clerk"]["gradient"]["f2"] < 0.55
    first, second = (torch.cat(ids).tolist() for ids in met.values())
    assert len(set(first)) == len(first)
    assert len(set(first) & set(second)) > 0.8 * len(first)


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
    table = final_table(tmp_path / "run")
    assert re.search(rf"^a +f2 +gradient +marvell.withheld_batches +{withheld}$", table, re.M), table
    assert re.search(r"leak auc one message +0\.680\b", table), table
    assert summary["guarantees"]["marvell"]["messages"] == 2


@pytest.mark.slow
def test_dependence_of_embeddings_and_labels_is_measured_where_asked_for(tmp_path):
    parts = {"dataset": Synthetic(rows=1000, vocabulary=300, parties=2), "attacks": {}}
    summary = run_in(tmp_path, settings=settings(audit=Audit(batches=5, dcor=True, probe=False)), **parts)
    found = {(d["party"], d["layer"], d["visible"]): d["dcor"]["mean"] for d in summary["distance_correlation"]}
    assert set(found) == {*((p, f, True) for p in ("a", "b") for f in ("f1", "f2")), ("label", "h1", False)}
    assert all(0 < value < 1 for value in found.values())
    assert len([r for r in rows_of(tmp_path) if r["metric"] == "distance_correlation"]) == 2 * len(found)
    assert re.search(r"^a +f1 +yes +0\.\d+ .*$", final_table(tmp_path), re.M)


def test_a_defense_for_two_classes_is_refused_for_more(tmp_path):
    with pytest.raises(UserError, match="defense=marvell: it protects 2 classes, and the labels have 10"):
        run_in(tmp_path / "run", dataset=Digits(), model=Mlp(), attacks={}, defenses={"marvell": Marvell()})


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
