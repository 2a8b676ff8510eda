"""MNIST, and every other set of pictures in its file format."""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from vflbench.data.pictures import Pictures, PictureSet
from vflbench.errors import UserError
from vflbench.options import options

_UNSIGNED_BYTE = 8
_PARTS = ("train", "t10k")


@options
class Mnist(Pictures):
    """Handwritten digits, 28 x 28 grey pixels, 10 classes: MNIST, or any other pair of idx files (Fashion-MNIST, EMNIST).

    path: a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., or both, which are then joined;
    plain or .gz. null: the folder `mnist` in $VFLBENCH_DATA, or in `data`. images, labels: two such files in its place.

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998.
    """

    path: str | None = None
    images: str | None = None
    labels: str | None = None

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        pairs = self._pairs()
        pixels, labels = zip(*(read_pair(*pair) for pair in pairs), strict=True)
        sizes = {own.shape[1:] for own in pixels}
        if len(sizes) > 1:
            raise UserError(f"pictures of {_told(sizes)} pixels can't be joined", key="dataset.path", value=self.path)
        every = np.concatenate(labels)
        found = PictureSet(np.concatenate(pixels), every, classes=max(2, int(every.max()) + 1))
        return found, {"files": [str(file) for pair in pairs for file in pair]}

    def _pairs(self) -> list[tuple[Path, Path]]:
        if (self.images is None) != (self.labels is None):
            missing = "labels" if self.labels is None else "images"
            raise UserError("images and labels are given together, or a folder as dataset.path", key=f"dataset.{missing}")
        if self.images is not None:
            return [(Path(self.images), Path(self.labels))]
        folder = Path(self.path or Path(os.environ.get("VFLBENCH_DATA", "data")) / "mnist")
        found = [(_file(folder, f"{part}-images"), _file(folder, f"{part}-labels")) for part in _PARTS]
        for part, (images, labels) in zip(_PARTS, found, strict=True):
            if (images is None) != (labels is None):
                kind = "labels" if labels is None else "images"
                raise UserError(f"there are no {part}-{kind}-idx... beside the others", key="dataset.path", value=folder)
        pairs = [pair for pair in found if pair[0] is not None]
        if not pairs:
            problem = (
                "there are no MNIST files such as t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz; name their folder"
            )
            raise UserError(problem, key="dataset.path", value=folder)
        return pairs


def read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, height, width) uint8 pixels, 0 is black, and (n,) classes. Raises UserError for files that don't go together."""
    pixels, classes = read_idx(images, "dataset.images", 3), read_idx(labels, "dataset.labels", 1)
    if len(pixels) != len(classes):
        problem = f"{len(classes):,} labels don't go with the {len(pixels):,} pictures of {images.name}"
        raise UserError(problem, key="dataset.labels", value=labels)
    if not pixels.size:
        raise UserError("it holds no picture", key="dataset.images", value=images)
    return pixels, classes


def read_idx(file: Path, key: str, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes, plain or gzipped.

        two zero bytes, type (8), number of dimensions, each dimension as big-endian uint32, the values

    Raises UserError, under the key, for a file that is something else, cut off or too long.
    """
    content = _content(file, key)

    def refuse(problem: str) -> UserError:
        return UserError(problem, key=key, value=file)

    if len(content) < 4 or content[:2] != b"\0\0":
        raise refuse("it is no idx file, as MNIST's are: it does not begin with two zero bytes")
    if content[2] != _UNSIGNED_BYTE:
        raise refuse(f"it holds values of type {content[2]:#04x}; unsigned bytes (0x08) are needed")
    if content[3] != dimensions:
        what = "pictures have 3 (count, height, width)" if dimensions == 3 else "labels have 1"
        raise refuse(f"it has {content[3]} dimension(s); {what}")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise refuse("it ends within its head")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        expected = " x ".join(map(str, shape))
        raise refuse(f"its head says {expected} values, and {len(content) - start:,} follow")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(file: Path, key: str) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"it can't be read: {error.strerror}", key=key, value=file) from error
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"its gzip stream is damaged: {error}", key=key, value=file) from error


def _file(folder: Path, start: str) -> Path | None:
    """The first of this name; people write idx3-ubyte and idx3.ubyte."""
    return next(iter(sorted(folder.glob(f"{start}*idx?*"))), None)


def _told(sizes: set[tuple[int, ...]]) -> str:
    return " and ".join(" x ".join(map(str, size)) for size in sorted(sizes))
