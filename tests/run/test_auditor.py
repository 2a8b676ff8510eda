import math

import pytest
import torch
from audited import Audited, clicks

from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Embeddings, Gradients, Labels, OwnModel
from vflbench.messages.threat import Seat, Threat, Unavailable, Undeclared


class Echo(Attack):
    """Answers 1 for hints and 0 for others. Keeps the hints of each batch."""

    threat = Threat()

    def __init__(self, hints):
        self.threat, self.asked = Threat(knows={Gradients}, hints=hints), []

    def batch(self, view):
        places = view[BatchHints].places
        self.asked.append((view.ids, places))
        layers = view[Gradients].layers
        return Scores(view.ids, {layer: torch.zeros(len(g)).index_fill_(0, places, 1.0) for layer, g in layers.items()})


class Follower(Attack):
    """Counts how often it met each row, and answers with that."""

    threat = Threat(knows={Gradients})

    def __init__(self, rows):
        self.follows, self.met, self.groups = rows, {}, []

    def observe(self, view):
        assert list(view[Gradients].layers) == ["f1", "f2"]
        assert all(len(g) == len(view.ids) for g in view[Gradients].layers.values())
        for name in view.ids.tolist():
            self.met[name] = self.met.get(name, 0) + 1

    def epoch(self, view):
        self.groups.append(view.ids.tolist())
        return Scores(view.ids, {"f2": torch.tensor([float(self.met[name]) for name in view.ids.tolist()])})


class Attending(Attack):
    """Is there in every round. Its answer is 1 for the rows of the round that it saw last."""

    every_round = True
    threat = Threat(Seat.LABEL, {Embeddings, Labels})

    def __init__(self):
        self.seen = []

    def observe(self, view):
        assert len(view[Labels].classes) == len(view[Embeddings].received["a"]["f2"]) == len(view.ids)
        self.seen.append(view.step)

    def batch(self, view):
        assert self.seen[-1] == view.step
        return Scores(view.ids, {"f2": view[Labels].classes.float()})


@pytest.fixture(scope="module")
def data():
    return clicks()


def test_an_attack_can_observe_every_round_and_answers_about_audited_ones(data):
    audited = Audited(data, {"there": Attending(), "norm": Norm()}, audited=2)
    assert audited.attack("there").seen == [0, 1, 2, 3]
    (leak,) = [leak for leak in audited.leaks if leak.attack == "there"]
    assert (leak.batches, leak.raw.mean) == (2, 1.0)
    alone = Audited(data, {"norm": Norm()}, audited=2)
    assert [leak.raw for leak in alone.leaks] == [leak.raw for leak in audited.leaks if leak.attack == "norm"]


def test_hints_are_positives_of_the_batch_and_are_not_scored(data):
    audited = Audited(data, {"echo": Echo(3)})
    asked = audited.attack("echo").asked
    assert len(asked) == 4
    for ids, hints in asked:
        assert len(hints.unique()) == 3
        assert (audited.labels(ids)[hints] == 1).all()
    assert len({tuple(hints.tolist()) for _, hints in asked}) == 4  # drawn afresh
    assert all(leak.raw.mean == 0.5 for leak in audited.leaks)  # who repeats the hints has learned nothing


def test_too_few_positives_leave_the_batch_out_with_a_reason(data):
    audited = Audited(data, {"echo": Echo(1000), "norm": Norm()})
    missed = [(leak.layer, leak.batches, leak.left_out) for leak in audited.leaks if leak.attack == "echo"]
    assert missed == [("f1", 0, 4), ("f2", 0, 4)]
    assert all(math.isnan(leak.raw.mean) for leak in audited.leaks if leak.attack == "echo")
    ((name, reason),) = audited.auditor.unscored(audited.findings[-1]).items()
    assert name == "echo"
    assert reason.startswith("it needs 1000 known positives of each batch or group of rows, and the last one had ")
    assert reason.endswith(f" {int(data.train.all().labels[300:400].sum())}")


def test_an_attack_that_knows_too_few_rows_at_the_end_of_an_epoch_has_a_reason(data):
    class Late(Attack):
        threat = Threat(knows={OwnModel}, hints=1000)

        def epoch(self, view):
            raise AssertionError("it is never asked")

    class Followed(Follower):
        threat = Threat(knows={Gradients}, hints=1000)

    audited = Audited(data, {"late": Late(), "followed": Followed(200)})
    assert [(leak.attack, leak.layer, leak.batches, leak.left_out) for leak in audited.leaks] == [
        ("followed", "f1", 0, 5),
        ("followed", "f2", 0, 5),
    ]
    assert set(audited.auditor.unscored(audited.findings[-1])) == {"late", "followed"}


def test_a_class_without_a_row_leaves_the_batch_out_with_a_reason(data):
    class Paired(Attack):
        threat = Threat(knows={Gradients, ClassHints})

        def batch(self, view):
            raise AssertionError("no batch has a row of class 1")

    negatives = data.train.all().ids[data.train.all().labels == 0]
    audited = Audited(data, {"paired": Paired()}, epochs=0)
    audited.batches = negatives[:200].split(100)
    found = audited.epoch(0)
    assert [(leak.batches, leak.left_out) for leak in found.leaks] == [(0, 2), (0, 2)]
    reason = "it needs a known row of each class in each batch, and no batch had one"
    assert audited.auditor.unscored(found) == {"paired": reason}


def test_followed_rows_are_the_same_all_along_and_asked_about_once_met(data):
    audited = Audited(data, {"few": Follower(60), "many": Follower(200)}, epochs=2)
    few, many = audited.attack("few"), audited.attack("many")
    assert set(few.met) < set(many.met)
    assert 20 < len(few.met) <= 60
    assert set(few.met.values()) == {2}  # once an epoch
    for follower in (few, many):
        assert [sorted(ids) for ids in follower.groups] == [sorted(follower.met)] * 2  # once an epoch, about all
    lines = [(leak.attack, leak.layer, leak.batches + leak.left_out) for leak in audited.leaks]
    assert lines == [("few", "f2", 5), ("many", "f2", 5)]  # scored in five groups


def test_an_attack_that_follows_rows_sees_every_round_and_others_see_the_audited_ones(data):
    audited = Audited(data, {"echo": Echo(1), "few": Follower(60)}, audited=2)
    assert len(audited.attack("echo").asked) == 2
    names = audited.names(torch.cat([*audited.batches]))
    assert set(audited.attack("few").met) <= set(names.tolist())
    assert len(audited.attack("few").met) > 20
    assert audited.auditor.wants(1) == {Gradients}  # a round that is not audited: for the follower alone
    assert audited.auditor.wants(0) == {Gradients, BatchHints}
    alone = Audited(data, {"echo": Echo(1)}, audited=2)
    assert [bool(alone.auditor.wants(step)) for step in range(4)] == [True, False, False, True]
    assert len(alone.attack("echo").asked) == 2


def test_the_state_holds_which_rows_were_met_and_what_attacks_keep(data):
    attacks = {"few": Follower(60), "echo": Echo(1000)}
    audited, other = Audited(data, attacks), Audited(data, attacks, epochs=0)
    audited.auditor.begin_epoch(1, 4)
    for step, ids in enumerate(audited.batches[:2]):
        audited.auditor.see(audited.session.round(ids, epoch=1, step=step, watch=audited.auditor.wants(step)))
    other.auditor.restore(audited.auditor.state())
    other.auditor.begin_epoch(1, 4)
    ends = [
        one.auditor.end_epoch(one.session.facts(torch.cat(one.auditor.parts_at_the_end[:2]), frozenset()))
        for one in (audited, other)
    ]
    assert str(ends[0]) == str(ends[1])
    assert other.attack("few").met == audited.attack("few").met
    assert other.attack("few").groups == audited.attack("few").groups
    assert other.auditor.unscored(ends[1]) == audited.auditor.unscored(ends[0]) != {}


class Named(Attack):
    """Answers (n, K) scores that are right for the rows that it knows, and class 0 for the others."""

    threat = Threat(knows={Gradients, ClassHints})
    max_classes = math.inf

    def batch(self, view):
        places = view[ClassHints].places
        scores = torch.zeros(len(view.ids), len(places))
        scores[:, 0] = 0.5
        scores[places, torch.arange(len(places))] = 1.0
        return Scores(view.ids, {"f2": scores})


def test_rows_of_known_class_are_not_scored_and_features_are_no_message(data):
    named, alone = Audited(data, {"named": Named(), "no_message": NoMessage()}).leaks
    assert named.classes["ami"].mean == pytest.approx(0.0, abs=1e-9)  # one answer for all that count
    assert named.raw.mean == 0.5
    assert (alone.message, alone.party, alone.layer, alone.visible) == ("none", "a", "features", True)
    assert alone.batches == 4
    leaks = Audited(data, {"no_message": NoMessage(k=1000)}).leaks
    assert [(leak.layer, leak.batches, leak.left_out) for leak in leaks] == [("features", 0, 4)]


def test_the_rows_of_the_end_of_an_epoch_are_training_rows_in_no_order(data):
    class Clerk(Attack):
        threat = Threat(knows={OwnModel})
        seen = []

        def epoch(self, view):
            self.seen.append(view.ids)

    audited = Audited(data, {"clerk": Clerk()}, epochs=2)
    first, second = Clerk.seen
    assert torch.equal(first, second)
    ids = audited.ids(first)
    assert torch.equal(ids.sort().values, audited.train.ids)  # fewer than 4096: all of them
    assert not torch.equal(ids, audited.train.ids)


def test_a_view_at_the_end_of_an_epoch_has_no_values_of_a_round(data):
    class Reader(Attack):
        threat = Threat()

        def __init__(self, reads, *declares):
            self.reads, self.threat = reads, Threat(knows={reads, *declares})

        def epoch(self, view):
            assert view.step is None
            return Scores(view.ids, view[self.reads].layers)

    with pytest.raises(Unavailable, match="reads Gradients, which party a does not have here"):
        Audited(data, {"reader": Reader(Gradients, OwnModel)})

    class Thief(Reader):
        def __init__(self):
            super().__init__(OwnModel)
            self.threat = Threat(knows={ClassShares})

    with pytest.raises(Undeclared, match="reads OwnModel, but declares this threat"):
        Audited(data, {"thief": Thief()})
