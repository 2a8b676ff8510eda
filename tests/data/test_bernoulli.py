import torch

from vflbench.data.synthetic import Bernoulli


def test_it_is_coin_flips_in_whole_batches_and_stays_as_it_is():
    data = Bernoulli(rows=50, features=30, density=0.3, batches=40).load(torch.Generator().manual_seed(0))
    rows = data.train.all()
    x = rows.features["a"].numeric
    assert len(data.train) + len(data.test) == 2000
    assert data.facts["batch_rows"] == 50
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert abs(x.mean().item() - 0.3) < 0.01
    assert abs(torch.corrcoef(x.T).fill_diagonal_(0)).max() < 0.12
    weights = torch.linalg.lstsq(x - 0.3, rows.labels.float() * 2 - 1).solution
    assert (weights.abs() > 0.05).sum() > 10  # the labels depend on the columns


def test_a_constant_column_is_not_normalised_away():
    data = Bernoulli(rows=1, features=8, density=0.9999, batches=12).load(torch.Generator().manual_seed(1))
    assert (data.train.all().features["a"].numeric == 1).all()
