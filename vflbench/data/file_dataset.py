"""Datasets that are read from text files, by way of the cache."""

from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from vflbench.data.base import Dataset
from vflbench.data.encode import RawTable
from vflbench.data.files import Part, find_parts
from vflbench.data.prepare import Prepared, prepare
from vflbench.data.streaming import Request
from vflbench.data.text import TextFormat
from vflbench.options import options


@options
class FileDataset(Dataset):
    """Rows of text files, prepared once and kept in the cache.

    path: a file, a pattern such as 'day_*.gz', or several; plain, .gz, .zst, .bz2 or .xz. members: of a .zip or .tar
    archive, the files in it, patterns allowed (null: it holds just one).
    bad_rows: `error` ends with the first line that can't be read, `skip` leaves such lines out and counts them.
    max_bad_fraction: with `skip`, the largest share of bad rows that is put up with.

    A subclass overrides `text_format`, and what else differs.
    """

    path: str | list[str]
    members: list[str] | None = None
    bad_rows: Literal["error", "skip"] = "error"
    max_bad_fraction: Annotated[float, Field(ge=0, le=1)] = 0.01

    def text_format(self, parts: list[Part]) -> TextFormat:
        """How the texts are laid out."""
        raise NotImplementedError

    def layout_options(self) -> dict[str, Any]:
        """The options that a prepared table depends on."""
        return {}

    def classes(self, labels: list[str], rows: int) -> tuple[list[str], np.ndarray]:
        """The classes in their order, and the class of each label. labels: all that there are, by alphabet."""
        return ["0", "1"], np.array([int(text) for text in labels])

    def prepare(self) -> Prepared:
        """The table in the cache, made if it is not there."""
        parts = find_parts(self.path, self.members)
        request = Request(
            parts=parts,
            form=lambda: self.text_format(parts),
            classes=self.classes,
            options={"dataset": type(self).__name__, **self.layout_options()},
            rows=self.rows,
            skip=self.bad_rows == "skip",
            max_bad_fraction=self.max_bad_fraction,
        )
        return prepare(request)

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        found = self.prepare()
        facts = dict(found.facts)
        if "bad_rows" in facts:
            bad = facts["bad_rows"]
            more = "; ..." if bad["count"] > len(bad["first"]) else ""
            facts["notes"] = [f"bad rows left out: {bad['count']:,} ({'; '.join(bad['first'])}{more})"]
        return found.table, facts
