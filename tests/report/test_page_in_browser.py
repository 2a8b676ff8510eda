"""A report's page in Chromium: at 1280 and 400 pixels, light, dark, in print; tables, figures; what axe-core says of it."""

import csv
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from report.test_pictures import save
from support.browser_pages import opened
from support.hostile_runs import TEXTS
from support.outputs_tree import leak, marvell, reading, rebuilt, sweep, verdict, write_adversarial_run, write_run

from vflbench.report.page import Wishes, write_report

pytestmark = pytest.mark.slow
OVERLAPS = """
[...document.querySelectorAll('thead tr')].flatMap(row => [...row.cells].filter((cell, i) => {
  const range = document.createRange(), next = row.cells[i + 1];
  range.selectNodeContents(cell);
  const end = cell.getBoundingClientRect().right;
  return next && cell.getClientRects().length && range.getBoundingClientRect().right > end + 1;
}).map(cell => cell.textContent))
"""
IN_SIGHT = """
[...document.querySelectorAll('table.heat tbody tr:first-child > *')].filter(cell => {
  const box = cell.getBoundingClientRect();
  return box.width && box.left >= 0 && box.right <= innerWidth + 1;
}).map(cell => cell.textContent)
"""


def judged(value):
    worst = reading(value=value, low=value - 0.02, high=value + 0.02)
    return {"norm": value, "verdict": verdict(worst, levels={"messages only": worst})}


def write_every_kind(root):
    """A sweep, a matrix, a run, an audit, rebuilt batches, a picture, adversaries, and folders without a result."""
    for seed in range(3):
        write_run(root / f"none{seed}", seed=seed, test_auc=0.76 + 0.01 * seed, **judged(0.9))
        for sumkl, value in ((0.04, 0.54), (0.16, 0.58), (4.0, 0.8)):
            more = {**judged(value), **marvell(sumkl, value + 0.01)}
            write_run(root / f"m{sumkl}_{seed}", seed=seed, test_auc=0.7 + value / 20, **more)
        write_adversarial_run(root / f"scaled{seed}", seed=seed)
        write_run(root / f"sumkl{seed}", seed=seed, experiment="bytedance_sumkl", norm=0.6, **marvell(0.64, 0.8))
    write_run(root / "single", dataset="adult", seed=6, **judged(0.7))
    known = {"kind": "audit", "source": {"path": "/data/partner/recorded"}, "data": {"train_rows": 900, "classes": 2}}
    write_run(root / "audit", facts=known, seed=7, skipped={"hints": "no labels"}, **judged(0.7))
    shares = {"labels_right": 0.73, "guess_labels_right": 0.52, "entries_right": 0.82, "guess_entries_right": 0.5}
    answer = rebuilt("theta", "batch_reconstruction", message="update", **shares)
    for count in (3, 5):
        more = {"dataset": "bernoulli", "experiment": "quantification_table1", "config": {"dataset": {"rows": count}}}
        write_run(root / f"batches{count}", leaks=[], reconstructions=[answer], test_auc=None, **more)
    pictures = np.random.default_rng(0).random((12, 8, 8))
    save(root / "inversion", rebuilt(psnr=20.0), pictures=pictures, dataset="digits", test_auc=None, test_accuracy=0.8)
    leaks = [leak(f"attack_{place}", "f2", 0.6 + 0.05 * place) for place in range(7)]
    for mu in (0.5, 1, 10, 100):
        write_run(root / f"mu{mu}", dataset="avazu", defense={"label_gdp": {"mu": mu}}, leaks=leaks)
    (write_run(root / "torn") / "summary.json").write_text("{")
    (write_run(root / "killed") / "summary.json").unlink()
    write_run(root / "failed", failed="out of memory", seed=9)
    write_run(root / "old", dataset="credit", facts=None, seed=8)
    return root


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    root = write_every_kind(tmp_path_factory.mktemp("every"))
    return write_report([root], root / "report", Wishes(formats=()))


def is_empty(part):
    """Whether a stretch of a picture has one colour."""
    return np.ptp(part.reshape(-1, 3), axis=0).max() < 30


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_nothing_is_empty_too_wide_or_too_small_to_read(chromium, every_kind, width, dark):
    with opened(chromium, every_kind, width, dark=dark) as shown:
        page = shown.page
        shown.wait_for_figures()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.too_wide() == []
        assert shown.small_type() == {}
        picture = shown.screenshot()
        assert picture.shape[1] == width
        assert (picture[5, 5].mean() < 80) == dark
        assert not any(is_empty(picture[y : y + 400]) for y in range(0, len(picture) - 400, 100))
        drawn = "[...document.querySelectorAll('.plot:not(.is-narrow) svg')]"
        boxes = page.evaluate(f"{drawn}.map(f => f.getBoundingClientRect().toJSON())")
        assert len(boxes) > 8
        for box in boxes:
            x, y, wide, high = (round(box[side]) for side in ("x", "y", "width", "height"))
            assert not is_empty(picture[y : y + high, x : x + wide])
        assert page.evaluate("[...document.images].every(i => i.naturalWidth > 0 && i.alt)")
        assert shown.complaints == []


def test_in_print_nothing_is_cut_off_and_buttons_are_gone(chromium, every_kind):
    with opened(chromium, every_kind, 1040) as shown:
        shown.page.emulate_media(media="print", color_scheme="light")
        shown.wait_for_figures()
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 1040
        assert shown.page.locator(".tools:visible, nav:visible").count() == 0
        assert shown.small_type() == {}
        cut_off = "[...document.querySelectorAll('.scroll')].filter(s => s.scrollWidth > s.clientWidth + 1).length"
        assert shown.page.evaluate(cut_off) == 0


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_axe_finds_nothing_wrong_and_no_heading_lies_over_its_neighbour(chromium, every_kind, width, dark):
    """Contrast, headings, alternative texts, names of buttons and fields, also of what is folded."""
    with opened(chromium, every_kind, width, dark=dark) as shown:
        unfold(shown)
        assert shown.page.evaluate(OVERLAPS) == []
        shown.wait_for_figures()
        assert shown.axe() == []


def unfold(shown):
    shown.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def test_a_heat_map_is_a_table_on_a_narrow_page_whose_names_stay_in_sight_and_a_figure_elsewhere(chromium, every_kind):
    figure = "#figure_runs_avazu_matrix svg:visible"
    with opened(chromium, every_kind, 400) as shown:
        shown.wait_for_figures()
        seen = shown.page.evaluate(IN_SIGHT)
        assert seen[0] == "label_gdp, mu 0.5"
        assert len(seen) >= 6
        shown.page.evaluate("document.querySelector('.plot.is-narrow').scrollLeft = 150")
        later = shown.page.evaluate(IN_SIGHT)
        assert later[0] == seen[0]
        assert {"0.90"} <= set(later) - set(seen)
        assert shown.page.locator(figure).count() == 0
    with opened(chromium, every_kind, 1280) as shown:
        shown.wait_for_figures()
        assert shown.page.locator("table.heat:visible").count() == 0
        assert shown.page.locator(figure).count() == 1


def column(shown, table, number):
    rows = f"[...document.querySelectorAll('#{table} tbody tr')].filter(r => !r.hidden)"
    return shown.page.evaluate(f"{rows}.map(r => r.cells[{number}].textContent)")


def test_a_table_sorts_by_numbers_keeps_what_is_missing_last_and_filters_lines_with_all_words(chromium, every_kind):
    with opened(chromium, every_kind) as shown:
        unfold(shown)
        heads = [h.inner_text() for h in shown.page.locator("#runs_criteo_settings thead button").all()]
        place = heads.index("ceiling, one message")
        head = shown.page.locator("#runs_criteo_settings thead button").nth(place)
        for signs in (1, -1):
            head.click()
            values = column(shown, "runs_criteo_settings", place)
            known = [float(v) for v in values if v != "-"]
            assert known == sorted(known, reverse=signs < 0)
            assert set(values[len(known) :]) == {"-"}
        assert shown.page.locator("#runs_criteo_settings th[aria-sort=descending]").count() == 1
        head.focus()
        shown.page.keyboard.press("Enter")
        assert shown.page.locator("#runs_criteo_settings th[aria-sort=ascending]").count() == 1
        shown.page.get_by_label("Filter lines of Settings").first.fill("MARVELL 0.16")
        assert column(shown, "runs_criteo_settings", 0) == ["marvell, sumkl 0.16"]
        shown.page.get_by_label("Filter lines of Settings").first.fill("")
        assert len(column(shown, "runs_criteo_settings", 0)) > 3


def copied(shown, table, name):
    """What the button puts into the clipboard."""
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tools = shown.page.locator(f".tools:has(+ .scroll > #{table})")
    tools.get_by_role("button", name=re.compile(f"as {name}$")).click()
    tools.get_by_text(f"copied as {name}").wait_for()
    return shown.page.evaluate("navigator.clipboard.readText()")


def full(text):
    """The rows of a CSV file without empty columns, which the page leaves out, but for the ends of intervals."""
    rows = list(csv.reader(io.StringIO(text)))
    kept = [j for j, name in enumerate(rows[0]) if name.endswith((" low", " high")) or any(row[j] for row in rows[1:])]
    return [[row[j] for j in kept] for row in rows]


def test_copies_are_the_files(chromium, tmp_path):
    """Also of texts that are formulas, tags, entities, commands of LaTeX, code, and hidden characters."""
    root = sweep(tmp_path / "runs")
    for place, text in enumerate(TEXTS[:15]):
        config = {"model": {"_target_": "a.B", "bottom_layers": text}, "attack": {"norm": {"_target_": "x.Y", "name": text}}}
        write_run(root / f"odd{place}", config=config, leaks=[leak("norm", "f2", 0.6)], skipped={"direct": text})
    folder = write_report([root], tmp_path / "report", Wishes(formats=())).parent
    with opened(chromium, folder / "report.html") as shown:
        unfold(shown)
        slugs = shown.page.evaluate("[...document.querySelectorAll('.scroll > table')].map(t => t.id)")
        assert {"runs_criteo_settings", "runs_criteo_skipped", "runs_criteo_layers"} <= set(slugs)
        for slug in slugs:
            rows = list(csv.reader(io.StringIO(copied(shown, slug, "CSV"))))
            assert rows == full((folder / "tables" / f"{slug}.csv").read_text())
        for slug in ("runs_criteo_skipped", "runs_criteo_cost"):  # no column of these is empty
            assert copied(shown, slug, "LaTeX") == (folder / "tables" / f"{slug}.tex").read_text()
            assert copied(shown, slug, "Markdown") in (folder / "tables" / f"{slug}.md").read_text()


def test_without_scripts_the_tables_are_there(chromium, every_kind, tmp_path):
    page = tmp_path / "no_script.html"
    page.write_text(re.sub(r"<script>.*?</script>", "", every_kind.read_text(), flags=re.DOTALL))
    with opened(chromium, page, 400) as shown:
        assert shown.page.locator(".tools").count() == 0
        assert shown.page.locator("#runs_criteo_settings tbody tr").count() > 3


def plane(shown):
    shown.wait_for_figures()
    return shown.page.locator("#figure_runs_criteo_plane")


def fits(figure):
    place, drawn = (figure.locator(what).bounding_box()["width"] for what in (".plot", "svg"))
    return place - 2 <= drawn <= place


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


def test_a_mark_says_what_it_is_the_legend_filters_and_a_figure_is_as_wide_as_its_place(chromium, every_kind):
    with opened(chromium, every_kind) as shown:
        figure, marks = plane(shown), shown.page.locator("#figure_runs_criteo_plane .mark-symbol.role-mark path")
        assert marks.count() == 5
        marks.first.hover()
        assert "test AUC: 0.7" in shown.page.locator("#plot_tip").inner_text()
        label = figure.locator(".role-legend-label text", has_text="sumkl 0.04")
        label.click()
        assert comes_true(shown, lambda: marks.count() == 1)
        label.click()
        assert comes_true(shown, lambda: marks.count() == 5)
        for width in (400, 700, 1280):
            shown.page.set_viewport_size({"width": width, "height": 800})
            assert comes_true(shown, lambda: fits(figure))
            legend, svg = (figure.locator(what).first.bounding_box() for what in (".role-legend", "svg"))
            assert legend["y"] + legend["height"] <= svg["y"] + svg["height"] + 4
        assert shown.complaints == []


def test_ctrl_and_the_wheel_zoom_and_a_double_click_goes_back(chromium, every_kind):
    with opened(chromium, every_kind) as shown:
        figure = plane(shown)
        figure.scroll_into_view_if_needed()
        ticks = figure.locator(".role-axis-label text")
        before, box = ticks.all_text_contents(), figure.locator("svg").bounding_box()
        middle = (box["x"] + box["width"] / 2, box["y"] + 150)
        shown.page.mouse.move(*middle)
        shown.page.keyboard.down("Control")
        shown.page.mouse.wheel(0, -400)
        shown.page.keyboard.up("Control")
        assert comes_true(shown, lambda: ticks.all_text_contents() != before)
        shown.page.mouse.dblclick(*middle)
        assert comes_true(shown, lambda: sorted(ticks.all_text_contents()) == sorted(before))
        assert shown.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_saved_is_light_whatever_the_page_is(chromium, every_kind, dark):
    with opened(chromium, every_kind, dark=dark) as shown:
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
