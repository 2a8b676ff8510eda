import math

import torch
from support.audited import Audited, clicks, scripted
from support.builders import every_attack

from vflbench import Gradients, Known, Scores
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.run.attackers import draw_canaries, draw_known, draw_one_of_each, draw_positives


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


def test_known_rows_stay_the_same_are_never_scored_and_change_no_score_of_others():
    few, many, rounds = [], [], {"epochs": 2, "steps": 6, "canaries": 200}
    hinted, insiders = every_attack("hints", "averaging"), {"few": insider(20, few), "many": insider(100, many)}
    audited, alone = (Audited(clicks(), attacks, **rounds) for attacks in (insiders | hinted, hinted))
    for kept, count in ((few, 20), (many, 100)):
        known = kept[0][2]
        assert len(kept) == 2 * 6 + 2
        assert all(torch.equal(known.ids, one.ids) and torch.equal(known.labels, one.labels) for _, _, one in kept)
        assert len(known.ids.unique()) == count
        assert torch.equal(known.labels, audited.labels(known.ids))
        assert set(known.labels.tolist()) == {0, 1}
        assert not audited.canaries.find(audited.ids(known.ids))[0].any()
        met = torch.cat([ids for step, ids, _ in kept if step is not None])
        assert torch.isin(known.ids, met).any(), "some of them are in the rounds, or the test shows nothing"
    assert torch.equal(few[0][2].ids, many[0][2].ids[:20])
    # It is right about each row that it knows and silent about others: were one of those scored, it would show.
    of_insiders = [leak for leak in audited.leaks if leak.attack not in hinted]
    assert {(leak.layer, leak.raw.mean, leak.estimates["auc"][0].error) for leak in of_insiders} == {
        ("in batches", 0.5, 0.0),
        ("at the end", 0.5, 0.0),
    }
    assert [leak.raw for leak in audited.leaks if leak.attack in hinted] == [leak.raw for leak in alone.leaks]


def test_few_known_rows_show_every_class():
    data = Digits().load(torch.Generator().manual_seed(0))
    nobody = draw_canaries(data.train, 0, torch.Generator())
    for seed in range(20):
        known = draw_known(data.train, 30, torch.Generator().manual_seed(seed), nobody)
        assert known.labels[:10].tolist() == list(range(10))
        assert len(known.ids[:30].unique()) == 30
        assert torch.equal(known.labels, data.aligned().labels(known.ids))
        assert int(known.among(data.train.all().ids, 10).sum()) == 10
    data = Synthetic(rows=8000, vocabulary=300).load(torch.Generator().manual_seed(0))
    few, many = (draw_known(data.train, most, torch.Generator().manual_seed(0), nobody).ids for most in (20, 100))
    assert torch.equal(few[:20], many[:20]), "what another attack knows changes which rows an attack knows"
