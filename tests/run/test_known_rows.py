import math

import pytest
import torch
from support.audited import Audited, clicks
from support.builders import run_in

from vflbench.attacks.averaging import Averaging
from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.messages.facts import Gradients, Known, LocalModel
from vflbench.messages.threat import Threat
from vflbench.run.attackers import draw_canaries, draw_known, draw_one_of_each, draw_positives
from vflbench.run.settings import Audit, Settings


class Insider(Attack):
    """Knows rows, and answers with what it knows: right for those, 0 for others. Keeps all that it was shown."""

    max_classes = math.inf
    threat = Threat()

    def __init__(self, known, facts=(Gradients,)):
        self.threat, self.batches, self.epochs = Threat(knows=facts, known_rows=known), [], []

    def answer(self, view, layer):
        known = view[Known]
        scores = torch.zeros(len(view.ids))
        for name, label in zip(known.ids.tolist(), known.labels.tolist(), strict=True):
            scores[view.ids == name] = 2.0 * label - 1
        return known, Scores(view.ids, {layer: scores})

    def batch(self, view):
        known, scores = self.answer(view, "in batches")
        self.batches.append((view.ids, known))
        return scores

    def epoch(self, view):
        known, scores = self.answer(view, "at the end")
        self.epochs.append((view.ids, known))
        return scores


@pytest.fixture(scope="module")
def data():
    return clicks()


def test_known_rows_of_a_batch_are_drawn_among_those_that_qualify(rng):
    labels = torch.randint(4, (200,), generator=rng)
    drawn = [draw_one_of_each(labels, 4, rng) for _ in range(50)]
    assert all(labels[places].tolist() == [0, 1, 2, 3] for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 45
    assert draw_one_of_each(labels, 5, rng).tolist() == []
    canary = torch.arange(200) % 2 == 0
    positives = draw_positives(labels, canary, 1000, rng)
    assert sorted(positives.tolist()) == ((labels != 0) & ~canary).nonzero()[:, 0].tolist()
    assert len(draw_positives(labels, canary, 3, rng)) == 3


def test_known_rows_stay_the_same_and_are_never_scored(data):
    audited = Audited(data, {"few": Insider(20), "many": Insider(100)}, epochs=2, steps=6, canaries=200)
    few, many = audited.attack("few"), audited.attack("many")
    for insider, count in ((few, 20), (many, 100)):
        facts = [known for _, known in (*insider.batches, *insider.epochs)]
        assert len(facts) == 2 * 6 + 2
        assert all(torch.equal(known.ids, facts[0].ids) and torch.equal(known.labels, facts[0].labels) for known in facts)
        assert len(facts[0].ids.unique()) == count
        assert torch.equal(facts[0].labels, audited.labels(facts[0].ids))
        assert set(facts[0].labels.tolist()) == {0, 1}
        assert not audited.canaries.find(audited.ids(facts[0].ids))[0].any()
        met = torch.cat([ids for ids, _ in insider.batches])
        assert torch.isin(facts[0].ids, met).any(), "some of them are in the rounds, or the test shows nothing"
    assert torch.equal(few.batches[0][1].ids, many.batches[0][1].ids[:20])
    # It is right about each row that it knows and silent about others: were one of those scored, it would show.
    assert {(leak.layer, leak.raw.mean, leak.estimates["auc"][0].error) for leak in audited.leaks} == {
        ("in batches", 0.5, 0.0),
        ("at the end", 0.5, 0.0),
    }


def test_few_known_rows_show_every_class():
    data = Digits().load(torch.Generator().manual_seed(0))
    nobody = draw_canaries(data.train, 0, torch.Generator())
    for seed in range(20):
        known = draw_known(data.train, 30, torch.Generator().manual_seed(seed), nobody)
        assert known.labels[:10].tolist() == list(range(10))
        assert known.labels[:4].tolist() == [0, 1, 2, 3]
        assert len(known.ids[:30].unique()) == 30
        assert torch.equal(known.labels, data.aligned().labels(known.ids))
        assert int(known.among(data.train.all().ids, 10).sum()) == 10
    data = Synthetic(rows=8000, vocabulary=300).load(torch.Generator().manual_seed(0))
    few, many = (draw_known(data.train, most, torch.Generator().manual_seed(0), nobody).ids for most in (20, 100))
    assert torch.equal(few[:20], many[:20]), "what another attack knows changes which rows an attack knows"
    same = [draw_known(data.train, most, torch.Generator().manual_seed(0), nobody).ids for most in (30, 30)]
    assert torch.equal(*same)


class Logged(Attack):
    """Scores rows by their likeness to known positives; keeps what it knew."""

    threat = Threat(knows={LocalModel}, known_rows=10)
    known = []

    def epoch(self, view):
        known, embed = view[Known], view[LocalModel].embed
        self.known.append(known)
        return Scores(view.ids, embed(view.ids)["f2"] @ embed(known.ids[known.labels == 1])["f2"].mean(0))


@pytest.mark.slow
def test_known_rows_of_a_run_are_those_it_goes_on_with_and_change_no_other_line(tmp_path):
    def parts(epochs, attacks):
        audit = Audit(batches=2, canaries=40, probe=False)
        settings = Settings(epochs=epochs, batch_size=64, checkpoint="keep", audit=audit)
        return {"dataset": Synthetic(rows=500, vocabulary=100), "attacks": attacks, "settings": settings}

    def lines(folder):
        return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds," not in line]

    others = {"norm": Norm(), "hints": Hints(), "averaging": Averaging(rows=60)}
    run_in(tmp_path / "without", **parts(3, others))
    Logged.known = []
    run_in(tmp_path / "whole", **parts(3, {"logged": Logged(), **others}))
    ours = lines(tmp_path / "whole")
    assert [line for line in ours if ",logged" not in line] == lines(tmp_path / "without")
    assert sum(",logged," in line for line in ours) == 3 * 6  # epochs, and leak AUCs of each with that of its surest tenth
    run_in(tmp_path / "parts", **parts(1, {"logged": Logged(), **others}))
    run_in(tmp_path / "parts", **parts(3, {"logged": Logged(), **others}))
    assert "going on before epoch 1" in (tmp_path / "parts" / "train.log").read_text()
    assert lines(tmp_path / "parts") == ours
    assert len(Logged.known) == (1 + 3) + (1 + 3)  # its reference on own columns fails once in each run
    assert all(torch.equal(known.ids, Logged.known[0].ids) for known in Logged.known)
    assert Logged.known[0].ids.shape == (10,)
