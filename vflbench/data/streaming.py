"""Texts -> the arrays of a prepared table, in one pass and in bounded memory, whatever the number of rows."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from vflbench.data import store
from vflbench.data.block_codes import BlockCodes, block_codes
from vflbench.data.blocks import Block, OpenPart, open_parts, read_blocks
from vflbench.data.files import Part
from vflbench.data.labels import StrayLabelError, with_remedy
from vflbench.data.parse import BadRow, Parsed, parse, with_columns
from vflbench.data.request import Request
from vflbench.data.spool import Spool
from vflbench.data.stray_labels import stray_label
from vflbench.data.table_writer import TableWriter
from vflbench.data.text import TextFormat
from vflbench.errors import UserError, shown

_WORKERS = min(4, os.cpu_count() or 1)
_BAD_ROWS_SHOWN = 5


class Preparation:
    """Prepares a table in two passes: over the texts, into numbers and a spool, and over the spool, into ids."""

    def __init__(self, request: Request, folder: Path):
        self.request, self.folder = request, folder
        self.rows = 0
        self.bad_count = 0
        self.bad_shown: list[str] = []
        self.hashes: list[str | None] = []
        self.text_digest = hashlib.sha256()
        self.writer = TableWriter(folder)

    def run(self) -> dict[str, Any]:
        """Prepare the table in the folder and return its schema."""
        form = self.request.form()
        spool = Spool(self.folder)
        try:
            for codes in self._blocks(form):
                self._count(codes)
                if codes.rows:
                    spool.add(codes)
                    self.writer.add_numbers(codes.numeric)
            if not self.rows:
                raise self._no_rows(form)
            self._check_bad_rows()
            return self._assemble(spool, form)
        finally:
            self.writer.abandon()
            spool.remove()

    def _blocks(self, form: TextFormat) -> Iterator[BlockCodes]:
        """All blocks as numbers, in order. A few are encoded at a time."""
        size = sum({part.file: part.file.stat().st_size for part in self.request.parts}.values())
        name = shown(self.request.parts[0].file.name) + (" ..." if len(self.request.parts) > 1 else "")
        before = 0
        current: Path | None = None
        with (
            ThreadPoolExecutor(_WORKERS) as pool,
            tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar,
        ):
            for opened in open_parts(self.request.parts):
                if current is not None and opened.part.file != current:
                    before += current.stat().st_size
                current = opened.part.file
                complete = yield from self._part(opened, form, pool, partial(_show_position, bar, before))
                self.hashes.append(opened.sha256() if complete else None)
                if not complete:
                    return

    def _part(
        self, opened: OpenPart, form: TextFormat, pool: ThreadPoolExecutor, show: Callable[[int], None]
    ) -> Generator[BlockCodes, None, bool]:
        """The blocks of one part. Returns whether the part was read to its end."""
        waiting: deque[Future[BlockCodes]] = deque()
        for columns, block in with_columns(
            map(form.clean, read_blocks(opened, quotes=form.multiline, encoding=form.encoding)), form
        ):
            show(opened.position())
            if self.request.rows is not None:  # with a limit, nothing after the last row may be parsed
                codes = self._parse(block, form, columns, self.request.rows - self.rows)
                self.text_digest.update(block.data)
                yield codes
                if self.rows >= self.request.rows:
                    return False
                continue
            waiting.append(pool.submit(self._parse, block, form, columns, None))
            if len(waiting) > _WORKERS + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        return True

    def _parse(self, block: Block, form: TextFormat, columns: Sequence[str], limit: int | None) -> BlockCodes:
        parsed = parse(block, form, columns, limit, first_bad=not self.request.skip)
        if parsed.bad and not self.request.skip:
            raise UserError(with_remedy(str(parsed.bad[0])), key="dataset.path", value=str(block.part))
        several = len(self.request.parts) > 1
        bad = tuple(BadRow(b.line, b.problem + (f" ({shown(block.part, 200)})" if several else "")) for b in parsed.bad)
        return block_codes(Parsed(parsed.table, bad), form.label)

    def _count(self, codes: BlockCodes) -> None:
        self.rows += codes.rows
        self.bad_count += len(codes.bad)
        self.bad_shown += map(str, codes.bad[: _BAD_ROWS_SHOWN - len(self.bad_shown)])

    def _check_bad_rows(self) -> None:
        allowed = self.request.max_bad_fraction
        if self.bad_count > allowed * (self.rows + self.bad_count):
            share = self.bad_count / (self.rows + self.bad_count)
            problem = (
                f"{self.bad_count:,} of {self.rows + self.bad_count:,} rows are bad ({share:.2%}), more than allowed; "
                f"the first: {'; '.join(self.bad_shown)}"
            )
            raise UserError(problem, key="dataset.max_bad_fraction", value=allowed)

    def _no_rows(self, form: TextFormat) -> UserError:
        where = str(self.request.parts[0]) if len(self.request.parts) == 1 else [str(p) for p in self.request.parts]
        if self.bad_count:
            problem = f"all {self.bad_count:,} rows are bad; the first: {'; '.join(self.bad_shown)}"
        elif len(self.request.parts) == 1 and not next(_first_bytes(self.request.parts), b""):
            problem = f"the file is empty; {form.name} was expected"
        else:
            problem = f"the file holds no rows of {form.name}"
        return UserError(problem, key="dataset.path", value=where)

    def _assemble(self, spool: Spool, form: TextFormat) -> dict[str, Any]:
        """The second pass: spool -> table."""
        counts, labels = spool.unify()
        try:
            classes, class_of = self.request.classes(labels, self.rows)
        except StrayLabelError as error:
            raise stray_label(error, self.request.parts, form) from error
        class_sizes = np.bincount(class_of, list(labels.values()), len(classes)).astype(int).tolist()
        self.writer.add_ids(spool, len(classes), class_of)
        schema = {
            "rows": self.rows,
            "names": [name for name, _ in spool.names],
            "numeric_names": spool.numeric,
            "categorical_names": spool.categorical,
            "sizes": [len(count) for count in counts],
            "classes": max(2, len(classes)),
            "low": self.writer.low.tolist(),
            "high": self.writer.high.tolist(),
            "options": self.request.options_key(),
            "raw_bytes": sum(part.file.stat().st_size for part in self.request.parts),
            "facts": self._facts(form, classes, class_sizes),
        }
        values = [schema[key] for key in ("names", "numeric_names", "sizes", "classes")]
        values += [writer.digest.hexdigest() for writer in self.writer.writers.values()]
        schema["fingerprint"] = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        content = self.hashes if None not in self.hashes else [self.text_digest.hexdigest()]
        schema["key"] = hashlib.sha256(json.dumps([content, schema["options"]]).encode()).hexdigest()[:32]
        joined = np.concatenate(counts) if counts else np.zeros(0, np.int64)
        store.write_schema(self.folder, self.writer.writers, joined, schema)
        return schema

    def _facts(self, form: TextFormat, classes: list[str], rows: list[int]) -> dict[str, Any]:
        facts: dict[str, Any] = {"file_sha256": self.hashes, "class_rows": dict(zip(classes, rows, strict=False))}
        if classes != ["0", "1"]:
            facts["classes_are"] = classes
        if form.read_as:
            facts["read_as"] = dict(form.read_as)
        if self.bad_count:
            facts["bad_rows"] = {"count": self.bad_count, "first": self.bad_shown}
        return facts


def _show_position(bar: Any, before: int, position: int) -> None:
    """Set a progress bar to a position in the current file. before: bytes in the files before it."""
    bar.update(before + position - bar.n)


def _first_bytes(parts: Sequence[Part]) -> Iterator[bytes]:
    """The first byte of each part, empty for an empty part."""
    for opened in open_parts(parts):
        yield opened.text.read(1)
