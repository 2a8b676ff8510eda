import pytest
import torch
from sklearn.linear_model import LogisticRegression
from support.builders import session, table

from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import Logistic


@pytest.mark.parametrize("classes", [2, 4])
def test_logits_are_the_sum_of_what_parties_send(rng, classes):
    rows = table(rng, parties=("a", "b"), classes=classes)
    started = session(rows, model=Logistic())
    outputs = 1 if classes == 2 else classes
    with torch.no_grad():
        started.label_party.top.bias.uniform_(generator=rng)
        total = started.label_party.top.bias.expand(len(rows), -1)
        for party in started.parties:
            block = rows.features[party.name]
            tables = party.bottom.tables()
            assert [tuple(t.shape) for t in tables] == [(5, outputs), (7, outputs)]
            of_ids = sum(t[block.categorical[:, j].long()] for j, t in enumerate(tables))
            sent = block.numeric @ party.bottom.numeric + of_ids
            torch.testing.assert_close(party.bottom(block.numeric, block.categorical)["f1"], sent)
            total = total + sent
    assert started.cut_layers() == {"a": ("f1",), "b": ("f1",)}
    torch.testing.assert_close(started.predict(rows.ids), total)


@pytest.mark.slow
def test_it_learns_what_logistic_regression_learns(rng):
    x = torch.rand(400, 4, generator=rng)
    y = (x @ torch.tensor([4.0, -3.0, 2.0, 0.0]) + 0.5 * torch.randn(400, generator=rng) > 1.5).long()
    names = ("I1", "I2")
    features = {p: Features(Columns(names, (), ()), x[:, at], torch.empty(400, 0, dtype=torch.int32)) for p, at in PLACES}
    rows = VerticalTable(torch.arange(400), features, y, 2)
    started = session(rows, model=Logistic(), optimizer=LazyAdam(lr=0.05, kernel="torch"))
    for _ in range(600):
        started.round(rows.ids)
    ours = started.predict(rows.ids)[:, 0]
    theirs = torch.tensor(LogisticRegression(C=1e4).fit(x, y).decision_function(x), dtype=ours.dtype)
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.999


PLACES = (("a", slice(0, 2)), ("label", slice(2, 4)))
