import torch

from vflbench.models.networks import WideDeep


def test_published_shape_is_the_default(rng):
    model = WideDeep()
    bottom, top = model.bottom(["I1"] * 13, [10] * 26, 1, rng), model.top(128, 1, rng)
    assert bottom.layers == ("f1", "f2", "f3", "f4", "f5")
    assert top.layers == ("h1", "h2", "h3")
    assert bottom.cut == "f5"
    assert bottom.sends == ("f5",)
    assert [layer.in_features for layer in bottom.stack.layers.values()] == [13 + 26 * 4, 128, 128, 128, 128]


def test_depth_width_and_cut_are_options(rng):
    model = WideDeep(bottom_layers=2, top_layers=0, width=6, cut_width=3, wide=True)
    bottom, top = model.bottom(["x"], [4], 5, rng), model.top(3, 5, rng)
    out = bottom(torch.rand(7, 1), torch.zeros(7, 1, dtype=torch.int32))
    assert {name: tuple(v.shape) for name, v in out.items()} == {"f1": (7, 6), "f2": (7, 3), "wide": (7, 5)}
    assert bottom.sends == ("f2", "wide")
    activations, logits = top([out["f2"]], [out["wide"]])
    assert activations == {}
    assert logits.shape == (7, 5)


def test_a_party_may_hold_columns_of_one_kind_only(rng):
    for numeric, cardinalities in ((["x"], []), ([], [3, 4])):
        bottom = WideDeep(width=4, wide=True).bottom(numeric, cardinalities, 1, rng)
        out = bottom(torch.rand(5, len(numeric)), torch.zeros(5, len(cardinalities), dtype=torch.int32))
        assert out["f5"].shape == (5, 4)
        assert out["wide"].shape == (5, 1)
