"""The folder of one party's table: arrays, and a description that holds their digests. Read as if another had made it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from vflbench.data.cache import ArrayWriter, DamagedStoreError, Mapped
from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.errors import UserError, printable
from vflbench.plain_files import in_a_line, open_plain, sync_folder, written_whole

ABOUT = "table.json"
_PIECE = 1 << 16  # rows written or checked at a time
_MOST = 1 << 28  # bytes of the description
_LABELLED = ("labels", "roles")
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_KINDS = {"numeric": np.float32, "categorical": np.int32, "labels": np.int32, "roles": np.uint8}


class _About(TypedDict):
    version: Literal[1]
    party: Annotated[str, Field(pattern=r"^[^\W\d]\w{0,199}$")]
    rows: Annotated[int, Field(ge=1, le=2**40)]
    numeric: list[str]
    categorical: list[str]
    cardinalities: list[Annotated[int, Field(ge=1, lt=2**31)]]
    sha256: dict[str, Sha256]


class _OfLabelParty(_About):
    classes: Annotated[int, Field(ge=2, le=2**31)]
    validation: bool
    fingerprint: Sha256
    facts: dict[str, Any]
    notes: list[str]


_KNOWN: dict[bool, TypeAdapter[Any]] = {False: TypeAdapter(_About), True: TypeAdapter(_OfLabelParty)}
_CLASS_ROWS = TypeAdapter(dict[str, Annotated[int, Field(ge=0)]])


class FolderWriter:
    """Writes the rows of one party, in order. Raises UserError where the folder is there already or can't be made."""

    def __init__(self, folder: Path, columns: Columns, *, labelled: bool):
        self.folder, self._columns, self._rows = folder, columns, 0
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise _unwritten(folder, error) from error
        widths = {"numeric": len(columns.numeric), "categorical": len(columns.categorical), "labels": None, "roles": None}
        names = [name for name in _KINDS if labelled or name not in _LABELLED]
        self._writers = {name: ArrayWriter(folder / name, np.dtype(_KINDS[name]), widths[name]) for name in names}

    def write(self, rows: int, places: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """The next rows: values of those at `places`, zeros in the others."""
        self._rows += rows
        try:
            for name, writer in self._writers.items():
                shape = (rows,) if writer.width is None else (rows, writer.width)
                whole = np.zeros(shape, writer.dtype)
                if writer.width != 0:
                    whole[places] = values[name]
                writer.write(whole)
        except OSError as error:
            raise _unwritten(self.folder, error) from error

    def finish(self, about: Mapping[str, Any]) -> None:
        """Write the description, without which the folder is no table."""
        columns = self._columns
        try:
            for writer in self._writers.values():
                writer.close()
            content = {
                "version": 1,
                **about,
                "rows": self._rows,
                "numeric": list(columns.numeric),
                "categorical": list(columns.categorical),
                "cardinalities": list(columns.cardinalities),
                "sha256": {name: writer.digest.hexdigest() for name, writer in self._writers.items()},
            }
            with written_whole(self.folder / ABOUT, "w", private=True) as file:
                json.dump(content, file, indent=1)
            sync_folder(self.folder.parent)
        except OSError as error:
            raise _unwritten(self.folder, error) from error


class FolderReader:
    """A folder whose description and arrays are all checked. Raises UserError, naming the file, where one is wrong."""

    def __init__(self, folder: Path, *, labelled: bool):
        self.folder = folder
        content = self._content()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        try:
            self.about: dict[str, Any] = json.loads(content)
            _KNOWN[labelled].validate_python(self.about, strict=True)
            self._check(labelled)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise self._wrong(ABOUT, f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise self._wrong(ABOUT, in_a_line(error, 200)) from error
        about = self.about
        self.party, self.rows = str(about["party"]), int(about["rows"])
        self.columns = Columns(*(tuple(about[name]) for name in ("numeric", "categorical", "cardinalities")))

    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, k) float32 in [0, 1], and (rows, c) int32 categories, mapped from the files."""
        sizes = np.array(self.columns.cardinalities, np.int64)
        numeric = self._array("numeric", len(self.columns.numeric), lambda x: bool(((x >= 0) & (x <= 1)).all()))
        categorical = self._array("categorical", len(sizes), lambda x: bool(((x >= 0) & (x < sizes)).all()))
        return numeric, categorical

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows,) int32 classes, and (rows,) uint8 what each row is for."""
        classes = self.about["classes"]
        labels = self._array("labels", None, lambda y: bool(((y >= 0) & (y < classes)).all()))
        return labels, self._array("roles", None, lambda role: bool((role <= 2 + self.about["validation"]).all()))

    def _content(self) -> bytes:
        try:
            with open_plain(self.folder / ABOUT) as stream:
                return stream.read(_MOST)
        except (OSError, ValueError) as error:
            raise self._wrong(ABOUT, in_a_line(error, 200)) from error

    def _check(self, labelled: bool) -> None:
        about = self.about
        if (about["party"] == LABEL_PARTY) != labelled:
            raise ValueError(f"it is the table of party {about['party']}")
        if len(about["cardinalities"]) != len(about["categorical"]):
            raise ValueError("its columns don't fit each other")
        names = about["numeric"] + about["categorical"]
        if len(set(names)) != len(names):
            raise ValueError("two columns have the same name")
        if set(about["sha256"]) != {name for name in _KINDS if labelled or name not in _LABELLED}:
            raise ValueError("sha256: it must name the arrays of the folder")
        if labelled:
            _CLASS_ROWS.validate_python(about["facts"].get("class_rows", {}), strict=True)
            about["notes"] = [printable(note) for note in about["notes"]]

    def _array(self, name: str, width: int | None, is_valid: Callable[[np.ndarray], bool]) -> np.ndarray:
        digest = hashlib.sha256()
        try:
            file = Mapped(self.folder / name, self.rows, np.dtype(_KINDS[name]).name, width)
            for start in range(0, self.rows, _PIECE):
                piece = file.array[start : start + _PIECE]
                if piece.size:
                    digest.update(piece)
                if not is_valid(piece):
                    raise DamagedStoreError(f"a value near row {start:,} is not one that it may hold")
                file.forget()
        except DamagedStoreError as error:
            raise self._wrong(name, str(error)) from error
        if digest.hexdigest() != self.about["sha256"][name]:
            raise self._wrong(name, "its content differs from the digest in table.json")
        return file.array

    def _wrong(self, name: str, reason: str) -> UserError:
        problem = f"the table of a party can't be read from this file: {reason}; write the party tables anew"
        return UserError(problem, key="party table", value=self.folder / name)


def _unwritten(folder: Path, error: OSError) -> UserError:
    if isinstance(error, FileExistsError):
        return UserError("there is such a folder already; name a new one", key="party table", value=folder)
    return UserError(f"it can't be written: {error.strerror or error}", key="party table", value=folder)
