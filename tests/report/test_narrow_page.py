"""A report's page at 400 pixels in Chromium: names and numbers are in sight together, and headings don't overlap."""

import pytest
from support.browser_pages import opened
from support.outputs_tree import leak, write_run

from vflbench.report.page import Wishes, write_report

pytestmark = pytest.mark.slow
ATTACKS = ("norm", "direct", "spectral", "residual", "posterior", "completion_both", "hidden_subset_sum")
THREAT = {"role": "non-label party", "knows": ["gradients"], "known_rows": 0, "text": "An attacker.", "does": "`x` scores."}
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


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("narrow")
    threats = dict.fromkeys(ATTACKS, THREAT)
    for mu in (0.5, 1, 10, 100):
        defense = {"label_gdp": {"_target_": "vflbench.defenses.label_gdp.LabelGdp", "mu": mu}}
        leaks = [leak(name, "f2", 0.6 + 0.05 * place) for place, name in enumerate(ATTACKS)]
        write_run(root / f"mu{mu}", defense=defense, leaks=leaks, facts={"threats": threats})
    return write_report([root], root / "report", Wishes(formats=(), by=("defense.label_gdp.mu",)))


@pytest.mark.parametrize("width", [400, 1280])
def test_no_heading_lies_over_its_neighbour(chromium, page, width):
    with opened(chromium, page, width) as shown:
        assert shown.page.evaluate(OVERLAPS) == []


def test_a_narrow_heat_map_is_a_table_whose_names_stay_in_sight(chromium, page):
    with opened(chromium, page, 400) as shown:
        shown.wait_for_figures()
        seen = shown.page.evaluate(IN_SIGHT)
        assert seen[0] == "label_gdp, mu 0.5"
        assert len(seen) >= 6
        assert {"0.60", "0.65", "0.70"} <= set(seen)
        shown.page.evaluate("document.querySelector('.plot.is-narrow').scrollLeft = 150")
        later = shown.page.evaluate(IN_SIGHT)
        assert later[0] == seen[0]
        assert {"0.90"} <= set(later) - set(seen)
        assert shown.page.locator(".plot.is-narrow svg:visible").count() == 0
        assert shown.too_wide() == []
        assert shown.small_type() == {}
        assert shown.complaints == []


def test_a_wide_page_and_print_keep_the_figure(chromium, page):
    with opened(chromium, page, 1280) as shown:
        shown.wait_for_figures()
        assert shown.page.locator("table.heat").count() == 1
        assert shown.page.locator("table.heat:visible").count() == 0
        assert shown.page.locator("#figure_runs_criteo_matrix svg:visible").count() == 1
    with opened(chromium, page, 400) as shown:
        shown.wait_for_figures()
        shown.page.emulate_media(media="print")
        assert shown.page.locator("table.heat:visible").count() == 0
        assert shown.page.locator("#figure_runs_criteo_matrix svg:visible").count() == 1


def test_code_in_a_threat_is_code(chromium, page):
    with opened(chromium, page, 400) as shown:
        assert shown.page.locator("ul.threats code").first.inner_text() == "x"
        assert "`" not in shown.page.locator("ul.threats").inner_text()
