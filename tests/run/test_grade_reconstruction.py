import pytest
import torch

from vflbench.attacks.base import RebuiltRows
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic
from vflbench.messages.facts import PartyFeatures
from vflbench.metrics.reconstruction import CHANCE, ReconstructionTable
from vflbench.results.schema import GUESSES, OF_THE_TRUTH
from vflbench.run import grade_reconstruction
from vflbench.run.attackers import auxiliary_rows
from vflbench.run.grade_reconstruction import ReconstructionGrader as Grader


def graded(dataset, change):
    """Figures of answers that are what `change` makes of the truth, by (party, message, layer)."""
    data = dataset.load(torch.Generator().manual_seed(0))
    rows = data.train.all().rows(torch.arange(5, 45))
    answers = {p: change(PartyFeatures(f.numeric, f.categorical)) for p, f in rows.features.items()}
    table = ReconstructionTable()
    Grader(data.train, data.test, 5).grade("inversion", RebuiltRows(rows.ids, "f2", answers), rows, 0, table)
    found = {(r.party, r.message, r.layer): {n: v.mean for n, v in r.figures.items()} for r in table.entries()}
    return found, table.examples(), data


@pytest.mark.slow
def test_whole_pictures_are_put_together_and_compared_with_guesses():
    found, examples, data = graded(Digits(parties=4), lambda own: own)
    assert found["all", "embedding", "f2"]["ssim"] == pytest.approx(1)
    assert set(found) == {
        *((party, "embedding", "f2") for party in (*"abcd", "all")),
        *(("all", "none", guess) for guess in (*GUESSES, CHANCE, *OF_THE_TRUTH) if not guess.startswith("own_")),
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
        def __init__(self, pictures, labels, classes, rng):
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
    answers = {p: PartyFeatures(f.numeric, f.categorical) for p, f in rows.features.items()}
    Grader(data.train, data.test, 5).grade("inversion", RebuiltRows(rows.ids, "f2", answers), rows, 0, ReconstructionTable())
    for seen, pictures in [*asked[:2], *asked_features]:
        assert not (pictures.flatten(1)[:, None] == seen.flatten(1)[None]).all(-1).any()
    assert sum(len(pictures) for _, pictures in asked[:2]) == len(rows)
