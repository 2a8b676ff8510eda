"""The documentation site: it builds without a warning, loads nothing from a network, and its computed pages are right."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from pages import copies, notebooks
from pages.classes import Option, allowed, comments_in, option_table
from pages.docstrings import read_docstring
from pages.links import rewritten
from support import browser_pages

from vflbench.options import Fraction, Rows

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SAID = {"attack": "Threat model", "defense": "Who applies it"}
"""Of what the page of a choice tells."""


def test_each_option_and_argument_is_explained_in_a_paragraph_of_its_own_with_its_name_as_code():
    text = "What it does.\n\nHow, with x_i.\nsteps: of the descent,\nwhich is long.\nlr: of each step."
    body = read_docstring(text, names=("steps", "lr")).body
    assert body.split("\n\n") == ["How, with x\\_i.", "`steps`: of the descent,\nwhich is long.", "`lr`: of each step."]
    text = "What it is.\n\nArgs:\n    ids: (n,) names,\n        in [0, 1].\n    rng: its own.\n\nMore."
    args = ["Args:", r"`ids`: (n,) names, in \[0, 1\].", "`rng`: its own.", "More."]
    assert read_docstring(text).body.split("\n\n") == args


def test_formulas_become_blocks_and_signs_of_markdown_are_escaped():
    text = (
        "Score * rows.\n\n    r_i = |g_i|_2\n\ntop: of <all>, as in docs/experiments/matrix.md.\nrank: `auto` or [a number]."
    )
    read = read_docstring(f"{text}\n\nSource: A *paper*.\n", names=("top", "rank"))
    assert (read.first, read.source) == (r"Score \* rows.", r"A \*paper\*.")
    assert "```text\nr_i = |g_i|_2\n```" in read.body
    assert r"`top`: of \<all\>, as in [docs/experiments/matrix.md](../experiments/matrix.md)." in read.body
    assert r"`rank`: `auto` or \[a number\]." in read.body


def test_what_an_option_takes_is_said_in_words():
    assert allowed(Rows) == "a whole number from 1 to 10,000,000,000"
    assert allowed(Fraction | None) == "a number from 1e-9 to 0.999999999 or `null`"
    table = option_table((Option("path", "'???'", "text", "a file"),))
    assert "| `path` | none: you must give it | text | a file |" in table
    assert dict(comments_in("a:\n  lr: 0.1 # a step\n  path: 'x#y'\n")) == {"lr": "a step"}


def test_links_to_other_files_lead_to_pages_of_the_site():
    outside = rewritten("[a](../../SECURITY.md#x) [b](../../README.md#y)", "howto/reports")
    assert outside == "[a](../added/security.md#x) [b](../index.md)"
    assert rewritten("[a](../examples/attack/loudest.py)", "howto/extend") == "[a](../added/example_attack.md)"
    assert rewritten("[a](matrix.md#x) [b](https://x.org/a)", "experiments/x") == "[a](matrix.md#x) [b](https://x.org/a)"
    assert copies.moved("[a](docs/faq.md#x)", ROOT, "docs/added") == "[a](../faq.md#x)"


def test_a_saved_figure_of_a_notebook_is_on_its_page(tmp_path):
    outputs = [{"text": ["a\n"]}, {"data": {"image/png": "iVBO\n", "text/plain": ['a "b"']}}]
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]}]
    cells += [{"cell_type": "code", "source": ["1"], "outputs": outputs}]
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    text = notebooks.page(tmp_path / "x.ipynb")
    assert text.startswith("# Title\n\nThis page is a notebook: {download}`x.ipynb`.\n\nText.")
    assert "```text\na\n```" in text
    assert '<img alt="a \'b\'" src="data:image/png;base64,iVBO">' in text


SEEN = ["index", "howto/run", "attacks/norm", "defenses/dcor", "api/index", "options/dataset", "experiments/matrix"]
SEEN += ["notebooks/compare_defenses"]


@pytest.mark.slow
def test_the_site(tmp_path, chromium):
    """One test, as the site takes a quarter of a minute to build."""
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", str(DOCS), str(tmp_path)]
    built = subprocess.run(words, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages_load_nothing_from_a_network_and_name_all(tmp_path)
    every_choice_has_a_page(tmp_path)
    search_needs_no_server(tmp_path, chromium)
    for width, dark in ((1280, False), (400, True)):
        pages_fit_their_screen_and_are_accessible(tmp_path, chromium, width, dark)


NOT_LOADED = {"index", "search", "next", "prev", "canonical", "license"}
"""Relations of <link> that a browser doesn't load."""
ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


def pages_load_nothing_from_a_network_and_name_all(site: Path) -> None:
    """Scripts, styles, pictures, fonts and frames are files of the site or data in the page; links may lead anywhere."""
    styles = [file.read_text("utf-8") for file in site.rglob("*.css")]
    for file in site.rglob("*.html"):
        page = BeautifulSoup(file.read_text("utf-8"), "html.parser")
        loaded = [tag.get(name, "") for tag in page(True) for name in ("src", "srcset", "poster", "data", "xlink:href")]
        loaded += [tag.get("href", "") for tag in page(["link", "use"]) if not set(tag.get("rel", ["use"])) <= NOT_LOADED]
        assert [address for address in loaded if ELSEWHERE.match(address)] == [], file.name
        styles += [tag["style"] for tag in page(style=True)]
        assert [picture for picture in page("img") if not picture.has_attr("alt")] == [], file.name
        assert len(page("h1")) == 1, file.name
    urls = re.findall(r"(?:url\(\s*['\"]?|@import\s+['\"])([^'\")\s]+)", "\n".join(styles))
    assert urls
    assert [url for url in urls if ELSEWHERE.match(url)] == []


def every_choice_has_a_page(site: Path) -> None:
    for group, said in SAID.items():
        for name in {file.stem for file in (ROOT / "configs" / group).glob("*.yaml")} - {"none", "strongest"}:
            assert said in (site / f"{group}s" / f"{name}.html").read_text()
    assert re.search(r'href="../attacks/norm.html"><code[^>]*>', (site / "reference" / "attacks.html").read_text())


def pages_fit_their_screen_and_are_accessible(site: Path, chromium, width: int, dark: bool) -> None:
    for name in SEEN:
        with browser_pages.opened(chromium, site / f"{name}.html", width, dark=dark) as shown:
            assert shown.complaints == [], name
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert shown.small_type() == {}, name
            if name == "howto/run":
                assert shown.page.evaluate(_OUT_OF_SIGHT) == [], name
            assert shown.axe() == [], name


_OUT_OF_SIGHT = """
[...document.querySelectorAll('table.is-stacked td')].filter(cell => cell.getBoundingClientRect().right > innerWidth)
  .map(cell => cell.textContent)
"""


def search_needs_no_server(site: Path, chromium) -> None:
    with browser_pages.opened(chromium, site / "search.html") as shown:
        shown.page.goto((site / "search.html").as_uri() + "?q=marvell")
        for place in ("defenses/marvell.html", "experiments/matrix.html"):  # results appear one after the other
            shown.page.wait_for_selector(f"#search-results li a[href^='{place}']")
