"""What a small screen needs of a page of the site: pictures that lead to themselves, and tables of options that stack."""

import re

_PICTURE = re.compile(r'<p><img alt="([^"]*)" src="((?!data:|[a-z]+:)[^"]+)"([^>]*)></p>')
_TABLE = re.compile(r'<table class="docutils align-default">\s*<thead>(.*?)</thead>\s*<tbody>.*?</table>', re.DOTALL)
_HEAD, _ROW = re.compile(r'<th class="head[^"]*"[^>]*>(.*?)</th>', re.DOTALL), re.compile(r"<tr class.*?</tr>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_STACKED = ("option", "meaning")
"""First and last heading of tables whose cells stand below each other on a small screen."""


def fitted(page: str) -> str:
    """Pictures are links to their files; a cell of a table of options knows its heading, which site.css shows there."""
    linked = _PICTURE.sub(r'<p><a class="picture" href="\2"><img alt="\1" src="\2"\3></a></p>', page)
    return _TABLE.sub(_stacked, linked)


def _stacked(table: re.Match[str]) -> str:
    heads = [_TAG.sub("", head).strip() for head in _HEAD.findall(table[1])]
    if not heads or (heads[0], heads[-1]) != _STACKED:
        return table[0]
    head, rows = table[0].split("<tbody>", 1)
    rows = _ROW.sub(lambda row: _labelled(row[0], heads), rows)
    return f"{head.replace('align-default', 'align-default is-stacked', 1)}<tbody>{rows}"


def _labelled(row: str, heads: list[str]) -> str:
    names = iter(heads)
    return re.sub(r"<td(?=[ >])", lambda _: f'<td data-head="{next(names)}"', row, count=len(heads))
