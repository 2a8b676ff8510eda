import base64
import io

import numpy as np
import pytest
from outputs_tree import write_run
from PIL import Image
from report.drawn import texts_of

from vflbench.report.groups import Group
from vflbench.report.pictures import picture_url
from vflbench.report.rebuilt import rebuilt_figure, rebuilt_figures
from vflbench.results.runs import read_run


def save(folder, **pairs):
    arrays = {}
    for name, (truth, answer) in pairs.items():
        arrays[f"{name}/a/f2/truth"], arrays[f"{name}/a/f2/answer"] = truth, answer
    np.savez(folder / "reconstructions.npz", **arrays)


def pixels(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


def test_wrong_and_unknown_entries_of_a_table_are_marked(tmp_path):
    truth = np.eye(4)
    answer = truth.copy()
    answer[0, 0], answer[1, 2] = 0, np.nan
    save(tmp_path, batch=(truth, answer))
    figure = rebuilt_figure(tmp_path, "s")
    left, right = figure.spec["datasets"]["pictures"]
    cell = right["wide"] / 4, right["tall"] / 4
    marked = [((m["x"] - right["x"]) / cell[0], (m["y"] - right["y"]) / cell[1]) for m in figure.spec["datasets"]["wrong"]]
    assert marked == [pytest.approx((0.5, 0.5)), pytest.approx((2.5, 1.5))]
    assert "rebuilt: 2 of 16 wrong" in texts_of(figure)
    shown = pixels(left["url"])[50::100, 50::100, 0]  # 100 pixels an entry: 1 is black
    assert np.array_equal(shown, 255 * (1 - truth))


def test_pictures_stand_in_lines_of_ten_the_true_ones_above_the_rebuilt_ones(tmp_path):
    pictures = np.random.default_rng(0).random((12, 8, 8))
    save(tmp_path, inversion=(pictures, pictures / 2))
    figure = rebuilt_figure(tmp_path, "s", "none")
    drawn = figure.spec["datasets"]["pictures"]
    assert [entry["url"] for entry in drawn[:10]] == [picture_url(picture) for picture in pictures[:10]]
    assert [entry["url"] for entry in drawn[10:20]] == [picture_url(picture / 2) for picture in pictures[:10]]
    assert [entry["url"] for entry in drawn[20:]] == [picture_url(p) for p in (*pictures[10:], *(pictures[10:] / 2))]
    assert len({entry["y"] for entry in drawn}) == 4
    assert drawn[1]["x"] >= drawn[0]["x"] + drawn[0]["wide"]
    assert [t for t in texts_of(figure) if t in ("true", "rebuilt")] == ["true", "rebuilt"] * 2
    assert figure.title == "Rebuilt data: none"


def test_a_picture_keeps_its_values_and_colours():
    grey = np.linspace(-0.5, 1.5, 64).reshape(8, 8)
    grey[0, 0] = np.nan
    shown = pixels(picture_url(grey))[3::7, 3::7, 0] / 255  # 7 pixels a value
    assert shown[0, 0] == pytest.approx(0.5, abs=0.01)
    assert shown.ravel()[1:] == pytest.approx(np.clip(grey, 0, 1).ravel()[1:], abs=0.01)
    colours = np.zeros((32, 32, 3))
    colours[:16, :, 0], colours[16:, :, 2] = 1, 1
    assert [tuple(p) for p in pixels(picture_url(colours))[[0, -1], 5]] == [(255, 0, 0), (0, 0, 255)]


def test_nothing_was_rebuilt_or_nothing_that_can_be_shown(tmp_path):
    assert rebuilt_figure(tmp_path, "s") is None
    shapes = {
        "scalar": (),
        "vector": (3,),
        "none": (0, 4),
        "wide": (2, 5000),
        "large": (1, 900, 900),
        "deep": (1, 2, 2, 2, 2),
    }
    save(tmp_path, **{name: (np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()})
    assert rebuilt_figure(tmp_path, "s") is None
    save(tmp_path, unlike=(np.zeros((2, 3)), np.zeros((3, 2))))
    assert rebuilt_figure(tmp_path, "s") is None


def test_the_first_run_of_each_setting_is_shown_and_what_cannot_be_read_is_named(tmp_path):
    groups = []
    for number in range(10):
        runs = [read_run(write_run(tmp_path / f"{number}_{seed}", seed=seed)) for seed in range(2)]
        save(runs[1].folder, inversion=(np.zeros((1, 4, 4)), np.zeros((1, 4, 4))))
        groups.append(Group(tuple(runs), f"setting {number}"))
    (groups[0].runs[0].folder / "reconstructions.npz").write_bytes(b"no archive")
    odd = []
    figures = rebuilt_figures(groups, "section", odd)
    assert [figure.slug for figure in figures] == [f"section_rebuilt_{number}" for number in range(1, 9)]
    assert figures[0].title == "Rebuilt data: setting 0"
    assert [entry.path.name for entry in odd] == ["reconstructions.npz"]
