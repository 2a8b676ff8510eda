"""The files of CIFAR-10 and CIFAR-100: in a folder or an archive, in the binary version or that of Python."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data.archives import member_names, read_errors
from vflbench.data.blocks import OpenPart, open_parts
from vflbench.data.files import Part, listed
from vflbench.data.labels import label_problem
from vflbench.data.opening import KEY, check_folder, kind_of, open_regular
from vflbench.data.pickled_arrays import PickleError, text_of
from vflbench.data.plain_pickle import read_plain
from vflbench.errors import UserError, shown

SIDE, CHANNELS = 32, 3
VALUES = SIDE * SIDE * CHANNELS
_MOST_BYTES = 1 << 29  # of one file; the largest, of 50,000 pictures, has 155 MB
_MOST_OF_NAMES = 1 << 20
_PIECE = 1 << 22


@dataclass(frozen=True)
class Version:
    """One of the two versions of a data set.

    pictures: names of its files with pictures, those for training in order, then that for testing.
    label_bytes, label: how many bytes of labels come before a picture, and which of them counts; of the Python version none.
    key: the labels in a pickle; of the binary version empty.
    names, names_key: the file with the names of the classes, and in a pickle their key.
    """

    pictures: tuple[str, ...]
    names: str
    label_bytes: int = 0
    label: int = 0
    key: str = ""
    names_key: str = ""


def find_version(path: str, versions: Sequence[Version], published: Sequence[str]) -> tuple[Version, dict[str, Part]]:
    """The first version of which a file with pictures is there, and its files by name.

    path: a folder, an archive, or a folder with one of those of the `published` names. Raises UserError if there is none.
    """
    files = _archived(Path(path)) if kind_of(path) is None else _in_folder(path, published)
    for version in versions:
        there = {name: files[name] for name in (*version.pictures, version.names) if name in files}
        if any(name in there for name in version.pictures):
            return version, there
    wanted = [name for version in versions for name in (version.pictures[0], version.pictures[-1])]
    problem = f"it holds no file with pictures, such as {listed(wanted)}; name the folder that the archive unpacks to"
    raise UserError(problem, key=KEY, value=path)


def _in_folder(path: str, published: Sequence[str]) -> dict[str, Part]:
    check_folder(path)
    folder = Path(path)
    for name in published:
        kind = kind_of(folder / name)
        if kind is None:
            return _archived(folder / name)
        if kind == "a folder":
            folder /= name
            check_folder(folder)
            break
    return {file.name: Part(file) for file in folder.iterdir()}


def _archived(file: Path) -> dict[str, Part]:
    """The members of an archive by the last part of their names."""
    with open_regular(file) as stream:
        try:
            names = member_names(stream)
        except read_errors() as error:
            problem = f"the archive is damaged: {shown(str(error) or type(error).__name__, 200)}"
            raise UserError(problem, key=KEY, value=file) from error
    if names is None:
        problem = "it is no archive such as cifar-10-binary.tar.gz; name one, or the folder that it unpacks to"
        raise UserError(problem, key=KEY, value=file)
    found: dict[str, Part] = {}
    for name in names:
        base = name.rsplit("/", 1)[-1]
        if base in found:
            raise UserError(f"it holds two files {shown(base, 100)}", key=KEY, value=file)
        found[base] = Part(file, name)
    return found


def read_pictures(
    version: Version, files: dict[str, Part], classes: int, rows: int | None
) -> tuple[np.ndarray, np.ndarray, list[Part]]:
    """(n, 32, 32, 3) unsigned bytes, (n,) labels, and the files that were read, in order. rows: how many; None: all."""
    names = [name for name in version.pictures if name in files]
    read: dict[Part, tuple[np.ndarray, np.ndarray]] = {}
    for opened in _opened([files[name] for name in names], read, rows):
        pixels, labels = (_pickled if version.key else _binary)(opened, version, rows)
        if labels.max() >= classes:
            place = int((labels >= classes).argmax())
            problem = f"the label of picture {place + 1:,} is {labels[place]}; the {classes} classes are 0 to {classes - 1}"
            raise _error(opened.part, problem)
        planes = pixels.reshape(-1, CHANNELS, SIDE, SIDE)
        read[opened.part] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels
    parts = [files[name] for name in names if files[name] in read]
    pictures = np.concatenate([read[part][0] for part in parts])[:rows]
    return pictures, np.concatenate([read[part][1] for part in parts])[:rows], parts


def _opened(parts: list[Part], read: dict[Part, tuple[np.ndarray, np.ndarray]], rows: int | None) -> Iterator[OpenPart]:
    """Members of an archive in its order, as it is read once; files in theirs, as many as it takes."""
    if parts[0].member is not None:
        yield from open_parts(parts)
        return
    for part in parts:
        if rows is None or sum(len(labels) for _, labels in read.values()) < rows:
            yield from open_parts([part])


def _binary(opened: OpenPart, version: Version, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3072) pixels and (n,) labels, at most `rows`: for each picture the bytes of its labels and 3 x 1024 bytes."""
    width = version.label_bytes + VALUES
    wanted = None if rows is None or rows * width > _MOST_BYTES else rows * width
    content = _content(opened, _MOST_BYTES, wanted)
    if not content or len(content) % width:
        problem = f"it has {len(content):,} bytes; pictures take {width:,} bytes each"
        raise _error(opened.part, problem if content else "it is empty")
    table = np.frombuffer(content, np.uint8).reshape(-1, width)
    return table[:, version.label_bytes :], table[:, version.label].astype(np.int64)


def _pickled(opened: OpenPart, version: Version, rows: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The same of a pickled dict with `data`, an array (n, 3072), and a list of labels."""
    content = _values(opened, _MOST_BYTES)
    pixels, labels = content.get("data"), content.get(version.key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != VALUES or not len(pixels):
        raise _error(opened.part, f"its `data` is no array of n x {VALUES:,} unsigned bytes")
    numbers = labels if isinstance(labels, list) else []
    if len(numbers) != len(pixels) or not all(type(label) is int and 0 <= label < 256 for label in numbers):
        problem = f"its `{version.key}` is no list of {len(pixels):,} whole numbers from 0 to 255, one for each picture"
        raise _error(opened.part, problem)
    return pixels[:rows], np.array(numbers[:rows], dtype=np.int64)


def read_names(version: Version, files: dict[str, Part], classes: int) -> list[str] | None:
    """The names of the classes in order; None if the file with them is not there. Raises UserError if it is another's."""
    if version.names not in files:
        return None
    part = files[version.names]
    names: list[str | None] = []
    for opened in open_parts([part]):
        if version.names_key:
            listed_names = _values(opened, _MOST_OF_NAMES).get(version.names_key)
            names = [text_of(name) for name in listed_names] if isinstance(listed_names, list) else []
        else:
            text = _content(opened, _MOST_OF_NAMES).decode("utf-8", "replace")
            names = [line.strip() for line in text.splitlines() if line.strip()]
    good = [name for name in names if name is not None and label_problem(name) is None]
    if len(names) != classes or len(set(good)) != classes:
        raise _error(part, f"it does not hold {classes} different names of classes")
    return good


def _values(opened: OpenPart, most: int) -> dict[str, Any]:
    try:
        content = read_plain(_content(opened, most))
    except PickleError as error:
        raise _error(opened.part, f"it is no file of the Python version: {error}") from error
    if not isinstance(content, dict):
        raise _error(opened.part, "it is no file of the Python version: it holds no dict")
    return content


def _content(opened: OpenPart, most: int, wanted: int | None = None) -> bytes:
    """The first `wanted` bytes, or all, in pieces as they come. most: a bound that no such file reaches."""
    pieces, size, end = [], 0, most if wanted is None else wanted
    try:
        while size < end and (piece := opened.text.read(min(_PIECE, end - size))):
            size += len(piece)
            pieces.append(piece)
    except read_errors() as error:
        raise _error(opened.part, f"it breaks off after {size:,} bytes: {shown(str(error), 200)}") from error
    if wanted is None and size >= most:
        raise _error(opened.part, f"it is longer than {size:,} bytes, as no such file is")
    return b"".join(pieces)


def _error(part: Part, problem: str) -> UserError:
    return UserError(problem, key=KEY, value=str(part))
