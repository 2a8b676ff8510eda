"""Figures show what the runs measured: a point for each value, where it is, in the colour of its setting or attack."""

import io
import json
import math

import altair as alt
import numpy as np
import pandas as pd
import pytest
from jinja2.utils import htmlsafe_json_dumps
from PIL import Image
from report.drawn import by_name, expressions, levels_of, lines_of, points_of, section_of, texts_of
from support.outputs_tree import interval, leak, marvell, sweep, write_run

from vflbench.numerics.interval import Interval
from vflbench.report.charts import FORMATS, charts, curves, files, heat_map, merged_order, names_axis, numbers, svg, text
from vflbench.results.schema import HEADER

HOSTILE = (
    *("</script><script>alert(1)</script>", "datum.x", '{"signal":"width"}', "' + alert(1) + '", "'; dark=true; '"),
    *("https://evil.example/x.png", "<img src=x onerror=alert(1)>", "]]>", "&amp;", "$x^2$ {} %s", "__proto__"),
    *("constructor", "toString", "length", "null", "undefined", "NaN", "\x00\x1b[31m", "x" * 5000, "a\nb", "ü 漢字 ع"),
)


def drawn(folder, **how):
    return by_name(charts(section_of(folder, **how)))


def curve(points, x=None, y=None, **how):
    axes = x or numbers(alt.X, "x"), y or numbers(alt.Y, "y")
    return curves(pd.DataFrame(points), {}, *axes, slug="p", title="title", **how)


def every(words):
    """A figure with the texts wherever there can be some."""
    points = [{"label": word, "x": word, "y": Interval(j, j - 1, j + 1), "more": word} for j, word in enumerate(words)]
    levels = [(word, j, "dotted", word) for j, word in enumerate(words)]
    return curve(points, names_axis(alt.X, words[1], words), numbers(alt.Y, words[2]), levels=levels, note=words[3])


def test_what_has_no_place_is_not_drawn():
    unknown = [(math.nan, 0.5), (1, math.nan), (1, math.inf), (-math.inf, 0.5), (1, 0.5)]
    figure = curve([{"label": "a", "x": x, "y": Interval(y, 0.4, math.inf)} for x, y in unknown])
    (point,) = figure.spec["datasets"]["points"]
    assert (point["x"], point["y"], point["low"], point["high"]) == (1, 0.5, 0.4, None)


@pytest.mark.slow
def test_no_text_is_computed_with_or_ends_a_drawing_or_a_page():
    """Expressions depend on how long texts are, and on nothing else of them."""
    figure = every(HOSTILE)
    as_long = [f"{number:>{len(text(word))}}" for number, word in enumerate(HOSTILE)]
    assert expressions(figure.spec) == expressions(every(as_long).spec)
    assert len(expressions(figure.spec)) > 20
    assert {"datum.x", "constructor", "https://evil.example/x.png"} <= {word.strip() for word in texts_of(figure)}
    assert "<script" not in svg(figure)
    written = htmlsafe_json_dumps(figure.spec)  # as the template writes it
    assert not set("<>&") & set(written)
    assert json.loads(written) == figure.spec


@pytest.mark.slow
def test_every_format_shows_the_figure_and_altair_knows_its_specification():
    figure = curve([{"label": "a", "x": 1, "y": Interval(0.5, 0.4, 0.6)}], levels=[("a coin", 0.5, "dashed", "")])
    alt.LayerChart.from_dict(figure.spec)  # which validates it
    made = dict(files(figure))
    assert list(made) == [f"p.{ending}" for ending in FORMATS]
    assert made["p.pdf"].startswith(b"%PDF-")
    pixels = np.asarray(Image.open(io.BytesIO(made["p.png"])).convert("RGB")).astype(int)
    assert pixels.shape[1] > 1000
    assert np.ptp(pixels) > 200
    assert pixels[0, 0].tolist() == [255, 255, 255], "files are light"


def test_of_many_labels_the_legend_names_some_and_the_note_says_so():
    figure = curve([{"label": f"label {j}", "x": j, "y": j} for j in range(200)])
    assert "The legend names 30 of 200." in figure.note
    assert "200 points" in figure.spec["description"]


def looks_of(figure):
    """Label -> colour and symbol in a figure's legend."""
    marks = next(layer for layer in reversed(figure.spec["layer"]) if "shape" in layer["encoding"])["encoding"]
    colours, shapes = (marks[channel]["scale"] for channel in ("stroke", "shape"))
    return {label: look for label, *look in zip(colours["domain"], colours["range"], shapes["range"], strict=True)}


@pytest.mark.slow
def test_a_label_looks_the_same_in_all_figures(tmp_path):
    """Orange was label_gdp in one figure and no defense in the next."""
    looks, section = {}, section_of(sweep(tmp_path, seeds=1))
    for slug, figure in by_name(charts(section)).items():
        for label, look in looks_of(figure).items():
            if label in section.styles:
                assert looks.setdefault(label, look) == look, (slug, label)
    assert len({tuple(look) for look in looks.values()}) == len(looks) > 3


@pytest.mark.slow
def test_the_plane_has_a_mark_for_each_setting_and_a_front_of_those_that_may_be_compared(tmp_path):
    sweep(tmp_path)
    config = {"attack": {"other": {"_target_": "vflbench.attacks.norm.Norm"}}}
    write_run(tmp_path / "other", defense={"max_norm": {}}, test_auc=0.9, leaks=[leak("other", "f2", 0.51)], config=config)
    points = lines_of(plane := drawn(tmp_path)["plane"])
    front = points.pop("Pareto front")
    (other,) = [label for label in points if "max_norm" in label]
    assert points[other] == [(0.9, 0.51)], "better than all in both, but read by another attack"
    del points[other]
    assert len(points) == 3
    assert sorted(front) == sorted(point for of in points.values() for point in of)
    hollow = {point["label"] for point in plane.spec["datasets"]["points"] if point["hollow"]}
    assert hollow == {other}
    assert "Hollow: on no front with the others" in plane.note


@pytest.mark.slow
@pytest.mark.parametrize(("holds", "words"), [(False, " (assumption fails in 2 of 3 runs)"), (True, ""), (None, "")])
def test_the_label_of_a_ceiling_says_where_what_it_assumes_does_not_hold(tmp_path, holds, words):
    """A figure in a paper has no note beside it."""
    for seed, (sumkl, answer) in enumerate([(0.04, holds), (0.16, holds), (0.64, None)]):
        keywords = marvell(sumkl, 0.6)
        keywords["guarantees"]["marvell"] |= {"assumption": "they are Gaussians", "assumption_holds": answer}
        write_run(tmp_path / str(seed), **keywords)
    figure = drawn(tmp_path)["along_sumkl"]
    labels = [label for label in lines_of(figure) if "ceiling" in label]
    assert labels
    assert all(label.startswith("promised ceiling, ") and label.endswith(words) for label in labels)
    assert words or not any("assumption" in label for label in labels)
    assert "The ceiling of marvell assumes that they are Gaussians" in figure.note


def test_a_sweep_has_utility_attacks_and_references_at_each_value(tmp_path):
    for seed, sumkl in enumerate((0.16, 0.04)):
        read = [("norm", "gradient", 0.6 + seed / 10), ("probe", "none", 0.9), ("completion (own columns)", "none", 0.55)]
        leaks = [leak(attack, "f2", value, message=message) for attack, message, value in read]
        leaks += [leak(f"attack_{i}", "f2", 0.5 + 0.01 * i) for i in range(8)]
        write_run(tmp_path / str(seed), leaks=leaks, **marvell(sumkl, 0.6))
    figure = drawn(tmp_path)["along_sumkl"]
    lines = lines_of(figure)
    assert lines["norm on gradients"] == [("0.04", 0.7), ("0.16", 0.6)]
    assert lines["probe, reference"] == [("0.04", 0.9), ("0.16", 0.9)]
    assert lines["completion (own columns), reference"] == [("0.04", 0.55), ("0.16", 0.55)]
    assert lines["test AUC"] == [("0.04", 0.76), ("0.16", 0.76)]
    assert levels_of(figure) == {"0.5, a coin": 0.5}
    assert "trained on the labels of half of the rows" in figure.note
    assert "Drawn are 7 of 9 attacks: the worst of the verdict" in figure.note
    assert "attack_0 on gradients" not in lines


def test_layers_of_several_runs_keep_their_order():
    lists = (["f1", "f2", "f3", "h1"], ["f1", "f2", "wide", "h1"], ["f1"], ["stem", "f1"])
    assert merged_order(lists) == ["stem", "f1", "f2", "wide", "f3", "h1"]


@pytest.mark.slow
def test_layers_are_in_order_and_those_that_no_attacker_sees_are_hollow(tmp_path):
    for seed, defense in enumerate(({}, {"alibi": {}})):
        leaks = [leak("norm", layer, value) for layer, value in (("f2", 0.7), ("f1", 0.6))]
        write_run(tmp_path / str(seed), defense=defense, leaks=[*leaks, leak("norm", "h1", 0.9, visible=False)])
    figure = drawn(tmp_path)["layers_norm_on_gradients"]
    assert lines_of(figure)["alibi"] == [("f1", 0.6), ("f2 (cut)", 0.7), ("h1", 0.9)]
    assert {p["x"] for p in points_of(figure) if p["hollow"]} == {"h1"}
    assert "no attacker sees" in figure.note


def single(folder, rows, epochs=1, verdict=None):
    """Of one run with these readings (party, layer, message, attack, value) in each epoch; those of party a are seen."""
    leaks, lines = [], [HEADER]
    for party, layer, message, attack, value in rows:
        leaks.append(leak(attack, layer, value, message=message, party=party, visible=party == "a", half=0.1))
        seen = str(party == "a").lower()
        place = f"train,{party},{layer},{message},{attack},leak_auc_two_sided,{value},,,{seen}"
        lines += [f"{epoch},{place}\n" for epoch in range(epochs)]
    lines += [f"{epoch},{split},,,,,auc,0.7,,,\n" for epoch in range(epochs) for split in ("test", "train")]
    run = write_run(folder, leaks=leaks, test_auc=0.7, verdict={"worst": verdict})
    (run / "metrics.csv").write_text("".join(lines))
    return drawn(folder)


def test_a_run_has_its_leak_at_every_layer_beside_its_utility_and_references(tmp_path):
    norm = (("a", "f2", 0.8), ("a", "f1", 0.7), ("label", "h1", 0.9))
    rows = [(party, layer, "gradient", "norm", value) for party, layer, value in norm]
    rows += [("a", "features", "none", f"{name} (own columns)", of) for name, of in (("completion", 0.58), ("hints", 0.61))]
    rows += [("a", "messages", "none", "probe", 0.9), ("a", "gradients", "none", "probe", 0.85)]
    figures = single(tmp_path / "run", rows, epochs=2)
    assert list(figures) == ["epochs_utility", "epochs_leak", "layers"]
    layers = figures["layers"]
    assert lines_of(layers) == {"norm on gradients": [("f1", 0.7), ("f2 (cut)", 0.8), ("h1", 0.9)]}
    levels = {
        "test AUC 0.700": 0.7,
        "train AUC 0.700": 0.7,
        "0.5, a coin": 0.5,
        "probe, half of the labels known 0.900": 0.9,
    }
    assert levels_of(layers) == levels | {"hints (own columns), own features alone 0.610": 0.61}
    low, high = ([p[end] for p in points_of(layers)] for end in ("low", "high"))
    assert (low, high) == (pytest.approx([0.6, 0.7, 0.8]), pytest.approx([0.8, 0.9, 1.0]))
    assert lines_of(figures["epochs_leak"]) == {"norm on gradients": [(0, 0.8), (1, 0.8)]}
    assert set(lines_of(figures["epochs_utility"])) == {"test AUC", "train AUC"}


def test_of_many_attacks_the_worst_and_the_strongest_of_each_message_are_drawn_and_the_note_says_so(tmp_path):
    """Nine attacks on gradients read 1; the verdict names the last one; two read embeddings."""
    read = [(f"attack_{i}", "gradient", 1.0) for i in range(9)]
    read += [("direct", "gradient", 1.0), ("spectral", "embedding", 0.6), ("kmeans", "embedding", 0.55)]
    rows = [("a", "f1", message, attack, value) for attack, message, value in read]
    figures = single(tmp_path / "run", rows, epochs=2, verdict={"attack": "direct", "message": "gradient"})
    for figure in (figures["epochs_leak"], figures["layers"]):
        shown = {label.split(" ")[0] for label in lines_of(figure)}
        assert shown == {"direct", "spectral", *(f"attack_{i}" for i in range(5))}
        assert "Drawn are 7 of 12 attacks: the worst of the verdict, the strongest on each kind of message" in figure.note


def test_more_than_two_classes_have_figures_of_their_own(tmp_path):
    classes = {name: interval(value) for name, value in (("ami", 0.3), ("accuracy", 0.4))}
    read = leak("kmeans", "f2", None, message="embedding") | {"classes": classes}
    run = write_run(tmp_path / "run", leaks=[read], test_auc=None, facts={"data": {"train_class_ratios": [0.2, 0.5, 0.3]}})
    (run / "metrics.csv").write_text(HEADER)
    figures = drawn(tmp_path)
    assert list(figures) == ["layers_ami", "layers_accuracy"]
    assert lines_of(figures["layers_accuracy"]) == {"kmeans on embeddings": [("f2 (cut)", 0.4)]}
    assert levels_of(figures["layers_accuracy"]) == {"0.500, always the most frequent class": 0.5}


def test_a_heat_map_has_each_value_in_its_cell_and_colours_from_white_to_red():
    cells = {("", "test AUC"): "0.7", ("g", "norm"): Interval(1, 0.9, 1), ("g", "cosine"): 0.5, ("g", "direct"): math.nan}
    figure = heat_map(pd.DataFrame(cells, index=["none"]), slug="h", title="Heat", note="")
    drawn_cells = {cell["column"]: (cell["words"].strip(), cell["shade"]) for cell in figure.spec["datasets"]["cells"]}
    of_attacks = {"norm": ("1.00", "#a50026"), "cosine": ("0.50", "#ffffff"), "direct": ("", "#e4e4e4")}
    assert drawn_cells == {"test AUC": ("0.7", ""), **of_attacks}
    assert {"0.7", "1.00", "0.50", "norm", "none"} <= set(texts_of(figure))


def test_an_axis_on_which_all_points_have_one_place_says_which():
    """Vega named it 1."""
    assert "0.883" in texts_of(curve([{"label": "a", "x": 0.8833, "y": 0.6}]))
