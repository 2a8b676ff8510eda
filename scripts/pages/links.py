"""Links of the Markdown sources that read differently on the site: to files outside of docs, to folders, to choices."""

import posixpath
import re
from pathlib import PurePosixPath
from typing import Any

from pages.copies import PROJECT

OUTSIDE = {"../README.md": "index.md", **{f"../{file}": f"added/{name}.md" for file, name in PROJECT.items()}}
"""Path from docs -> page of the site."""
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_CHOICE = re.compile(r"(attack|defense)=(\w+)")


def rewritten(text: str, page: str) -> str:
    """The source of a page (its path below docs, without suffix), with links that lead to pages of the site."""
    folder = posixpath.dirname(page)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if target in OUTSIDE:  # the README's sections are spread over many pages
            anchor = "" if target == "../README.md" else match[3][:-1]
            return f"{match[1]}{posixpath.relpath(OUTSIDE[target], folder or '.')}{anchor})"
        parts = PurePosixPath(target).parts
        if parts[:1] == ("examples",):
            page_of = f"added/example_{parts[1]}.md" if len(parts) > 1 else "howto/extend.md"
            return f"{match[1]}{posixpath.relpath(page_of, folder or '.')})"
        return match[0]

    return _LINK.sub(link, text)


def setup_links(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", _read)
    app.connect("doctree-resolved", _link_choices)


def _read(_app: Any, page: str, content: list[str]) -> None:
    content[0] = rewritten(content[0], page)


def _link_choices(app: Any, doctree: Any, page: str) -> None:
    """`attack=NAME` in running text leads to the page of NAME; so does the first cell of a line of a table of choices."""
    from docutils import nodes

    for literal in list(doctree.findall(nodes.literal)):
        parents = _ancestors(literal)
        if any(isinstance(parent, nodes.reference | nodes.title) for parent in parents):
            continue
        choice = _CHOICE.fullmatch(literal.astext())
        group, name = choice.groups() if choice else (_table_of(page, parents), literal.astext())
        target = f"{group}s/{name}"
        if group and target in app.env.found_docs and target != page:
            uri = app.builder.get_relative_uri(page, target)
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=uri, internal=True))


def _ancestors(node: Any) -> list[Any]:
    ancestors = []
    while node.parent is not None:
        node = node.parent
        ancestors.append(node)
    return ancestors


def _table_of(page: str, parents: list[Any]) -> str:
    """`attack` or `defense` in the first column of the tables of reference/attacks and reference/defenses."""
    from docutils import nodes

    group = {"reference/attacks": "attack", "reference/defenses": "defense"}.get(page, "")
    entry = next((parent for parent in parents if isinstance(parent, nodes.entry)), None)
    return group if entry is not None and entry.parent.index(entry) == 0 else ""
