"""The networks of configs/model: their formulas, their options, and columns that they can't take."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from support.builders import session, table
from torch.nn import functional as F

from vflbench.errors import UserError
from vflbench.models.lazy_adam import LazyAdam
from vflbench.models.networks import Cnn, Logistic, Mlp, WideDeep
from vflbench.numerics.pixels import pixel_names


def test_layers_are_relu_of_an_affine_map_or_of_convolutions_of_the_picture(rng):
    x, none = torch.rand(4, 30, generator=rng), torch.empty(4, 0)
    dense, cnn = Mlp(bottom_layers=2, width=4), Cnn(width=3)
    dense, cnn = (model.bottom(pixel_names(6, 5), (), 10, rng) for model in (dense, cnn))
    first, second = dense.stack.layers.values()
    by_hand = F.relu(F.linear(x, first.weight, first.bias))
    torch.testing.assert_close(dense(x, none)["f1"], by_hand)
    torch.testing.assert_close(dense(x, none)["f2"], F.relu(F.linear(by_hand, second.weight, second.bias)))
    out = cnn(x, none)
    first, second = cnn.stack.values()
    by_hand = F.relu(F.conv2d(x.view(4, 1, 6, 5), first.weight, first.bias, padding=1))
    torch.testing.assert_close(out["f1"], by_hand.flatten(1))
    by_hand = F.relu(F.conv2d(by_hand, second.weight, second.bias, padding=1, stride=2))
    torch.testing.assert_close(out["f2"], by_hand.flatten(1))
    assert cnn.cut_width == out["f2"].shape[1] == 3 * 3 * 3


def test_the_second_moment_is_kept_from_layer_to_layer(rng):
    """E max(0, z)^2 is half of E z^2, which the gain compensates; zero padding of pictures loses some."""
    deep, pictures = Mlp(bottom_layers=8, width=256), Cnn(bottom_layers=3, width=64)
    cases = ((deep, 2000, ["f8"], 0.75, 1.25), (pictures, 64, ["f1", "f2", "f3"], 0.6, 1.4))
    for model, rows, layers, least, most in cases:
        bottom = model.bottom(pixel_names(16, 16), (), 10, rng)
        out = bottom(torch.randn(rows, 256, generator=rng), torch.empty(rows, 0))
        moments = [out[name].square().mean().item() for name in layers]
        assert all(least < m < most for m in moments), moments


def test_columns_that_a_network_does_not_take_raise_and_another_model_is_named(rng):
    for model, numeric, cardinalities in (
        (Mlp(), ["x"], [3]),
        (Cnn(), ["age"], ()),
        (Cnn(), pixel_names(3, 3)[:-1], ()),
        (Cnn(), pixel_names(2, 2), (5,)),
    ):
        with pytest.raises(UserError, match="use .*wide_deep"):
            model.bottom(numeric, cardinalities, 10, rng)


def test_the_published_shape_of_wide_deep_is_the_default(rng):
    bottom, top = WideDeep().bottom(["I1"] * 13, [10] * 26, 1, rng), WideDeep().top(128, 1, rng)
    assert (bottom.layers, bottom.sends) == (("f1", "f2", "f3", "f4", "f5"), ("f5",))
    assert top.layers == ("h1", "h2", "h3")
    assert [layer.in_features for layer in bottom.stack.layers.values()] == [13 + 26 * 4, 128, 128, 128, 128]


def test_wide_deep_takes_columns_of_either_kind_and_adds_a_linear_part(rng):
    """z_i = sum_j w_j[id_ij] + V x_i. The deep part is the same of vectors as of the ids that they are of."""
    model = WideDeep(bottom_layers=2, top_layers=0, width=6, cut_width=3, wide=True)
    for numeric, sizes in ((["x", "y"], [4, 3]), (["x"], []), ([], [3, 4])):
        bottom, top = model.bottom(numeric, sizes, 5, rng), model.top(3, 5, rng)
        for parameter in bottom.wide.parameters():
            torch.nn.init.normal_(parameter, generator=rng)
        x, ids = torch.rand(7, len(numeric), generator=rng), torch.full((7, len(sizes)), 2, dtype=torch.int32)
        out = bottom(x, ids)
        assert {name: tuple(v.shape) for name, v in out.items()} == {"f1": (7, 6), "f2": (7, 3), "wide": (7, 5)}
        assert bottom.sends == ("f2", "wide")
        of_ids = [w[2] for w in bottom.wide.categories.table.split(sizes)] if sizes else []
        torch.testing.assert_close(out["wide"], sum(of_ids, start=x @ bottom.wide.numeric))
        vectors = torch.stack([t[2].expand(7, 4) for t in bottom.tables()], 1) if sizes else torch.empty(7, 0, 4)
        torch.testing.assert_close(bottom.from_vectors(x, vectors)["f2"], out["f2"])
        activations, logits = top([out["f2"]], [out["wide"]])
        assert activations == {}
        assert logits.shape == (7, 5)


@pytest.mark.parametrize("classes", [2, 4])
def test_logits_of_logistic_regression_are_the_sum_of_what_parties_send(rng, classes):
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
    rows = table(rng, rows=400, parties=("a", "label"), numeric=2, sizes=())
    x = torch.cat([held.numeric for held in rows.features.values()], 1)
    noisy = x @ torch.tensor([4.0, -3.0, 2.0, 0.0]) + 0.5 * torch.randn(400, generator=rng)
    rows.labels[:] = noisy > 1.5
    started = session(rows, model=Logistic(), optimizer=LazyAdam(lr=0.05, kernel="torch"))
    for _ in range(600):
        started.round(rows.ids)
    ours = started.predict(rows.ids)[:, 0]
    theirs = torch.tensor(LogisticRegression(C=1e4).fit(x, rows.labels).decision_function(x), dtype=ours.dtype)
    assert torch.corrcoef(torch.stack([ours, theirs]))[0, 1] > 0.999
