"""Tables in Parquet files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import types

from vflbench.data.files import FOLDER, KEY, Part, damaged, find_parts, open_regular, refusal
from vflbench.data.party_files import PartyFiles
from vflbench.data.readings import NUMBER, Plain
from vflbench.data.text import TextFormat, TextRows, names_error
from vflbench.errors import UserError, shown
from vflbench.options import options


@options
class Parquet(PartyFiles):
    """Parquet files; the user names the label column and each party's columns.

    Integers, floating-point numbers and decimals are numeric. Dates and times become numbers (days since the first, month,
    weekday, hour), and so do texts that stand for dates or amounts. Other texts, booleans, dictionaries and times of day are
    categories, by their text. `types` overrides this. A column that tells every row apart, such as a customer's number, is
    left out, and a line says so. A missing value (null, and NaN) is 0 in a numeric column, beside which a column says where
    (`missing_as`), and a category of its own in a categorical one. Classes are the label's values, as in `dataset=csv`.

    path: a file; a folder, whose files NAME.parquet, in it and below it, are read by name; a pattern; or several. Files have
    the same columns, and rows follow one another; with `id`, files of other columns are joined. Folders KEY=VALUE above the
    files, as parted tables are written, are columns of texts.
    """

    def find(self, path: str | Sequence[str]) -> list[Part]:
        parts = find_parts([file for word in ([path] if isinstance(path, str) else path) for file in _below(word)])
        schemas = [_schema(part) for part in parts]
        for part, schema in zip(parts, schemas, strict=True):
            if schema.names == schemas[0].names:
                with damaged(part):
                    pa.unify_schemas([schemas[0], schema], promote_options="permissive")
        return parts

    def layout(self, part: Part, wanted: Sequence[str]) -> TextFormat:
        names = _schema(part).names
        columns = (*names, *(key for key in _keys(part) if key not in names))
        problem = names_error(columns)
        if problem:
            raise part.error(problem.replace("the header names", "it names"))
        return TextFormat(columns=columns, binary_label=False, typed=True)

    def blocks(self, part: Part, stream: Any, form: TextFormat) -> Iterator[TextRows]:
        """The rows of a file: float64 where numbers are meant, texts elsewhere; null where missing."""
        names, at = [name for name in form.columns if name not in form.ignored], 1
        with damaged(part):
            file, keys = ds.dataset(part.file, format="parquet"), _keys(part)
            held = [name for name in names if name in file.schema.names]
            for batch in file.to_batches(columns=held, use_threads=False):
                batch.validate(full=True)
                held_columns = {name: batch[name] if name in held else _repeated(keys[name], len(batch)) for name in names}
                columns = {name: self._column(column, name, part, form) for name, column in held_columns.items()}
                yield TextRows(pa.table(columns), np.arange(at, at + len(batch)), [])
                at += len(batch)

    def _column(self, column: pa.Array, name: str, part: Part, form: TextFormat) -> pa.Array:
        kind, wanted, reading = column.type, (self.types or {}).get(name), form.readings.get(name)
        is_coded = types.is_dictionary(kind)
        kind = kind.value_type if is_coded else kind
        is_whole, is_text = types.is_integer(kind), types.is_string(kind) or types.is_large_string(kind)
        if name == (form.id or None) and not (is_whole or is_text):
            what = f"column {shown(name, 60)} is of type {shown(kind, 60)}; identifiers are texts or whole numbers"
            raise part.error(what)
        is_number = is_whole or types.is_floating(kind) or types.is_decimal(kind) or (types.is_null(kind) and not is_coded)
        if not (is_number or is_text or types.is_boolean(kind) or types.is_temporal(kind)):
            problem = f"column {shown(name, 60)} is of type {shown(kind, 60)}, which is no number and no text"
            raise part.error(f"{problem}; leave it out with dataset.types={{{shown(name, 60)}: ignore}}")
        plain = column.cast(kind) if is_coded else column
        plain = plain.cast(pa.int8()) if types.is_boolean(kind) and wanted == "numeric" else plain
        meant = wanted == "numeric" or (is_number and not is_coded and wanted is None)
        if reading == NUMBER and meant and not is_text:
            numbers = plain.cast(pa.float64(), safe=False)
            return pc.if_else(pc.is_nan(numbers), None, numbers)
        texts = plain.cast(pa.string())
        texts = pc.if_else(pc.equal(texts, ""), None, texts)
        return texts if isinstance(reading, Plain) else texts.dictionary_encode()


def _schema(part: Part) -> pa.Schema:
    """Column -> type; of a dictionary, that of its values."""
    with open_regular(part.file) as stream, damaged(part):
        if stream.read(4) != b"PAR1":
            raise part.error("it is no Parquet file; a table of text is read with dataset=csv")
        schema = ds.dataset(part.file, format="parquet").schema
        return pa.schema([(one.name, one.type.value_type if types.is_dictionary(one.type) else one.type) for one in schema])


def _keys(part: Part) -> dict[str, str | None]:
    """The folders KEY=VALUE above a file; None where the value is missing."""
    pairs = [name.split("=", 1) for name in part.file.parent.parts if "=" in name]
    return {unquote(key): None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for key, value in pairs}


def _repeated(text: str | None, rows: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.repeat(0, rows)).dictionary_encode()


def _below(word: str) -> list[str]:
    """The files NAME.parquet of a folder and of the folders in it, by name, without what is hidden or begins with _, as
    written aside; anything else as it is. Raises UserError for a folder without such files.
    """
    folder = Path(os.path.expanduser(word))
    if refusal(folder) != FOLDER:
        return [word]
    below = sorted(folder.rglob("*.parquet"))
    paths = [str(file) for file in below if not any(name[0] in "._" for name in file.relative_to(folder).parts)]
    if not paths:
        problem = "the folder holds no files NAME.parquet, in it or in the folders below it"
        raise UserError(problem, key=KEY, value=word)
    return paths
