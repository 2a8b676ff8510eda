"""What a built site loads from a network, pages without one title, and pictures without a text: there must be none.

Scripts, styles, pictures, fonts and frames must be files of the site or data in the page. Links that a reader follows may
lead anywhere.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADING = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
}
"""Element -> attributes that a browser loads by itself."""
NOT_LOADED = {"index", "search", "next", "prev", "canonical", "license"}
"""Relations of <link> that a browser doesn't load."""
ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """found: what it would load from elsewhere. titles: its <h1> elements. unnamed: pictures without alternative text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.titles = 0
        self.unnamed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.titles += tag == "h1"
        if tag == "img" and "alt" not in values:
            self.unnamed.append(values.get("src", ""))
        if tag == "link" and set(values.get("rel", "").split()) <= NOT_LOADED:
            return
        loaded = [values[name] for name in LOADING.get(tag, ()) if name in values]
        self.found += [f"<{tag}> {value}" for value in loaded if ELSEWHERE.match(value)]
        self.found += [f"<{tag} style> {url}" for url in urls(values.get("style", ""))]


def urls(style: str) -> Iterator[str]:
    """What a style loads from elsewhere."""
    for match in re.finditer(r"(?:url\(\s*['\"]?|@import\s+['\"])([^'\")\s]+)", style):
        if ELSEWHERE.match(match[1]):
            yield match[1]


def findings(site: Path) -> Iterator[str]:
    """A line for each."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site}: there are no pages"
    for file in pages:
        page = Page()
        page.feed(file.read_text("utf-8"))
        name = file.relative_to(site)
        yield from (f"{name}: loads {what}" for what in page.found)
        yield from (f"{name}: a picture without alternative text: {src}" for src in page.unnamed)
        if page.titles != 1:
            yield f"{name}: {page.titles} first-level headings in place of one"
    for file in sorted(site.rglob("*.css")):
        yield from (f"{file.relative_to(site)}: loads {url}" for url in urls(file.read_text("utf-8")))
