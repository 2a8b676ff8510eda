"""Datasets read from text files through the cache of prepared tables."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from tqdm import tqdm

from vflbench.data.base import Dataset
from vflbench.data.cache import Prepared, Request, prepare
from vflbench.data.files import Part, find_parts
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat
from vflbench.options import Range, options

_OURS = __name__.partition(".")[0]


@options
class FileDataset(Dataset):
    """Rows of text files, prepared once and kept in the cache.

    path: a file, a pattern such as 'day_*.gz', or several; plain, .gz, .zst, .bz2 or .xz.
    members: for a .zip or .tar archive, the files in it to read, patterns allowed; null if it holds just one.
    bad_rows: `error` stops at the first line that can't be read, `skip` leaves such lines out and counts them.
    max_bad_fraction: largest share of bad rows that `skip` accepts.

    A subclass overrides `text_format` and, where it differs, the rest.
    """

    path: str | list[str]
    members: list[str] | None = None
    bad_rows: Literal["error", "skip"] = "error"
    max_bad_fraction: Annotated[float, Range(1e-9, 1.0, zero=True)] = 0.01

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The layout of the texts."""
        raise NotImplementedError

    def layout_options(self) -> dict[str, Any]:
        """The options that a prepared table depends on."""
        return {}

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        """Names of the classes in order, and the class of each label. labels: each label and its rows, sorted as texts."""
        return ["0", "1"], np.array([int(text) for text in labels])

    def prepare(self) -> Prepared:
        """The prepared table, from the cache or made now."""
        parts = find_parts(self.path, self.members)
        request = Request(
            parts=parts,
            form=lambda: self.text_format(parts),
            classes=self.classes,
            options={"dataset": type(self).__name__, **_foreign_code(type(self)), **self.layout_options()},
            rows=self.rows,
            skip=self.bad_rows == "skip",
            max_bad_fraction=self.max_bad_fraction,
        )
        return prepare(request)

    def described(self) -> list[str]:
        """A line on the prepared table, which is made if it isn't there."""
        return [self.prepare().line()]

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        prepared = self.prepare()
        if prepared.made:
            note = f"an encoded copy of the table is kept in {prepared.folder}; vflbench prepare --clear deletes all copies"
            tqdm.write(note, file=sys.stderr)
        facts = dict(prepared.facts)
        if "bad_rows" in facts:
            bad = facts["bad_rows"]
            more = "; ..." if bad["count"] > len(bad["first"]) else ""
            facts["notes"] = [f"bad rows left out: {bad['count']:,} ({'; '.join(bad['first'])}{more})"]
        return prepared.table, facts


def _foreign_code(cls: type) -> dict[str, str]:
    """A digest of the code of a class that isn't ours: a table that a former version of it prepared is not its table.

    The loader of a plug-in's module knows that of its folder; else it is that of the files of the class and its bases.
    """
    names = dict.fromkeys(base.__module__ for base in cls.__mro__)
    foreign = [sys.modules.get(name) for name in names if name.partition(".")[0] not in (_OURS, *sys.stdlib_module_names)]
    modules = [module for module in foreign if module is not None and getattr(module, "__file__", None)]
    if not modules:
        return {}
    known = [getattr(getattr(module, "__loader__", None), "code", "") for module in modules]
    files = [Path(str(module.__file__)) for module in modules]
    digests = [code or hashlib.sha256(file.read_bytes()).hexdigest() for file, code in zip(files, known, strict=True)]
    return {"code": hashlib.sha256(" ".join(digests).encode()).hexdigest()}
