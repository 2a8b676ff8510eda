import math

import pytest
import torch
from support.audited import Audited, clicks, scripted

from vflbench import Labels, LocalModel, PartyFeatures, PeerModels, UserError
from vflbench.attacks.base import Attack, ClassCounts, RebuiltRows, Scores
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Embeddings, Gradients
from vflbench.messages.threat import Role, Threat, Unavailable, Undeclared
from vflbench.run.attackers import remembered, unmet_attacks
from vflbench.run.auditor import UNANSWERED


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
        assert [len(g) for g in view[Gradients].layers.values()] == [len(view.ids)] * 2
        for name in view.ids.tolist():
            self.met[name] = self.met.get(name, 0) + 1

    def epoch(self, view):
        self.groups.append(view.ids.tolist())
        return Scores(view.ids, {"f2": torch.tensor([float(self.met[name]) for name in view.ids.tolist()])})


@pytest.fixture(scope="module")
def data():
    return clicks()


@pytest.fixture(scope="module")
def labels(data):
    """(n,) names of rows -> their classes."""
    return Audited(data, {}, epochs=0).labels


def test_an_attack_can_observe_every_round_and_answers_about_audited_ones(data):
    seen = []

    def observe(view):
        assert len(view[Labels].classes) == len(view[Embeddings].received["a"]["f2"]) == len(view.ids)
        seen.append(view.step)

    def batch(view):
        assert seen[-1] == view.step
        return Scores(view.ids, {"f2": view[Labels].classes.float()})

    label_party = {"role": Role.LABEL}
    there = scripted(Embeddings, Labels, threat=label_party, every_round=True, observe=observe, batch=batch)
    audited = Audited(data, {"there": there, "norm": Norm()}, audited=2)
    assert seen == [0, 1, 2, 3]
    (leak,) = [leak for leak in audited.leaks if leak.attack == "there"]
    assert (leak.batches, leak.raw.mean) == (2, 1.0)
    alone = Audited(data, {"norm": Norm()}, audited=2).leaks
    assert [leak.raw for leak in alone] == [leak.raw for leak in audited.leaks if leak.attack == "norm"]


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
    there = int(data.train.all().labels[300:400].sum())
    reason = f"it needs 1000 known positives of each batch or group of rows, and the last one had {there}"
    assert audited.auditor.unscored(audited.findings[-1]) == {"echo": reason}
    resumed = Audited(data, {"echo": Echo(1000), "norm": Norm()}, epochs=0)
    resumed.auditor.restore(audited.auditor.state())
    assert resumed.auditor.unscored(audited.findings[-1]) == {"echo": reason}


def test_a_class_without_a_row_leaves_the_batch_out_with_a_reason(data):
    paired = scripted(Gradients, ClassHints, batch=lambda view: Scores(view.ids, view[Gradients].layers))
    audited, rows = Audited(data, {"paired": paired}, epochs=0), data.train.all()
    audited.batches = rows.ids[rows.labels == 0][:200].split(100)
    findings = audited.epoch(0)
    assert [(leak.batches, leak.left_out) for leak in findings.leaks] == [(0, 2), (0, 2)]
    reason = "it needs a known row of each class in each batch, and no batch had one"
    assert audited.auditor.unscored(findings) == {"paired": reason}


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
    assert audited.auditor.name_key > 2**32  # or who guesses it knows the ids
    assert set(audited.attack("few").met) <= set(names.tolist())
    assert len(audited.attack("few").met) > 20
    assert audited.auditor.wants(1) == {Gradients}  # a round that is not audited: for the follower alone
    assert audited.auditor.wants(0) == {Gradients, BatchHints}
    alone = Audited(data, {"echo": Echo(1)}, audited=2)
    assert [bool(alone.auditor.wants(step)) for step in range(4)] == [True, False, False, True]
    assert len(alone.attack("echo").asked) == 2


def test_rows_of_known_class_are_not_scored_and_features_are_no_message(data):
    def batch(view):
        """(n, K) scores that are right for the rows that it knows, and class 0 for the others."""
        places = view[ClassHints].places
        scores = torch.zeros(len(view.ids), len(places))
        scores[:, 0] = 0.5
        scores[places, torch.arange(len(places))] = 1.0
        return Scores(view.ids, {"f2": scores})

    named = scripted(Gradients, ClassHints, max_classes=math.inf, batch=batch)
    named, alone = Audited(data, {"named": named, "no_message": NoMessage()}).leaks
    assert named.classes["ami"].mean == pytest.approx(0.0, abs=1e-9)  # one answer for all that count
    assert named.raw.mean == 0.5
    assert (alone.message, alone.party, alone.layer, alone.visible) == ("none", "a", "features", True)
    assert alone.batches == 4
    leaks = Audited(data, {"no_message": NoMessage(k=1000)}).leaks
    assert [(leak.layer, leak.batches, leak.left_out) for leak in leaks] == [("features", 0, 4)]


def test_the_rows_of_the_end_of_an_epoch_are_training_rows_in_no_order(data):
    seen = []
    audited = Audited(data, {"clerk": scripted(LocalModel, epoch=lambda view: seen.append(view.ids))}, epochs=2)
    first, second = seen
    assert torch.equal(first, second)
    ids = audited.ids(first)
    assert torch.equal(ids.sort().values, audited.train.ids)  # fewer than 4096: all of them
    assert not torch.equal(ids, audited.train.ids)


def test_a_view_at_the_end_of_an_epoch_has_no_values_of_a_round_and_a_reader_of_them_is_named(data):
    def epoch(view):
        assert view.step is None
        return Scores(view.ids, view[Gradients].layers)

    with pytest.raises(Unavailable, match="^attack=late: the attack reads Gradients, which party a does not have here"):
        Audited(data, {"norm": Norm(), "late": scripted(Gradients, LocalModel, epoch=epoch)})
    with pytest.raises(Undeclared, match="^attack=sly: the attack reads Gradients, "):
        Audited(data, {"norm": Norm(), "sly": scripted(LocalModel, epoch=epoch)})


def test_an_attacker_at_the_label_party_alone_sees_what_other_parties_sent_by_sender():
    seen = set()

    def look(view):
        embeddings, peers = view[Embeddings], view[PeerModels].models if PeerModels in view else ()
        seen.add((view.party, view.visible, *embeddings.layers, *embeddings.received, *peers))
        assert BatchHints not in view

    voyeur = scripted(Embeddings, follows=100, observe=look, epoch=lambda _: None)
    receiver = scripted(Embeddings, PeerModels, threat={"role": Role.LABEL}, batch=look)
    Audited(clicks(parties=2), {"voyeur": voyeur, "receiver": receiver})
    hidden = ("label", False, "h1")
    assert seen == {("a", True, "f1", "f2"), ("b", True, "f1", "f2"), hidden, ("label", True, "h1", *"ab", *"ab")}


def test_attacks_that_can_not_run_here_say_why():
    def offers(role):
        return frozenset({Gradients}) if role is Role.NON_LABEL else frozenset()

    attacks = {"wise": scripted(PeerModels, Embeddings), "active": scripted(Gradients, threat={"active": True})}
    attacks |= {"norm": Norm(), "no_message": NoMessage()}
    assert unmet_attacks(attacks, offers, 2) == {
        "wise": "embeddings and peer models are not in this protocol for the non-label party",
        "active": "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)",
        "no_message": "own columns are not in this protocol for the non-label party",
    }
    assert set(unmet_attacks(attacks, offers, 2, cheating=["a"])) == {"wise", "no_message"}
    ten = unmet_attacks({"norm": Norm()}, offers, 10, where="this recording")
    assert ten == {"norm": "it tells 2 classes apart, and the labels have 10"}


def test_attacks_may_change_what_their_network_remembers_of_the_rows_of_the_end():
    rows = torch.arange(5)
    network = LocalModel(lambda ids: {"f1": ids[:, None].double()})
    model = remembered({"a": {LocalModel: network}}, [rows, torch.arange(3, 9)])["a"][LocalModel]
    model.embed(rows)["f1"].zero_()
    for asked in (rows, rows[:2], torch.tensor([8, 1, 4, 20, 3])):  # of one part, of both, and of none
        assert model.embed(asked.clone())["f1"][:, 0].tolist() == asked.tolist()


def partial(labels, change=lambda ids, scores: (ids, scores), *, hints=0):
    """An attack that answers the truth about half of the rows, in another order, and nothing about the others."""

    def answer(view):
        chosen = torch.randperm(len(view.ids), generator=view.rng)[: len(view.ids) // 2]
        ids = view.ids[chosen]
        return Scores(*change(ids, labels(ids).double()))

    return scripted(Gradients, LocalModel, threat={"hints": hints}, batch=answer, epoch=answer)


def test_scores_about_some_rows_in_another_order_are_graded_against_these_rows(data, labels):
    for hints in (0, 1):  # asked once about all rows, or about one group after the other
        batches, end = Audited(data, {"partial": partial(labels, hints=hints)}).leaks
        for leak in (batches, end):
            assert (leak.layer, leak.raw.mean, leak.estimates["auc"][0].error) == ("f2", 1.0, 0.0), hints
        assert (batches.attack, batches.batches, end.attack, end.batches) == ("partial", 4, "partial (epoch)", 6)


def test_names_that_were_not_asked_about_are_refused(data, labels):
    for change in (
        lambda ids, scores: (torch.cat([ids[:-1], ids[-1:] + 1]), scores),
        lambda ids, scores: (ids.repeat(2), scores.repeat(2)),
        lambda ids, scores: (ids.double(), scores),
    ):
        with pytest.raises(UserError, match="^attack=it: an answer must be about rows of the view: ids from view.ids"):
            Audited(data, {"it": partial(labels, change)})


def test_one_column_is_one_score_a_row_and_other_shapes_are_refused(data, labels):
    def leaks(change):
        return Audited(data, {"it": partial(labels, lambda ids, scores: (ids, change(scores)))}).leaks

    assert [(leak.raw.mean, dict(leak.classes)) for leak in leaks(lambda s: s[:, None])] == [(1.0, {})] * 2
    pair, _ = leaks(lambda s: torch.stack([1 - s, s], 1))
    assert (pair.raw.mean, pair.classes["accuracy"].mean) == (1.0, 1.0)
    for problem, change in (
        (r"\(50, 2\) with a column for each class, got \(50, 3\)", lambda s: s.expand(3, -1).T),
        (r"got \(49,\)", lambda s: s[1:]),
        ("must be finite numbers, and 1 of 50 are not", lambda s: s + torch.tensor([0.0] * 49 + [math.inf])),
    ):
        with pytest.raises(UserError, match=f"^attack=it: its scores on f2 .*{problem}"):
            leaks(change)


def test_class_counts_are_graded_beside_a_guess_from_the_class_shares(data, labels):
    def batch(view):
        """Counts that are right in `exact`, one row off in `near`, and all rows of one class in `blind`."""
        true, n = torch.bincount(labels(view.ids), minlength=2), len(view.ids)
        return ClassCounts({"exact": true, "near": true + torch.tensor([1.2, -1.2]), "blind": torch.tensor([n, 0])})

    audited = Audited(data, {"counter": scripted(Gradients, batch=batch)})
    assert audited.leaks == []
    figures = {one.layer: {name: v.mean for name, v in one.figures.items()} for one in audited.findings[-1].reconstructions}
    shares = torch.tensor([float(audited.rows.labels(ids).double().mean()) for ids in audited.batches])
    guess = (shares - data.train.class_ratios[1]).abs().mean().item()
    expected = {"exact": (0.0, 1.0), "near": (0.012, 0.0), "blind": (shares.mean().item(), 0.0)}
    for layer, (error, right) in expected.items():
        wanted = {"count_error": error, "counts_right": right, "guess_count_error": guess}
        assert figures[layer] == pytest.approx(wanted, abs=1e-6), layer


def test_an_attack_may_answer_nothing_or_several_things(data):
    def talk(view):
        scores = [Scores(view.ids, {layer: g.norm(dim=1)}) for layer, g in view[Gradients].layers.items()]
        return [*scores, None, ClassCounts({"f2": torch.tensor([70.0, 30.0])})]

    silent = scripted(Gradients, LocalModel, batch=lambda _: None, epoch=lambda view: [None, Scores(view.ids[:0], {})])
    audited = Audited(data, {"silent": silent, "talker": scripted(Gradients, batch=talk), "norm": Norm()})
    expected = [(attack, layer) for attack in ("talker", "norm") for layer in ("f1", "f2")]
    assert [(leak.attack, leak.layer) for leak in audited.leaks] == expected
    assert audited.leaks[0].raw == audited.leaks[2].raw
    assert [one.attack for one in audited.findings[0].reconstructions] == ["talker"]
    assert audited.auditor.unscored(audited.findings[-1]) == {"silent": UNANSWERED}
    odd = scripted(Gradients, batch=lambda view: {"f2": torch.zeros(len(view.ids))})
    with pytest.raises(UserError, match="attack=odd: it answered with dict; allowed are Scores, RebuiltRows"):
        Audited(data, {"odd": odd})


def test_rebuilt_rows_are_graded_against_the_rows_that_they_name(data):
    def batch(view):
        """Its own columns, which it knows, in another order."""
        places = torch.randperm(len(view.ids), generator=view.rng)[:30]
        return RebuiltRows(view.ids[places], "f2", {view.party: view[PartyFeatures].rows(places)})

    rebuilt = Audited(data, {"owner": scripted(PartyFeatures, batch=batch)}).findings[0].reconstructions
    (answer,) = [r for r in rebuilt if r.layer == "f2"]
    assert (answer.figures["mse"].mean, answer.figures["id_accuracy"].mean) == (0, 1)


def test_a_single_tensor_counts_for_the_cut_layer_or_for_features(data):
    def batch(view):
        return Scores(view.ids, torch.arange(float(len(view.ids))))

    known = {"of gradients": [Gradients], "of embeddings": [Embeddings, ClassShares], "of columns": [PartyFeatures]}
    leaks = Audited(data, {name: scripted(*facts, batch=batch) for name, facts in known.items()}).leaks
    assert [(leak.attack, leak.message, leak.party, leak.layer) for leak in leaks] == [
        ("of gradients", "gradient", "a", "f2"),
        ("of embeddings", "embedding", "a", "f2"),
        ("of embeddings", "embedding", "label", "cut"),
        ("of columns", "none", "a", "features"),
    ]
