"""The line of a label that is most likely damage."""

from collections.abc import Sequence

from vflbench.data.blocks import open_parts, read_blocks
from vflbench.data.files import Part
from vflbench.data.labels import StrayLabelError
from vflbench.data.parse import with_columns
from vflbench.data.text import TextFormat, fields_of, numbered_lines
from vflbench.errors import UserError


def stray_label(error: StrayLabelError, parts: Sequence[Part], form: TextFormat) -> UserError:
    """The error that names the part and the line. Reads the texts once more."""
    label = error.label.encode()
    for opened in open_parts(parts):
        for names, block in with_columns(
            map(form.clean, read_blocks(opened, quotes=form.multiline, encoding=form.encoding)), form
        ):
            if label not in block.data:
                continue
            for line, content, _ in numbered_lines(block, form.delimiter, multiline=form.multiline):
                fields = fields_of(content, form.delimiter, quotes=form.quoted) or []
                if len(fields) == len(names) and fields[names.index(form.label)].strip() == label:
                    return UserError(f"line {line}: {error}", key="dataset.path", value=str(opened.part))
    return UserError(str(error), key="dataset.path", value=str(parts[0]))
