"""Attackers who try to fool the judge of rebuilt rows: none of them reads a message about a row."""

import pytest
import torch

from vflbench.attacks.base import RebuiltRows
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import BreastCancer, Synthetic
from vflbench.errors import UserError
from vflbench.messages.facts import PartyFeatures
from vflbench.metrics.inversion import Recogniser
from vflbench.metrics.reconstruction import ReconstructionTable
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


@pytest.mark.slow
def test_own_columns_are_a_guess_where_the_attackers_seat_has_them():
    """The label party holds a column that tells another party's: answering with it reads no message."""
    data = Synthetic(rows=900, numeric=4, parties={"a": ["I1", "I2"], "label": ["I3", "I4"]}).load(
        torch.Generator().manual_seed(0)
    )
    rows, table = data.train.all().rows(torch.arange(60)), ReconstructionTable()
    own = rows.features["a"]
    Grader(data.train, data.test, 1).grade(
        "attack", RebuiltRows(rows.ids, "f2", {"a": PartyFeatures(own.numeric, own.categorical)}), rows, 0, table
    )
    (answer,) = (r for r in table.entries() if r.message != "none")
    assert list(answer.beats_guesses) == [
        "mean",
        "class_mean",
        "random_row",
        "class_row",
        "features_network",
        "features_linear",
    ]
    assert answer.beats_every_guess is True
    assert answer.figures["identified"].mean == 1


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


BAD = {
    "nan": (lambda x: x * torch.nan, "not finite; numbers in"),
    "too large": (lambda x: x + 1, r"to 2; numbers in \[0, 1\]"),
    "too few rows": (lambda x: x[1:], "it must be"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_row_can_hold_is_refused(name):
    data = Digits(rows=300).load(torch.Generator().manual_seed(0))
    rows = data.train.all().rows(torch.arange(10))
    change, problem = BAD[name]
    answer = RebuiltRows(rows.ids, "f2", {"a": PartyFeatures(change(rows.features["a"].numeric), torch.empty(10, 0))})
    with pytest.raises(UserError, match=f"attack=attack: it rebuilt columns of party a .*{problem}"):
        Grader(data.train, data.test, 5).grade("attack", answer, rows, 0, ReconstructionTable())


def test_ids_that_no_column_has_are_refused():
    data = Synthetic(rows=300, numeric=1, categorical=1, vocabulary=5).load(torch.Generator().manual_seed(0))
    rows = data.train.all().rows(torch.arange(10))
    own = rows.features["a"]
    answer = RebuiltRows(rows.ids, "f2", {"a": PartyFeatures(own.numeric, torch.full_like(own.categorical, 1000))})
    with pytest.raises(UserError, match="ids that"):
        Grader(data.train, data.test, 5).grade("attack", answer, rows, 0, ReconstructionTable())
    unknown = RebuiltRows(rows.ids, "f2", {"z": PartyFeatures(own.numeric, own.categorical)})
    with pytest.raises(UserError, match="party z"):
        Grader(data.train, data.test, 5).grade("attack", unknown, rows, 0, ReconstructionTable())
