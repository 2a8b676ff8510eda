"""MNIST, and other sets of pictures in its file format."""

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from vflbench.data.opening import check_folder, open_regular
from vflbench.data.pictures import MOST_PIXELS, Pictures, PictureSet
from vflbench.errors import UserError
from vflbench.options import options

_UNSIGNED_BYTE = 8
_MOST_VALUES = 1 << 32
_PIECE = 1 << 22
_GAP = 10  # numbers of classes that no picture has, before one that a single picture has
_PARTS = ("train", "t10k")


@options
class Mnist(Pictures):
    """Handwritten digits, 28 x 28 grey pixels, 10 classes: MNIST, or any other pair of idx files (Fashion-MNIST, EMNIST).

    path: a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., or both, which are then joined;
    plain or .gz. null: the folder `mnist` in $VFLBENCH_DATA, or in `data`. images, labels: two such files, in place of path.

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998.
    """

    path: str | None = None
    images: str | None = None
    labels: str | None = None

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        pairs = self._pairs()
        pixels, labels = zip(*(read_pair(*pair) for pair in pairs), strict=True)
        sizes = {part.shape[1:] for part in pixels}
        if len(sizes) > 1:
            raise UserError(f"pictures of {_listed(sizes)} pixels can't be joined", key="dataset.path", value=self.path)
        joined = np.concatenate(labels)
        pictures = PictureSet(np.concatenate(pixels), joined, classes=max(2, int(joined.max()) + 1))
        return pictures, {"files": [str(file) for pair in pairs for file in pair]}

    def default_folder(self) -> str:
        """Where the files are if `path` says nothing."""
        return str(Path(os.environ.get("VFLBENCH_DATA", "data")) / "mnist")

    def _pairs(self) -> list[tuple[Path, Path]]:
        if (self.images is None) != (self.labels is None):
            missing = "labels" if self.labels is None else "images"
            problem = "images and labels must be given together, or a folder as dataset.path instead"
            raise UserError(problem, key=f"dataset.{missing}")
        if self.images is not None and self.labels is not None:
            return [(Path(self.images), Path(self.labels))]
        path = self.default_folder() if self.path is None else self.path
        check_folder(path)
        folder = Path(path)
        pairs = []
        for part in _PARTS:
            images, labels = _file(folder, f"{part}-images"), _file(folder, f"{part}-labels")
            if images is not None and labels is not None:
                pairs.append((images, labels))
            elif images is not None or labels is not None:
                kind, other = ("labels", "images") if labels is None else ("images", "labels")
                problem = f"it has {part}-{other}-idx... but no {part}-{kind}-idx..."
                raise UserError(problem, key="dataset.path", value=folder)
        if not pairs:
            problem = "it has no MNIST files such as t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz"
            raise UserError(problem, key="dataset.path", value=folder)
        return pairs


def read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, height, width) uint8 pixels, 0 is black, and (n,) classes. Raises UserError if the files don't match."""
    pixels, classes = read_idx(images, "dataset.images", 3), read_idx(labels, "dataset.labels", 1)
    if len(pixels) != len(classes):
        problem = f"it holds {len(classes):,} labels for the {len(pixels):,} pictures of {images.name}"
        raise UserError(problem, key="dataset.labels", value=labels)
    if not pixels.size:
        raise UserError("it holds no pictures", key="dataset.images", value=images)
    if pixels[0].size > MOST_PIXELS:
        raise UserError(
            f"a picture has {pixels[0].size:,} pixels, more than {MOST_PIXELS:,}", key="dataset.images", value=images
        )
    _check_labels(classes, labels)
    return pixels, classes


def _check_labels(classes: np.ndarray, file: Path) -> None:
    """Refuse a label that only one picture has, far above all others, as a damaged byte makes one."""
    sizes = np.bincount(classes)
    numbers = sizes.nonzero()[0]
    last, before = int(numbers[-1]), int(numbers[-2]) if len(numbers) > 1 else -1
    if len(numbers) > 2 and sizes[last] == 1 and last - before > _GAP:
        place = int((classes == last).argmax()) + 1
        problem = f"the label of picture {place:,} is {last}, which no other has, and the next lower label is {before}"
        raise UserError(problem, key="dataset.labels", value=file)


def read_idx(file: Path, key: str, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes, plain or gzipped.

        two zero bytes, type (8), number of dimensions, each dimension as big-endian uint32, the values

    Raises UserError with this key if the file has another format or another length than it states. What it states is
    believed only as far as the bytes are there.
    """

    def error(problem: str) -> UserError:
        return UserError(problem, key=key, value=file)

    start = 4 + 4 * dimensions
    with open_regular(file, key) as plain:
        packed = False
        try:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            stream = gzip.GzipFile(fileobj=plain) if packed else plain
            head = _read(stream, start)
            _check_head(head, dimensions, error)
            shape = struct.unpack(f">{dimensions}I", head[4:start])
            expected = math.prod(shape)
            if expected > _MOST_VALUES:
                raise error(f"its header states {' x '.join(map(str, shape))} values, more than {_MOST_VALUES:,}")
            values = _read(stream, expected + 1)
        except (OSError, EOFError, zlib.error) as problem:
            what = "its gzip stream is damaged" if packed else "it can't be read"
            raise error(f"{what}: {problem}") from problem
    if len(values) != expected:
        follow = f"{len(values):,}" if len(values) < expected else "more"
        raise error(f"its header states {' x '.join(map(str, shape))} values, but {follow} follow")
    return np.frombuffer(values, np.uint8).reshape(shape)


def _check_head(head: bytes, dimensions: int, error: Callable[[str], UserError]) -> None:
    if len(head) < 4 or head[:2] != b"\0\0":
        raise error("it is not an idx file like those of MNIST; it does not begin with two zero bytes")
    if head[2] != _UNSIGNED_BYTE:
        raise error(f"its values have type {head[2]:#04x}; they must be unsigned bytes (0x08)")
    if head[3] != dimensions:
        what = "pictures have 3 (count, height, width)" if dimensions == 3 else "labels have 1"
        raise error(f"it has {head[3]} dimension(s); {what}")
    if len(head) < 4 + 4 * dimensions:
        raise error("it ends within its header")


def _read(stream: IO[bytes] | gzip.GzipFile, count: int) -> bytes:
    """At most so many bytes; memory is taken as they come."""
    pieces, left = [], count
    while left and (piece := stream.read(min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _file(folder: Path, start: str) -> Path | None:
    """The first file whose name begins so. Both idx3-ubyte and idx3.ubyte are in use."""
    return next(iter(sorted(folder.glob(f"{start}*idx?*"))), None)


def _listed(sizes: set[tuple[int, ...]]) -> str:
    return " and ".join(" x ".join(map(str, size)) for size in sorted(sizes))
