import math

import pytest
import torch
from support.audited import Audited, clicks, scripted
from support.builders import figures, run_in

from vflbench import Gradients, Known, LocalModel, Scores
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.run.attackers import draw_canaries, draw_known, draw_one_of_each, draw_positives
from vflbench.run.settings import Audit, Settings


def insider(known_rows, kept):
    """An attack that answers with what it knows: right for known rows, 0 for others. kept: what it was shown."""

    def answer(view):
        known = view[Known]
        kept.append((view.step, view.ids, known))
        scores = torch.zeros(len(view.ids))
        for name, label in zip(known.ids.tolist(), known.labels.tolist(), strict=True):
            scores[view.ids == name] = 2.0 * label - 1
        return Scores(view.ids, {"at the end" if view.step is None else "in batches": scores})

    return scripted(Gradients, max_classes=math.inf, threat={"known_rows": known_rows}, batch=answer, epoch=answer)


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


def test_known_rows_stay_the_same_and_are_never_scored():
    few, many = [], []
    attacks = {"few": insider(20, few), "many": insider(100, many)}
    audited = Audited(clicks(), attacks, epochs=2, steps=6, canaries=200)
    for kept, count in ((few, 20), (many, 100)):
        facts = [known for _, _, known in kept]
        assert len(facts) == 2 * 6 + 2
        assert all(torch.equal(known.ids, facts[0].ids) and torch.equal(known.labels, facts[0].labels) for known in facts)
        assert len(facts[0].ids.unique()) == count
        assert torch.equal(facts[0].labels, audited.labels(facts[0].ids))
        assert set(facts[0].labels.tolist()) == {0, 1}
        assert not audited.canaries.find(audited.ids(facts[0].ids))[0].any()
        met = torch.cat([ids for step, ids, _ in kept if step is not None])
        assert torch.isin(facts[0].ids, met).any(), "some of them are in the rounds, or the test shows nothing"
    assert torch.equal(few[0][2].ids, many[0][2].ids[:20])
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


@pytest.mark.slow
def test_known_rows_of_a_run_are_those_it_goes_on_with_and_change_no_other_line(tmp_path):
    kept = []

    def epoch(view):
        """By their likeness to known positives."""
        known, embed = view[Known], view[LocalModel].embed
        kept.append(known.ids)
        return Scores(view.ids, embed(view.ids)["f2"] @ embed(known.ids[known.labels == 1])["f2"].mean(0))

    def run(name, epochs, **attacks):
        audit = Audit(batches=2, canaries=40, probe=False)
        settings = Settings(epochs=epochs, batch_size=64, checkpoint="keep", audit=audit)
        attacks |= {"norm": Norm(), "hints": Hints(), "averaging": Averaging(rows=60)}
        run_in(tmp_path / name, dataset=Synthetic(rows=500, vocabulary=100), attacks=attacks, settings=settings)
        return figures(tmp_path / name)

    logged = scripted(LocalModel, threat={"known_rows": 10}, epoch=epoch)
    without, whole = run("without", 3), run("whole", 3, logged=logged)
    assert [line for line in whole if ",logged" not in line] == without
    assert sum(",logged," in line for line in whole) == 3 * 6  # epochs, and leak AUCs of each with that of its surest tenth
    run("parts", 1, logged=logged)
    assert run("parts", 3, logged=logged) == whole
    assert "going on before epoch 1" in (tmp_path / "parts" / "train.log").read_text()
    assert len(kept) == (1 + 3) + (1 + 3)  # its reference on own columns fails once in each run
    assert all(torch.equal(ids, kept[0]) for ids in kept)
    assert kept[0].shape == (10,)
