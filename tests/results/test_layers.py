"""Which layers cross, and in which order layers are shown."""

from vflbench.report.charts import marked, merged_order
from vflbench.results.runs import layers_of
from vflbench.results.schema import Manifest


def test_a_layer_that_crosses_is_marked_once():
    assert [marked("f5", True), marked("f5", False), marked("cut", True)] == ["f5 (cut)", "f5", "cut"]


def test_recorded_layers_come_first_and_then_what_else_was_measured():
    manifest = Manifest(
        cut_layers={"a": ["narrow", "wide"], "b": ["f1"]},
        layers={"label": ["f1", "head"], "a": ["conv", "narrow"], "b": ["f1"]},
    )
    layers = layers_of(manifest, [("a", "conv"), ("a", "last_seen")])
    assert layers.order == ("conv", "narrow", "wide", "f1", "head", "last_seen")
    assert layers.bottom == ("conv", "narrow", "wide", "f1")
    crossing = {(p, name) for p in ("a", "b", "label") for name in layers.order if layers.crosses(p, name)}
    assert crossing >= {("a", "narrow"), ("a", "wide"), ("b", "f1")}
    assert crossing.isdisjoint({("a", "f1"), ("b", "narrow"), ("a", "conv"), ("a", "last_seen")})


def test_a_protocol_in_which_no_layer_crosses_records_that():
    assert not layers_of(Manifest(cut_layers={}), [("a", "f1")]).crosses("a", "f1")


def test_layers_of_several_runs_keep_their_order():
    lists = (["f1", "f2", "f3", "h1"], ["f1", "f2", "wide", "h1"], ["f1"], ["stem", "f1"])
    runs = [layers_of(Manifest(layers={"a": names})) for names in lists]
    assert merged_order(runs) == ["stem", "f1", "f2", "wide", "f3", "h1"]
