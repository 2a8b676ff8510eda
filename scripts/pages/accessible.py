"""What the theme leaves out for readers who use a keyboard or a screen reader, added to each page after the build."""

import re
from pathlib import Path

from pages.small_screens import fitted

CHANGES = (
    (re.compile(r'role="heading">'), 'role="heading" aria-level="2">'),
    (re.compile(r'<aside class="sidebar-drawer">'), '<aside class="sidebar-drawer" aria-label="All pages">'),
    (re.compile(r'<aside class="toc-drawer( [^"]*)?">'), r'<aside class="toc-drawer\1" aria-label="On this page">'),
    (re.compile(r"<pre>"), '<pre tabindex="0">'),  # it scrolls, so that the arrow keys must reach it
    (re.compile(r'<div class="table-wrapper([^"]*)">'), r'<div class="table-wrapper\1" tabindex="0">'),
    (re.compile(r'(?<!</h1>)<div id="search-results"'), '<h1>Search</h1><div id="search-results"'),
)


def mend(site: Path) -> None:
    """Change the pages of a built site. Doing it twice is the same."""
    for file in site.rglob("*.html"):
        text = file.read_text("utf-8")
        changed = mended(text)
        if changed != text:
            file.write_text(changed, encoding="utf-8")


def mended(page: str) -> str:
    for pattern, replacement in CHANGES:
        page = pattern.sub(replacement, page)
    return fitted(page)
