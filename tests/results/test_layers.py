"""Which layers cross, and in which order layers are shown: as recorded, else inferred."""

from vflbench.results.layers import layers_of, marked, merged_order

MEASURED = [("a", "f1", True), ("a", "f2", True), ("a", "wide", True), ("b", "f1", True), ("label", "h1", False)]


def test_a_layer_that_crosses_is_marked_once():
    assert [marked("f5", True), marked("f5", False), marked("cut", True)] == ["f5 (cut)", "f5", "cut"]


def test_recorded_layers_are_taken_as_they_are():
    manifest = {
        "cut_layers": {"a": ["narrow", "wide"], "b": ["f1"]},
        "layers": {"label": ["f1", "head"], "a": ["conv", "narrow"], "b": ["f1"]},
    }
    layers = layers_of(manifest, [("a", "conv", True), ("a", "last_seen", True)])
    assert layers.recorded
    assert layers.order == ("conv", "narrow", "wide", "f1", "head", "last_seen")
    assert layers.bottom == ("conv", "narrow", "wide", "f1")
    crossing = {(p, name) for p in ("a", "b", "label") for name in layers.order if layers.crosses(p, name)}
    assert crossing >= {("a", "narrow"), ("a", "wide"), ("b", "f1")}
    assert crossing.isdisjoint({("a", "f1"), ("b", "narrow"), ("a", "conv"), ("a", "last_seen")})


def test_a_protocol_in_which_no_layer_crosses_records_that():
    layers = layers_of({"cut_layers": {}}, MEASURED)
    assert layers.recorded
    assert not any(layers.crosses(party, layer) for party, layer, _ in MEASURED)


def test_without_a_record_the_last_visible_layer_of_each_party_is_the_cut():
    for manifest in ({}, {"cut_layers": None}, {"cut_layers": ["f2"]}):
        layers = layers_of(manifest, MEASURED)
        assert not layers.recorded
        assert layers.cut == {"a": ("f2", "wide"), "b": ("f1",)}
        assert layers.order == ("f1", "f2", "wide", "h1")
    assert layers_of({}, []).cut == {}


def test_layers_of_several_runs_keep_their_order():
    runs = [
        layers_of({"layers": {"a": names}}, [])
        for names in (["f1", "f2", "f3", "h1"], ["f1", "f2", "wide", "h1"], ["f1"], ["stem", "f1"])
    ]
    assert merged_order(runs) == ["stem", "f1", "f2", "wide", "f3", "h1"]
