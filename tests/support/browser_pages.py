"""A report's page in a real browser: opened at a width, light or dark, with all that it complains about."""

import io
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

AXE = Path(__file__).parents[1] / "browser" / "node_modules" / "axe-core" / "axe.min.js"
_TOO_WIDE = """
() => {
  const scrolls = e => e && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...document.querySelectorAll("body *")].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || box.left < -1) && !scrolls(e.parentElement);
  }).map(e => `${e.tagName} ${e.id} ${e.getAttribute("class") ?? ""}`);
}
"""
_SMALL_TYPE = """
() => {
  const found = {}, walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement;
    if (!node.textContent.trim() || e.closest("script,style") || !e.getClientRects().length) continue;
    const scale = e.ownerSVGElement ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1;
    const size = parseFloat(getComputedStyle(e).fontSize) * scale;
    if (size < LEAST) found[`${e.tagName} ${size.toFixed(1)}`] = node.textContent.trim().slice(0, 40);
  }
  return found;
}
"""
_DRAWN = "[...document.querySelectorAll('.plot')].every(p => !p.clientWidth || p.closest('figure.is-drawn'))"


@dataclass
class Opened:
    """page: Playwright's. complaints: errors, warnings of the policy and requests, as they come."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def wait_for_figures(self):
        """Until all that are visible are drawn. Playwright's own waiting evaluates text in the page, which forbids that."""
        for _ in range(1200):
            if self.page.evaluate(_DRAWN):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("figures are not drawn")

    def too_wide(self):
        """Elements that reach out of the window, but for what scrolls in its own frame."""
        return self.page.evaluate(_TOO_WIDE)

    def small_type(self, least=11):
        """Element and size in pixels of text below that -> its first words."""
        return self.page.evaluate(_SMALL_TYPE.replace("LEAST", str(least)))

    def screenshot(self):
        """The whole page: (height, width, 3)."""
        return np.asarray(Image.open(io.BytesIO(self.page.screenshot(full_page=True))).convert("RGB"))

    def axe(self):
        """What axe-core finds wrong: rule, how many elements, and the first of them."""
        if not AXE.exists():
            pytest.skip(f"no axe-core here: npm ci --prefix {AXE.parents[2]}")
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [f"{v['id']} ({len(v['nodes'])}): {v['help']}: {v['nodes'][0]['html'][:200]}" for v in found]


@contextmanager
def launched():
    """Chromium without windows, for `opened`: the system's or Playwright's own. Skips the test where there is neither."""
    sync = pytest.importorskip("playwright.sync_api", reason="no Playwright here: pip install 'vflbench[browser]'")
    with sync.sync_playwright() as playwright:
        file = shutil.which("chromium") or shutil.which("google-chrome") or playwright.chromium.executable_path
        if not Path(file).exists():
            pytest.skip("no Chromium here: apt-get install chromium, or playwright install chromium")
        browser = playwright.chromium.launch(executable_path=file, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser, file, width=1280, *, dark=False, height=800):
    """The file in a window of its own. What it asks of the network is a complaint."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True)
    made = Opened(context.new_page())
    made.page.on("console", lambda message: made.complaints.append(message.text))
    made.page.on("pageerror", lambda error: made.complaints.append(str(error)))
    made.page.on("request", lambda asked: made.complaints.append(asked.url) if asked.url.startswith("http") else None)
    try:
        made.page.goto(file.resolve().as_uri())
        yield made
    finally:
        context.close()
