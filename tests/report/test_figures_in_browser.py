"""Figures on a page in Chromium, under the page's own policy: hover, zoom, the legend that filters, and what is saved."""

import csv
import io
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from support.browser_pages import opened
from support.outputs_tree import sweep

from vflbench.report.page import Wishes, write_report

pytestmark = pytest.mark.slow
MARKS = "#figure_runs_criteo_plane .mark-symbol.role-mark path"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    root = sweep(tmp_path_factory.mktemp("sweep"))
    return write_report([root], root / "report", Wishes(formats=()))


def plane(shown):
    shown.wait_for_figures()
    return shown.page.locator("#figure_runs_criteo_plane")


def comes_true(shown, condition):
    """Whether it does so within some seconds: a figure is drawn anew after an event."""
    for _ in range(100):
        if condition():
            return True
        shown.page.wait_for_timeout(50)
    return False


def saved(shown, figure, kind):
    with shown.page.expect_download() as download:
        figure.locator(f"[data-save={kind}]").click()
    assert download.value.suggested_filename == f"runs_criteo_plane.{kind}"
    return download.value.path().read_bytes()


def test_a_mark_says_what_it_is_and_the_legend_filters(chromium, file):
    with opened(chromium, file) as shown:
        figure, marks = plane(shown), shown.page.locator(MARKS)
        assert marks.count() == 3
        marks.first.hover()
        assert "test AUC: 0.7" in shown.page.locator("#plot_tip").inner_text()
        label = figure.locator(".role-legend-label text", has_text="sumkl 0.04")
        label.click()
        assert comes_true(shown, lambda: marks.count() == 1)
        label.click()
        assert comes_true(shown, lambda: marks.count() == 3)
        assert shown.complaints == []


def test_ctrl_and_the_wheel_zoom_a_double_click_goes_back_and_the_wheel_alone_scrolls(chromium, file):
    with opened(chromium, file) as shown:
        figure = plane(shown)
        figure.scroll_into_view_if_needed()
        ticks = figure.locator(".role-axis-label text")
        before = ticks.all_text_contents()
        box = figure.locator("svg").bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + 150)
        shown.page.mouse.move(*middle)
        shown.page.mouse.wheel(0, -100)
        assert ticks.all_text_contents() == before
        shown.page.keyboard.down("Control")
        shown.page.mouse.wheel(0, -400)
        shown.page.keyboard.up("Control")
        assert comes_true(shown, lambda: ticks.all_text_contents() != before)
        shown.page.mouse.dblclick(*middle)
        assert comes_true(shown, lambda: sorted(ticks.all_text_contents()) == sorted(before))
        assert shown.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_saved_is_light_whatever_the_page_is(chromium, file, dark):
    with opened(chromium, file, dark=dark) as shown:
        figure = plane(shown)
        root = ElementTree.fromstring(saved(shown, figure, "svg"))
        assert root.find("{http://www.w3.org/2000/svg}rect").get("fill") == "#ffffff"
        pixels = np.asarray(Image.open(io.BytesIO(saved(shown, figure, "png"))).convert("RGB"))
        assert pixels[0, 0].tolist() == [255, 255, 255]
        assert np.ptp(pixels.astype(int)) > 200
        head, *rows = csv.reader(io.StringIO(saved(shown, figure, "csv").decode()))
        assert head[:4] == ["label", "test AUC", "test AUC_low", "test AUC_high"]
        assert {row[0] for row in rows} >= {"none", "marvell, sumkl 0.04"}
        colour = "rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)"
        svg = figure.locator("svg")
        assert comes_true(shown, lambda: svg.evaluate("s => s.style.backgroundColor") == colour)
        assert shown.complaints == []


def fits(figure):
    place, drawn = (figure.locator(what).bounding_box()["width"] for what in (".plot", "svg"))
    return place - 2 <= drawn <= place


def test_a_figure_is_as_wide_as_its_place_when_the_window_changes(chromium, file):
    with opened(chromium, file, 1280) as shown:
        figure = plane(shown)
        for width in (400, 700, 1280):
            shown.page.set_viewport_size({"width": width, "height": 800})
            assert comes_true(shown, lambda: fits(figure))
            legend, svg = (figure.locator(what).first.bounding_box() for what in (".role-legend", "svg"))
            assert legend["y"] + legend["height"] <= svg["y"] + svg["height"] + 4
        assert shown.complaints == []
