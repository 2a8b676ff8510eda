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
from vflbench.run.grade_reconstruction import ReconstructionGrader as Grader

SIDE = 8


class Court:
    """Digits, 60 of whose training rows are asked about: from everywhere, as neighbours are of one writer and alike."""

    def __init__(self):
        data = Digits(test_fraction=0.3).load(torch.Generator().manual_seed(0))
        self.grader, self.rows = Grader(data.train, data.test, 5), data.train.all().rows(torch.arange(5, 1205, 20))
        self.known, self.classes = data.test.all().features["a"].numeric, data.test.all().labels

    def class_means(self):
        return torch.stack([self.known[self.classes == k].mean(dim=0) for k in range(10)])[self.rows.labels]

    def judge(self, x):
        table = ReconstructionTable()
        answer = RebuiltRows(self.rows.ids, "f2", {"a": PartyFeatures(x, torch.empty(len(x), 0))})
        self.grader.grade("attack", answer, self.rows, 0, table)
        return {r.layer: r for r in table.entries()}


@pytest.fixture(scope="module")
def court():
    return Court()


@pytest.mark.slow
def test_the_truth_beats_every_guess_and_each_guess_has_each_figure(court):
    judged = court.judge(court.rows.features["a"].numeric.clone())
    assert judged["f2"].beats_every_guess is True
    assert judged["f2"].figures["identified"].mean == 1
    guesses = ["mean", "class_mean", "random_row", "class_row", "best_draw", "nearest_row", "true"]
    assert list(judged) == ["f2", *guesses, "chance"]
    assert list(judged["f2"].beats_guesses) == guesses[:5]
    for guess in guesses:
        for name, figure in judged[guess].figures.items():
            assert figure.low <= figure.mean <= figure.high, (guess, name)
        assert set(judged[guess].figures) == set(judged["f2"].figures)
    assert judged["best_draw"].figures["recognised"].mean > 0.9
    assert judged["chance"].figures["identified"].mean == pytest.approx(1 / 20)
    assert max(judged[guess].figures["identified"].low for guess in guesses[:5]) <= 1 / 20


def made_for_a_recogniser(court):
    """Ascent of the true class of a network that is trained as the judge's are, from the class mean."""
    recogniser = Recogniser(court.known.view(-1, SIDE, SIDE), court.classes, 10, torch.Generator().manual_seed(9))
    x = court.class_means().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.03)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(recogniser.network(x.view(-1, 1, SIDE, SIDE)), court.rows.labels).backward()
        optimizer.step()
        x.data.clamp_(0, 1)
    return x.detach()


def of_the_next_row(court):
    """The true rows, each given for the next row of its class: copies and permutations gain nothing."""
    swapped = court.rows.features["a"].numeric.clone()
    for k in range(10):
        places = (court.rows.labels == k).nonzero()[:, 0]
        swapped[places] = swapped[places.roll(1)]
    return swapped


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "least"), [(Court.class_means, 0.95), (made_for_a_recogniser, 0.95), (of_the_next_row, 0.9)]
)
def test_an_answer_that_knows_the_class_alone_is_recognised_and_no_more(court, answer, least):
    judged = court.judge(answer(court))["f2"]
    assert judged.figures["recognised"].mean >= least
    assert judged.figures["identified"].low <= 1 / 20
    assert judged.distinguished is False
    assert judged.beats_every_guess is False


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
    (judged,) = (r for r in table.entries() if r.message != "none")
    assert judged.distinguished is True
    assert judged.beats_guesses["features_network"].beats
    assert not judged.beats_guesses["features_linear"].beats
    assert judged.beats_every_guess is False


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
    figures = {(r.party, r.message, r.layer): {n: v.mean for n, v in r.figures.items()} for r in table.entries()}
    return figures, table.examples(), data


BAD = {
    "nan": (lambda x: replace(x, numeric=x.numeric * torch.nan), "a", "party a .*from nan to nan; numbers in"),
    "too large": (lambda x: replace(x, numeric=x.numeric + 1), "a", r"party a .*to \d.*; numbers in \[0, 1\]"),
    "too few rows": (lambda x: replace(x, numeric=x.numeric[1:]), "a", "party a .*it must be"),
    "no such id": (lambda x: replace(x, categorical=x.categorical + 1000), "a", "ids that"),
    "no such party": (lambda x: x, "z", "party z"),
}


@pytest.mark.parametrize(("change", "party", "problem"), BAD.values(), ids=BAD)
def test_what_no_row_can_hold_is_refused(change, party, problem):
    dataset = Synthetic(rows=300, numeric=1, categorical=1, vocabulary=5)
    with pytest.raises(UserError, match=f"^attack=inversion: .*{problem}"):
        graded(dataset, change, party)


@pytest.mark.slow
def test_whole_pictures_are_put_together_and_compared_with_guesses():
    figures, examples, data = graded(Digits(parties=4), lambda x: x)
    assert figures["all", "embedding", "f2"]["ssim"] == pytest.approx(1)
    assert set(figures) == {
        *((party, "embedding", "f2") for party in (*"abcd", "all")),
        *(("all", "none", guess) for guess in (*GUESSES, CHANCE, *OF_THE_TRUTH) if not guess.startswith("features_")),
    }
    test, rows = data.test.all(), data.train.all().rows(torch.arange(5, 45))
    errors = [(rows.features[p].numeric - test.features[p].numeric.mean(0)).square().mean() for p in "abcd"]
    guesses = {guess: of for (_, message, guess), of in figures.items() if message == "none"}
    assert guesses["mean"]["mse"] == pytest.approx(torch.stack(errors).mean().item(), rel=1e-5)
    assert guesses["class_mean"]["mse"] < guesses["mean"]["mse"]
    assert guesses["nearest_row"]["mse"] < guesses["random_row"]["mse"]
    assert guesses["mean"]["recognised"] < 0.3
    assert guesses["class_mean"]["recognised"] > 0.9  # without any message, as labels are known
    assert figures["all", "embedding", "f2"]["recognised"] == guesses["true"]["recognised"] > 0.9
    truth = examples["inversion/all/f2/truth"]
    assert truth.shape == (20, 8, 8)
    assert (truth == examples["inversion/all/f2/answer"]).all()


def test_columns_of_a_table_are_told_apart():
    def change(x):
        wrong = x.categorical.clone()
        wrong[:20, 0] = (wrong[:20, 0] + 1) % 2
        return PartyFeatures(1 - x.numeric, wrong)

    figures, examples, _ = graded(Synthetic(rows=600, numeric=2, categorical=2, vocabulary=40), change)
    answer = figures["a", "embedding", "f2"]
    assert (answer["id_accuracy:C1"], answer["id_accuracy:C2"], answer["id_accuracy"]) == (0.5, 1.0, 0.75)
    assert answer["r2"] < 0
    assert abs(figures["a", "none", "mean"]["r2"]) < 0.2
    assert figures["a", "none", "true"]["id_accuracy"] == 1
    assert examples["inversion/a/f2/answer"].shape == (20, 4)


@pytest.mark.slow
def test_no_row_is_recognised_by_a_network_that_was_trained_on_it(monkeypatch):
    """Every recogniser is asked about rows that are not among those it was trained on, and every row is asked about once."""
    asked = []

    class Noted(Recogniser):
        def __init__(self, pictures, *more):
            super().__init__(pictures, *more)
            self.seen = pictures

        def features(self, pictures):
            asked.append((self.seen, pictures))
            return super().features(pictures)

    monkeypatch.setattr(grade_reconstruction, "Recogniser", Noted)
    graded(Digits(rows=300), lambda x: x)
    for seen, pictures in asked:
        assert not (pictures.flatten(1)[:, None] == seen.flatten(1)[None]).all(-1).any()
    assert sum(len(pictures) for _, pictures in asked[:2]) == 40
