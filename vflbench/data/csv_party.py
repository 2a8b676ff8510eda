"""One party's delimited file, read into memory with its identifiers."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from vflbench.data.arrow_columns import texts_of
from vflbench.data.blocks import open_parts, read_blocks
from vflbench.data.files import Part
from vflbench.data.labels import with_remedy
from vflbench.data.parse import BadRow, parse, with_columns
from vflbench.data.text import TextFormat, fields_of, numbered_lines
from vflbench.errors import UserError, shown

_LINES_SHOWN = 3


def read_table(part: Part, form: TextFormat, *, skip: bool) -> tuple[pa.Table, list[BadRow], dict[str, Any]]:
    """The rows of a file, the lines that were left out, and facts. Raises UserError at the first bad line without `skip`."""
    tables: list[pa.Table] = []
    bad: list[BadRow] = []
    digest = ""
    for opened in open_parts([part]):
        for columns, block in with_columns(
            map(form.clean, read_blocks(opened, quotes=form.multiline, encoding=form.encoding)), form
        ):
            parsed = parse(block, form, columns, first_bad=not skip)
            if parsed.bad and not skip:
                raise UserError(with_remedy(str(parsed.bad[0])), key="dataset.path", value=str(part))
            bad += parsed.bad
            tables.append(parsed.table)
        digest = opened.sha256()
    table = pa.concat_tables(tables) if tables else None
    if table is None or not len(table):
        raise UserError(f"the file holds no rows of {form.name}", key="dataset.path", value=str(part))
    return table, bad, {"path": str(part.file.resolve()), "file_sha256": digest}


def left_out_rows(party: str, bad: Sequence[BadRow], rows: int, most: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Facts and a line on bad rows, of so many good ones. most: the largest share. Raises UserError where they are more."""
    if not bad:
        return {}, ()
    first, share = [str(row) for row in bad[:5]], len(bad) / (rows + len(bad))
    if share > most:
        problem = f"{share:.2%} of the rows of party {party} are bad, more than allowed; the first: {'; '.join(first)}"
        raise UserError(problem, key="dataset.max_bad_fraction", value=most)
    note = f"bad rows of party {party} left out: {len(bad):,} ({'; '.join(first)}{'; ...' if len(bad) > 5 else ''})"
    return {"bad_rows": {"count": len(bad), "first": first}}, (note,)


def identifiers(table: pa.Table, column: str, part: Part, form: TextFormat) -> list[str]:
    """The texts of that column. Raises UserError, naming the lines, where one is missing or stands there twice."""
    ids: list[str | None] = texts_of(table[column]).to_pylist()
    if None in ids or "" in ids:
        lines = _lines_of(None, column, part, form)
        problem = f"line {lines[0] if lines else '?'}: the row has no identifier in column {shown(column, 60)}"
        words = ", ".join(word for word in form.missing if word)
        raise UserError(f"{problem} (empty{f', {words}' if words else ''})", key="dataset.path", value=str(part))
    seen: set[str | None] = set()
    for text in ids:
        if text in seen:
            places = ", ".join(map(str, _lines_of(text, column, part, form)[:_LINES_SHOWN]))
            problem = f"lines {places}: column {shown(column, 60)} has the identifier {shown(text, 60)!r} more than once"
            raise UserError(problem, key="dataset.path", value=str(part))
        seen.add(text)
    return [text for text in ids if text is not None]


def _lines_of(text: str | None, column: str, part: Part, form: TextFormat) -> list[int]:
    """The lines whose identifier is that text, or is missing. Reads the file once more."""
    wanted = {word.encode() for word in ([text] if text is not None else ["", *form.missing])}
    lines: list[int] = []
    for opened in open_parts([part]):
        for names, block in with_columns(
            map(form.clean, read_blocks(opened, quotes=form.multiline, encoding=form.encoding)), form
        ):
            for line, content, _ in numbered_lines(block, form.delimiter, multiline=form.multiline):
                fields = fields_of(content, form.delimiter, quotes=form.quoted) or []
                if len(fields) == len(names) and fields[list(names).index(column)] in wanted:
                    lines.append(line)
    return lines
