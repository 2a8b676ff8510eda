import math
from itertools import chain

import pytest
import torch
from builders import session

from vflbench.attacks.base import Attack
from vflbench.attacks.no_message import NoMessage
from vflbench.data.synthetic import Synthetic
from vflbench.generators import Generators
from vflbench.messages.transcript import Knowledge
from vflbench.messages.wire import Kind
from vflbench.metrics.leakage import LeakTable
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.run.auditor import Auditor, _one_of_each, row_names


class Told(Attack):
    """Answers with what it was told: 1 for hints. Keeps the hints of each batch."""

    knows = frozenset({Knowledge.GRADIENTS, Knowledge.HINTS})
    scores = Kind.GRADIENT

    def __init__(self, hints):
        self.hints, self.asked = hints, []

    def infer(self, view):
        self.asked.append((view.ids, view.hints))
        return {layer: torch.zeros(len(g)).index_fill_(0, view.hints, 1.0) for layer, g in view.gradients.items()}


class Follower(Attack):
    """Counts how often it met each row, and answers with that."""

    knows = frozenset({Knowledge.GRADIENTS})
    scores = Kind.GRADIENT

    def __init__(self, rows):
        self.follows, self.met, self.groups = rows, {}, []

    def observe(self, view):
        assert list(view.gradients) == ["f1", "f2"]
        assert all(len(g) == len(view.ids) for g in view.gradients.values())
        for name in view.ids.tolist():
            self.met[name] = self.met.get(name, 0) + 1

    def infer(self, view):
        self.groups.append(view.ids.tolist())
        return {"f2": torch.tensor([float(self.met[name]) for name in view.ids.tolist()])}


@pytest.fixture
def data():
    return Synthetic(rows=700, vocabulary=100).load(torch.Generator().manual_seed(0))


def audited(data, attacks, batches=4, size=100):
    """Rounds on the first batches of the training rows; what every post keeps and the leaks."""
    started, leaks = session(data.train.all()), LeakTable()
    auditor = Auditor(attacks, started, Generators(0), data.train, size)
    rows = data.train.all()
    for step in range(batches):
        batch = rows.rows(slice(step * size, (step + 1) * size))
        transcript = auditor.transcript(batch, 0, step)
        started.round(batch, transcript)
        auditor.observe(transcript, batch)
        auditor.attack(transcript, batch, leaks, ReconstructionTable())
    return auditor, leaks


def test_hints_are_positives_of_the_batch_and_are_not_scored(data):
    auditor, leaks = audited(data, {"told": Told(3)})
    (post,) = auditor._posts
    rows = data.train.all()
    for step, (_, hints) in enumerate(post.attack.asked):
        labels = rows.labels[step * 100 : (step + 1) * 100]
        assert len(hints.unique()) == 3
        assert (labels[hints] == 1).all()
    assert len({tuple(hints.tolist()) for _, hints in post.attack.asked}) == 4  # drawn afresh
    assert all(leak.raw.mean == 0.5 for leak in leaks.leaks())  # who repeats the hints has learned nothing


def test_too_few_positives_leave_the_batch_out(data):
    _, leaks = audited(data, {"told": Told(1000)})
    assert [(leak.layer, leak.batches, leak.left_out) for leak in leaks.leaks()] == [("f1", 0, 4), ("f2", 0, 4)]
    assert all(math.isnan(leak.raw.mean) for leak in leaks.leaks())


def test_followed_rows_are_the_same_all_along_and_asked_about_once_met(data):
    auditor, leaks = audited(data, {"few": Follower(60), "many": Follower(200)})
    few, many = (post.attack for post in auditor._posts)
    assert set(few.met) < set(many.met)
    assert 20 < len(few.met) <= 60
    assert auditor.follows
    assert leaks.leaks() == []  # nothing before the epoch's end
    auditor.conclude(0, 4, leaks, ReconstructionTable())
    for follower in (few, many):
        assert sorted(chain(*follower.groups)) == sorted(follower.met)
        assert len(follower.groups) == 5
    found = [(leak.attack, leak.layer, leak.batches + leak.left_out) for leak in leaks.leaks()]
    assert found == [("few", "f2", 5), ("many", "f2", 5)]


def test_state_tells_which_rows_were_met(data):
    auditor, _ = audited(data, {"few": Follower(60)})
    other = Auditor({"few": Follower(60)}, session(data.train.all()), Generators(0), data.train, 100)
    other.restore(auditor.state())
    leaks = LeakTable()
    other.conclude(0, 4, leaks, ReconstructionTable())
    assert sum(map(len, other._posts[0].attack.groups)) == len(auditor._posts[0].attack.met)


def test_row_names_tell_rows_apart_and_nothing_else():
    ids = torch.arange(100_000)
    names = row_names(ids, 12345)
    assert len(names.unique()) == len(ids)
    assert torch.equal(names, row_names(ids, 12345))
    assert not torch.isin(names, row_names(ids, 12346)).any()
    up = (names.diff() > 0).double().mean().item()
    assert abs(up - 0.5) < 0.01  # neighbours' names follow in no order
    for bit in range(64):
        share = ((names >> bit) & 1).double()
        assert abs(share.mean().item() - 0.5) < 0.02
        assert abs(torch.corrcoef(torch.stack([share, ids.double()]))[0, 1].item()) < 0.02


def test_one_known_row_of_each_class_or_none(rng):
    labels = torch.randint(4, (200,), generator=rng)
    drawn = [_one_of_each(labels, 4, rng) for _ in range(50)]
    assert all(labels[places].tolist() == [0, 1, 2, 3] for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 45
    assert _one_of_each(labels, 5, rng).tolist() == []


class Named(Attack):
    """Answers (n, K) scores that are right for the rows it was told about, and class 0 for the others."""

    knows = frozenset({Knowledge.GRADIENTS, Knowledge.HINTS})
    scores = Kind.GRADIENT
    max_classes = math.inf
    class_hints = True

    def infer(self, view):
        told = torch.zeros(len(view.ids), len(view.class_hints))
        told[:, 0] = 0.5
        told[view.class_hints, torch.arange(len(view.class_hints))] = 1.0
        return {"f2": told}


def test_rows_of_known_class_are_not_scored_and_features_are_no_message(data):
    _, leaks = audited(data, {"named": Named(), "no_message": NoMessage()})
    named, alone = leaks.leaks()
    assert named.classes["ami"].mean == pytest.approx(0.0, abs=1e-9)  # one answer for all that count
    assert named.raw.mean == 0.5
    assert (alone.message, alone.party, alone.layer, alone.visible) == ("none", "a", "features", True)
    assert alone.batches == 4
    _, leaks = audited(data, {"no_message": NoMessage(k=1000)})
    assert [(leak.layer, leak.batches, leak.left_out) for leak in leaks.leaks()] == [("features", 0, 4)]
