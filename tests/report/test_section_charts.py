"""The figures of a section, as data: what their labels say, and that nothing lies on anything else."""

import pytest
from outputs_tree import leak, marvell, sweep, write_run

from vflbench.report.plot import Axis, Plot, Point, Series, exact
from vflbench.report.plot_figure import figure_of
from vflbench.report.section_charts import plane, sweep_plots
from vflbench.report.sections import Wishes, sections
from vflbench.results.tree import read_tree


def along(folder):
    (section,) = sections(read_tree([folder]).runs, Wishes())
    (plot,) = sweep_plots(section)
    return plot


@pytest.mark.parametrize(("holds", "words"), [(False, " (assumption fails in 2 of 3 runs)"), (True, ""), (None, "")])
def test_the_label_of_a_ceiling_says_where_what_it_assumes_does_not_hold(tmp_path, holds, words):
    """A figure in a paper has no note beside it."""
    for seed, (sumkl, answer) in enumerate([(0.04, holds), (0.16, holds), (0.64, None)]):
        keywords = marvell(sumkl, 0.6)
        keywords["guarantees"]["marvell"] |= {"assumption": "Gaussians", "assumption_holds": answer}
        write_run(tmp_path / str(seed), **keywords)
    plot = along(tmp_path)
    labels = [series.label for series in plot.series if "ceiling" in series.label]
    assert labels
    assert all(label.startswith("promised ceiling, ") for label in labels)
    assert all(label.endswith(words) for label in labels)
    assert words or not any("assumption" in label for label in labels)


def test_two_ceilings_that_are_equal_are_one_line_and_others_have_marks_of_their_own(tmp_path):
    for sumkl, one in ((0.04, 0.6), (0.16, 0.6)):
        keywords = marvell(sumkl, 0.6)
        keywords["guarantees"]["marvell"] |= {"leak_auc_one_message": one, "leak_auc_all_messages": one}
        write_run(tmp_path / "same" / str(sumkl), **keywords)
        keywords["guarantees"]["marvell"]["leak_auc_one_message"] = one - sumkl
        write_run(tmp_path / "apart" / str(sumkl), **keywords)
    same, apart = ([s for s in along(tmp_path / name).series if "ceiling" in s.label] for name in ("same", "apart"))
    assert [series.label for series in same] == ["promised ceiling, one message and all of a run"]
    assert len({(series.look, series.line) for series in apart}) == len(apart) == 2


def test_intervals_of_a_sweep_stand_beside_each_other_and_data_keep_their_places(tmp_path):
    plot = along(sweep(tmp_path))
    measured = [series for series in plot.series if "ceiling" not in series.label]
    assert len({series.shift for series in measured}) == len(measured) > 1
    assert plot.y.title == "AUC, leaks at the cut"
    spec = figure_of(plot).spec
    assert {record["x"] for record in spec["datasets"]["points"]} <= {0.0, 1.0}
    assert spec["usermeta"]["names"]["x"] == [[0.0, "0.04"], [1.0, "0.16"]]


def test_the_probe_is_called_a_reference_as_in_the_table_and_not_a_reader_of_own_columns(tmp_path):
    for seed, sumkl in enumerate((0.04, 0.16)):
        read = [("norm", "gradient", 0.6), ("probe", "none", 0.9), ("completion (own columns)", "none", 0.55)]
        leaks = [leak(attack, "f2", value, message=message) for attack, message, value in read]
        write_run(tmp_path / str(seed), leaks=leaks, **marvell(sumkl, 0.6))
    plot = along(tmp_path)
    drawn = {series.label: [point.y.mean for point in series.points] for series in plot.series}
    assert drawn["probe, reference"] == [0.9, 0.9]
    assert drawn["completion (own columns), reference"] == [0.55, 0.55]
    assert not any("probe (own columns)" in label for label in drawn)
    assert "trained on the labels of half of the rows" in plot.note


def test_the_note_of_a_sweep_says_how_many_attacks_have_no_line(tmp_path):
    for seed, sumkl in enumerate((0.04, 0.16)):
        leaks = [leak(f"attack_{i}", "f2", 0.6 + 0.01 * i) for i in range(9)]
        write_run(tmp_path / str(seed), leaks=leaks, **marvell(sumkl, 0.6))
    drawn = [series for series in along(tmp_path).series if series.label.startswith("attack_")]
    assert f"Drawn are {len(drawn)} of 9 attacks, those with the largest leaks." in along(tmp_path).note
    assert drawn[0].label.startswith("attack_8")


def test_the_name_beside_a_mark_covers_no_other_mark():
    """Of two marks 9 pixels apart, the name of one lay on the other."""
    points = (Point(exact(0.5), exact(0.587), tag="sumkl 0.04"), Point(exact(0.5015), exact(0.595), tag="sumkl 0.16"))
    far = Point(exact(0.6), exact(0.8))
    plot = Plot("p", "p", Axis("x", limits=(0.4, 0.6)), Axis("y", limits=(0.48, 0.78)), (Series("a", (*points, far)),))
    at = [record.get("at") for record in figure_of(plot).spec["datasets"]["points"]]
    assert at[0].startswith("lower")


def test_marks_whose_names_have_no_room_keep_what_tells_them_apart(tmp_path):
    for number, (epochs, rows) in enumerate((("last", 6_000), ("all", 20_000), ("all", 200_000))):
        config = {"audit": {"epochs": epochs}, "batch_size": f"{epochs} as there are", "rows": rows}
        write_run(tmp_path / str(number), norm=0.8 + 0.05 * number, config=config)
    (section,) = sections(read_tree([tmp_path]).runs, Wishes())
    tags = {point.tag for point in plane(section).points() if point.tag}
    assert {next(part for part in tag.split(", ") if part.startswith("rows")) for tag in tags} == {
        "rows 6000",
        "rows 20000",
        "rows 200000",
    }
    assert all(len(tag) <= 34 for tag in tags)
