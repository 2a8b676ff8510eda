"""Attackers who try to fool the judge of rebuilt rows: none of them reads a message about a row."""

from dataclasses import replace

import pytest
import torch

from vflbench.attacks.base import RebuiltRows
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import BreastCancer, Synthetic
from vflbench.errors import UserError
from vflbench.messages.facts import PartyFeatures
from vflbench.metrics.inversion import Recogniser
from vflbench.metrics.reconstruction import CHANCE, ReconstructionTable
from vflbench.results.schema import GUESSES, OF_THE_TRUTH
from vflbench.run import grade_reconstruction
from vflbench.run.attackers import auxiliary_rows
from vflbench.run.grade_reconstruction import ReconstructionGrader as Grader

SIDE = 8


class Court:
    """Digits, 60 of whose training rows are asked about: from everywhere, as neighbours are of one writer and alike."""

    def __init__(self):
        data = Digits(test_fraction=0.3).load(torch.Generator().manual_seed(0))
        self.grader, self.rows = (
            Grader(data.train, data.test, 5),
            data.train.all().rows(torch.arange(5, 1205, 20)),
        )
        self.train, self.held_out = data.train.all(), data.test.all()
        self.known, self.classes = self.held_out.features["a"].numeric, self.held_out.labels

    def of_class(self, k):
        return self.known[self.classes == k]

    def judge(self, x):
        table = ReconstructionTable()
        answer = RebuiltRows(self.rows.ids, "f2", {"a": PartyFeatures(x, torch.empty(len(x), 0))})
        self.grader.grade("attack", answer, self.rows, 0, table)
        return {r.layer: r for r in table.entries()}

    def recognised_but_not_identified(self, x, least=0.9):
        found = self.judge(x)["f2"]
        assert found.figures["recognised"].mean >= least
        assert found.figures["identified"].low <= 1 / 20
        assert found.distinguished is False
        assert found.beats_every_guess is False
        return found


@pytest.fixture(scope="module")
def court():
    return Court()


@pytest.mark.slow
def test_the_truth_beats_every_guess_and_each_guess_has_each_figure(court):
    found = court.judge(court.rows.features["a"].numeric.clone())
    assert found["f2"].beats_every_guess is True
    assert found["f2"].figures["identified"].mean == 1
    guesses = ["mean", "class_mean", "random_row", "class_row", "best_draw", "nearest_row", "true"]
    assert list(found) == ["f2", *guesses, "chance"]
    assert list(found["f2"].beats_guesses) == guesses[:5]
    for guess in guesses:
        for name, figure in found[guess].figures.items():
            assert figure.low <= figure.mean <= figure.high, (guess, name)
        assert set(found[guess].figures) == set(found["f2"].figures)
    assert found["best_draw"].figures["recognised"].mean > 0.9
    assert found["chance"].figures["identified"].mean == pytest.approx(1 / 20)
    for guess in guesses[:5]:
        assert found[guess].figures["identified"].low <= 1 / 20, guess


@pytest.mark.slow
def test_the_mean_of_the_class_is_recognised_and_no_more(court):
    means = torch.stack([court.of_class(k).mean(dim=0) for k in range(10)])
    found = court.recognised_but_not_identified(means[court.rows.labels], least=0.95)
    assert not found.beats_guesses["class_mean"].beats


@pytest.mark.slow
def test_pictures_made_for_a_recogniser_of_the_attackers_own_are_recognised_and_no_more(court):
    """Ascent of the true class of a network that is trained as the judge's are, from the class mean."""
    own = Recogniser(court.known.view(-1, SIDE, SIDE), court.classes, 10, torch.Generator().manual_seed(9))
    x = torch.stack([court.of_class(k).mean(dim=0) for k in range(10)])[court.rows.labels].requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.03)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(own.network(x.view(-1, 1, SIDE, SIDE)), court.rows.labels).backward()
        optimizer.step()
        x.data.clamp_(0, 1)
    court.recognised_but_not_identified(x.detach(), least=0.95)


@pytest.mark.slow
def test_the_answer_for_another_row_of_the_class_is_no_answer(court):
    """The true rows, each given for the next row of its class: copies and permutations gain nothing."""
    swapped = court.rows.features["a"].numeric.clone()
    for k in range(10):
        places = (court.rows.labels == k).nonzero()[:, 0]
        swapped[places] = swapped[places.roll(1)]
    court.recognised_but_not_identified(swapped)


def ridge(known, columns, rows):
    """A message-free answer: ridge regression on the class and the label party's own columns."""
    x, y = (torch.cat([torch.eye(t.classes)[t.labels], t.features["label"].numeric], dim=1).double() for t in (known, rows))
    weights = torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1]), x.T @ columns.double())
    return (y @ weights).clamp(0, 1).float()


@pytest.mark.slow
def test_a_regression_on_own_columns_is_no_attack():
    """It has less error than a network on the same columns, and identifies rows: own columns tell much of this table."""
    names = BreastCancer().load(torch.Generator().manual_seed(0)).train.columns["a"].numeric
    dataset = BreastCancer(parties={"a": list(names[:10]), "label": list(names[10:])}, test_fraction=0.3)
    data = dataset.load(torch.Generator().manual_seed(0))
    rows, known, table = data.train.all().rows(torch.arange(3, 303, 5)), data.test.all(), ReconstructionTable()
    answer = PartyFeatures(ridge(known, known.features["a"].numeric, rows), torch.empty(60, 0))
    Grader(data.train, data.test, 5).grade("ridge", RebuiltRows(rows.ids, "f2", {"a": answer}), rows, 0, table)
    (found,) = (r for r in table.entries() if r.message != "none")
    assert found.distinguished is True
    assert found.beats_guesses["features_network"].beats
    assert not found.beats_guesses["features_linear"].beats
    assert found.beats_every_guess is False


def graded(dataset, change, parties=None):
    """Figures of answers that are what `change` makes of the truth, by (party, message, layer). parties: whose columns
    they are said to be, instead of those whose they are.
    """
    data = dataset.load(torch.Generator().manual_seed(0))
    rows = data.train.all().rows(torch.arange(5, 45))
    made = (change(PartyFeatures(f.numeric, f.categorical)) for f in rows.features.values())
    answer = RebuiltRows(rows.ids, "f2", dict(zip(parties or rows.features, made, strict=True)))
    table = ReconstructionTable()
    Grader(data.train, data.test, 5).grade("inversion", answer, rows, 0, table)
    found = {(r.party, r.message, r.layer): {n: v.mean for n, v in r.figures.items()} for r in table.entries()}
    return found, table.examples(), data


BAD = {
    "nan": (
        lambda own: replace(own, numeric=own.numeric * torch.nan),
        "a",
        "party a .*from nan to nan; numbers in",
    ),
    "too large": (
        lambda own: replace(own, numeric=own.numeric + 1),
        "a",
        r"party a .*to \d.*; numbers in \[0, 1\]",
    ),
    "too few rows": (lambda own: replace(own, numeric=own.numeric[1:]), "a", "party a .*it must be"),
    "no such id": (lambda own: replace(own, categorical=own.categorical + 1000), "a", "ids that"),
    "no such party": (lambda own: own, "z", "party z"),
}


@pytest.mark.parametrize(("change", "party", "problem"), BAD.values(), ids=BAD)
def test_what_no_row_can_hold_is_refused(change, party, problem):
    dataset = Synthetic(rows=300, numeric=1, categorical=1, vocabulary=5)
    with pytest.raises(UserError, match=f"^attack=inversion: .*{problem}"):
        graded(dataset, change, party)


@pytest.mark.slow
def test_whole_pictures_are_put_together_and_compared_with_guesses():
    found, examples, data = graded(Digits(parties=4), lambda own: own)
    assert found["all", "embedding", "f2"]["ssim"] == pytest.approx(1)
    assert set(found) == {
        *((party, "embedding", "f2") for party in (*"abcd", "all")),
        *(("all", "none", guess) for guess in (*GUESSES, CHANCE, *OF_THE_TRUTH) if not guess.startswith("features_")),
    }
    test = data.test.all()
    rows = data.train.all().rows(torch.arange(5, 45))
    errors = [(rows.features[p].numeric - test.features[p].numeric.mean(0)).square().mean() for p in "abcd"]
    assert found["all", "none", "mean"]["mse"] == pytest.approx(torch.stack(errors).mean().item(), rel=1e-5)
    assert found["all", "none", "class_mean"]["mse"] < found["all", "none", "mean"]["mse"]
    assert found["all", "none", "true"]["recognised"] > 0.9
    assert found["all", "none", "class_mean"]["recognised"] > 0.9  # without any message, as labels are known
    assert found["all", "none", "nearest_row"]["mse"] < found["all", "none", "random_row"]["mse"]
    assert found["all", "embedding", "f2"]["recognised"] == found["all", "none", "true"]["recognised"]
    assert found["all", "none", "mean"]["recognised"] < 0.3
    truth = examples["inversion/all/f2/truth"]
    assert truth.shape == (20, 8, 8)
    assert (truth == examples["inversion/all/f2/answer"]).all()


def test_columns_of_a_table_are_told_apart():
    def change(own):
        wrong = own.categorical.clone()
        wrong[:20, 0] = (wrong[:20, 0] + 1) % 2
        return PartyFeatures(1 - own.numeric, wrong)

    found, examples, _ = graded(Synthetic(rows=600, numeric=2, categorical=2, vocabulary=40), change)
    own = found["a", "embedding", "f2"]
    assert (own["id_accuracy:C1"], own["id_accuracy:C2"], own["id_accuracy"]) == (0.5, 1.0, 0.75)
    assert own["r2"] < 0
    assert abs(found["a", "none", "mean"]["r2"]) < 0.2
    assert found["a", "none", "true"]["id_accuracy"] == 1
    assert examples["inversion/a/f2/answer"].shape == (20, 4)
    assert "recognised" not in own


def test_auxiliary_rows_are_held_out_rows_in_no_order():
    data = Digits().load(torch.Generator().manual_seed(0))
    drawn = auxiliary_rows(data.test, 50, 3)
    known, held_out = drawn.columns["a"].numeric, data.test.all()
    assert known.shape == (50, 64)
    place = [(held_out.features["a"].numeric == row).all(1).nonzero()[0, 0] for row in known]
    assert held_out.labels[torch.stack(place)].tolist() == drawn.labels.tolist()
    assert not torch.equal(known, held_out.features["a"].numeric[:50])


@pytest.mark.slow
def test_no_row_is_recognised_by_a_network_that_was_trained_on_it(monkeypatch):
    """Every recogniser is asked about rows that are not among those it was trained on, and every row is asked about once."""
    asked, asked_features = [], []

    class Noted:
        def __init__(self, pictures, *_):
            self.seen = pictures

        def hits(self, pictures, labels):
            asked.append((self.seen, pictures))
            return torch.ones(len(pictures)).double()

        def features(self, pictures):
            asked_features.append((self.seen, pictures))
            return pictures.flatten(1)

    monkeypatch.setattr(grade_reconstruction, "Recogniser", Noted)
    data = Digits(rows=300).load(torch.Generator().manual_seed(0))
    rows = data.train.all()
    answers = {"a": PartyFeatures(rows.features["a"].numeric, rows.features["a"].categorical)}
    Grader(data.train, data.test, 5).grade("inversion", RebuiltRows(rows.ids, "f2", answers), rows, 0, ReconstructionTable())
    for seen, pictures in [*asked[:2], *asked_features]:
        assert not (pictures.flatten(1)[:, None] == seen.flatten(1)[None]).all(-1).any()
    assert sum(len(pictures) for _, pictures in asked[:2]) == len(rows)
