"""Datasets read from text files through the cache of prepared tables."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.cache import Prepared, Request, prepare_table
from vflbench.data.files import Part, find_parts
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat, TextRows, texts
from vflbench.options import Range, options

_OURS = __name__.partition(".")[0]
_LATER = {*vars(Dataset()), "path", "party_files", "members", "bad_rows", "max_bad_fraction", "test_day"}
"""Options that say which files and rows are read, or what is done with the prepared table."""


@options
class FileDataset(Dataset):
    """Rows of files, prepared once and kept in the cache.

    path: a file, a pattern such as 'day_*.gz', or several; plain, .gz, .zst, .bz2 or .xz.
    bad_rows: `error` stops at the first row that can't be read, `skip` leaves such rows out and counts them.
    max_bad_fraction: largest share of bad rows that `skip` accepts.

    A subclass overrides `text_format` and, where it differs, the rest.
    """

    path: str | list[str]
    bad_rows: Literal["error", "skip"] = "error"
    max_bad_fraction: Annotated[float, Range(1e-9, 1.0, zero=True)] = 0.01

    def find(self, path: str | Sequence[str]) -> list[Part]:
        """The files that a path names."""
        return find_parts(path, getattr(self, "members", None))

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The layout of the files."""
        raise NotImplementedError

    def blocks(self, part: Part, stream: Any, form: TextFormat) -> Iterator[TextRows]:
        """The rows of a file, block by block."""
        return texts(part, stream, form)

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        """Names of the classes in order, and the class of each label. labels: each label and its rows, sorted as texts."""
        return ["0", "1"], np.array([int(text) for text in labels])

    def prepare(self) -> Prepared:
        """The prepared table, from the cache or made now."""
        parts = self.find(self.path)
        return prepare_table(Request(self, parts, lambda: self.text_format(parts), self.rows))

    def table_options(self) -> dict[str, Any]:
        """All that a prepared table depends on beside its files and their rows."""
        read = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _LATER}
        return {"dataset": type(self).__name__, **_foreign_code(type(self)), **read}

    def described(self) -> list[str]:
        """A line on the prepared table, which is made if it isn't there."""
        return [self.prepare().line()]

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        prepared = self.prepare()
        return prepared.table, {**prepared.facts, "notes": prepared.notes()}


def _foreign_code(cls: type) -> dict[str, str]:
    """A digest of the code of a class that isn't ours: a table that a former version of it prepared is not its table.

    The loader of a plug-in's module knows that of its folder; else it is that of the files of the class and its bases.
    """
    modules = {base.__module__: sys.modules.get(base.__module__) for base in cls.__mro__}
    foreign = [module for name, module in modules.items() if name.partition(".")[0] not in (_OURS, "builtins")]
    files = [Path(file) for module in foreign if (file := getattr(module, "__file__", None))]
    codes = [getattr(getattr(module, "__loader__", None), "code", "") for module in foreign]
    content = [*(code.encode() for code in codes), *(file.read_bytes() for file in files)]
    return {"code": hashlib.sha256(b" ".join(content)).hexdigest()} if foreign else {}
