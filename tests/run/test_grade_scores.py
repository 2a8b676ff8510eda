import pytest
import torch
from audited import Audited, clicks

from vflbench.attacks.base import Attack, ClassCounts, RebuiltRows, Scores
from vflbench.attacks.norm import Norm
from vflbench.errors import UserError
from vflbench.messages.facts import ClassShares, Embeddings, Gradients, OwnColumns, OwnModel
from vflbench.messages.threat import Threat


class Partial(Attack):
    """Answers the truth about half of the rows, in another order, and nothing about the others."""

    threat = Threat()

    def __init__(self, labels, *, change=lambda ids, scores: (ids, scores), hints=0):
        self.threat, self.labels, self.change = Threat(knows={Gradients, OwnModel}, hints=hints), labels, change

    def _answer(self, view):
        chosen = torch.randperm(len(view.ids), generator=view.rng)[: len(view.ids) // 2]
        ids = view.ids[chosen]
        return Scores(*self.change(ids, self.labels(ids).double()))

    def batch(self, view):
        return self._answer(view)

    def epoch(self, view):
        return self._answer(view)


@pytest.fixture(scope="module")
def data():
    return clicks()


def test_scores_about_some_rows_in_another_order_are_graded_against_these_rows(data):
    names = Audited(data, {}, epochs=0)
    for hints in (0, 1):  # asked once about all rows, or about one group after the other
        batches, end = Audited(data, {"partial": Partial(names.labels, hints=hints)}).leaks
        for leak in (batches, end):
            assert (leak.layer, leak.raw.mean, leak.estimates["auc"][0].error) == ("f2", 1.0, 0.0), hints
        assert (batches.attack, batches.batches, end.attack, end.batches) == ("partial", 4, "partial (epoch)", 6)


def test_names_that_were_not_asked_about_are_refused(data):
    names = Audited(data, {}, epochs=0)
    wrong = {
        "another row": lambda ids, scores: (torch.cat([ids[:-1], ids[-1:] + 1]), scores),
        "twice": lambda ids, scores: (ids.repeat(2), scores.repeat(2)),
        "ids of rows": lambda ids, scores: (names.ids(ids), scores),
        "numbers": lambda ids, scores: (ids.double(), scores),
        "no list": lambda ids, scores: (ids[:, None], scores),
    }
    for case, change in wrong.items():
        for hints in (0, 1):
            attack = {case: Partial(names.labels, change=change, hints=hints)}
            with pytest.raises(
                UserError, match=f"^attack={case}: an answer must be about rows of the view: ids from view.ids"
            ):
                Audited(data, attack)


def test_one_column_is_one_score_a_row_and_other_shapes_are_refused(data):
    names = Audited(data, {}, epochs=0)
    column = Partial(names.labels, change=lambda ids, scores: (ids, scores[:, None]))
    leak, _ = Audited(data, {"column": column}).leaks
    assert (leak.raw.mean, dict(leak.classes)) == (1.0, {})
    pair = Partial(names.labels, change=lambda ids, scores: (ids, torch.stack([1 - scores, scores], 1)))
    leak, _ = Audited(data, {"pair": pair}).leaks
    assert (leak.raw.mean, leak.classes["accuracy"].mean) == (1.0, 1.0)
    wrong = {
        r"must have the shape \(50,\), or \(50, 2\) with a column for each class, got \(50, 3\)": lambda s: (
            s.expand(3, -1).T
        ),
        r"got \(49,\)": lambda s: s[1:],
        r"got \(51,\)": lambda s: torch.cat([s, s[:1]]),
        r"must be finite numbers, and 1 of 50 are not": lambda s: torch.cat([s[:-1], s[-1:] / 0]),
    }
    for problem, change in wrong.items():
        attack = Partial(names.labels, change=lambda ids, scores, change=change: (ids, change(scores + 1)))
        with pytest.raises(UserError, match=f"^attack=wrong: its scores on f2 .*{problem}"):
            Audited(data, {"wrong": attack})

    class Late(Partial):
        def batch(self, view):
            return None

    late = Late(names.labels, change=lambda ids, scores: (ids, torch.cat([scores, scores])))
    with pytest.raises(UserError, match=r"^attack=late: its scores on f2 .* got \(630,\)"):
        Audited(data, {"late": late})


def test_class_counts_are_graded_beside_a_guess_from_the_class_shares(data):
    class Counter(Attack):
        """Counts that are right in `exact`, one row off in `near`, and all rows of one class in `blind`."""

        threat = Threat(knows={Gradients})

        def __init__(self, labels):
            self.labels = labels

        def batch(self, view):
            true = torch.bincount(self.labels(view.ids), minlength=2)
            n = len(view.ids)
            return ClassCounts({"exact": true, "near": true + torch.tensor([1.2, -1.2]), "blind": torch.tensor([n, 0])})

    names = Audited(data, {}, epochs=0)
    audited = Audited(data, {"counter": Counter(names.labels)})
    assert audited.leaks == []
    figures = {one.layer: {name: v.mean for name, v in one.figures.items()} for one in audited.findings[-1].reconstructions}
    shares = torch.tensor([float(audited.rows.labels(ids).double().mean()) for ids in audited.batches])
    guess = (shares - data.train.class_ratios[1]).abs().mean().item()
    expected = {"exact": (0.0, 1.0), "near": (0.012, 0.0), "blind": (shares.mean().item(), 0.0)}
    for layer, (error, right) in expected.items():
        wanted = {"count_error": error, "counts_right": right, "guess_count_error": guess}
        assert figures[layer] == pytest.approx(wanted, abs=1e-6), layer

    class Miscounter(Counter):
        def batch(self, view):
            return ClassCounts({"f2": torch.ones(3)})

    with pytest.raises(UserError, match=r"attack=bad: class counts must be 2 finite numbers, got shape \(3,\)"):
        Audited(data, {"bad": Miscounter(names.labels)})

    class Late(Counter):
        def batch(self, view):
            return None

        def epoch(self, view):
            return ClassCounts({"f2": torch.ones(2)})

    with pytest.raises(UserError, match="attack=late: class counts are an answer about a batch, by Attack.batch"):
        Audited(data, {"late": Late(names.labels)})


def test_an_attack_may_answer_nothing_or_several_things(data):
    class Silent(Attack):
        threat = Threat(knows={Gradients, OwnModel})

        def batch(self, view):
            return None

        def epoch(self, view):
            return [None, Scores(view.ids[:0], {})]

    class Talker(Attack):
        threat = Threat(knows={Gradients})

        def batch(self, view):
            scores = [Scores(view.ids, {layer: g.norm(dim=1)}) for layer, g in view[Gradients].layers.items()]
            return [*scores, None, ClassCounts({"f2": torch.tensor([70.0, 30.0])})]

    audited = Audited(data, {"silent": Silent(), "talker": Talker(), "norm": Norm()})
    assert [(leak.attack, leak.layer) for leak in audited.leaks] == [
        *[("talker", "f1"), ("talker", "f2")],
        *[("norm", "f1"), ("norm", "f2")],
    ]
    assert audited.leaks[0].raw == audited.leaks[2].raw
    assert [one.attack for one in audited.findings[0].reconstructions] == ["talker"]
    unscored = audited.auditor.unscored(audited.findings[-1])
    assert list(unscored) == ["silent"]
    assert unscored["silent"].startswith("it gave no answer that counts: none at all")

    class Odd(Attack):
        threat = Threat(knows={Gradients})

        def batch(self, view):
            return {"f2": torch.zeros(len(view.ids))}

    with pytest.raises(UserError, match="attack=odd: it answered with dict; allowed are Scores, RebuiltRows"):
        Audited(data, {"odd": Odd()})


def test_rebuilt_rows_are_graded_against_the_rows_that_they_name(data):
    class Owner(Attack):
        """Rebuilds its own columns, which it knows, in another order."""

        threat = Threat(knows={OwnColumns})

        def batch(self, view):
            places = torch.randperm(len(view.ids), generator=view.rng)[:30]
            return RebuiltRows(view.ids[places], "f2", {view.party: view[OwnColumns].rows(places)})

    (found,) = [
        r for r in Audited(data, {"owner": Owner()}).findings[0].reconstructions if r.attack == "owner" and r.layer == "f2"
    ]
    assert found.figures["mse"].mean == 0
    assert found.figures["id_accuracy"].mean == 1


def test_a_single_tensor_counts_for_the_cut_layer_or_for_features(data):
    class Plain(Attack):
        threat = Threat()

        def __init__(self, *facts):
            self.threat = Threat(knows=facts)

        def batch(self, view):
            return Scores(view.ids, torch.arange(float(len(view.ids))))

    attacks = {
        "of gradients": Plain(Gradients),
        "of embeddings": Plain(Embeddings, ClassShares),
        "of columns": Plain(OwnColumns),
    }
    leaks = Audited(data, attacks).leaks
    assert [(leak.attack, leak.message, leak.party, leak.layer) for leak in leaks] == [
        ("of gradients", "gradient", "a", "f2"),
        ("of embeddings", "embedding", "a", "f2"),
        ("of embeddings", "embedding", "label", "cut"),
        ("of columns", "none", "a", "features"),
    ]
