"""Pictures as tables: each pixel is a column, and each party holds a rectangle of pixels.

Files of MNIST and CIFAR as they are published, folders of pictures, and the digits of scikit-learn.
"""

import hashlib
import io
import math
import os
import pickle  # nosec B403  # an Unpickler that knows five names
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product, zip_longest
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from vflbench.data.base import Dataset
from vflbench.data.columns import Assignment
from vflbench.data.files import FOLDER, KEY, Part, archived_parts, check_folder, listed, open_regular, read_whole, refusal
from vflbench.data.readings import label_problem
from vflbench.data.table import RawTable
from vflbench.errors import UserError, shown
from vflbench.numerics.pixels import Area, area_of, pixel_names
from vflbench.options import Count, Range, options

MOST_PIXELS = 1 << 20
"""Of one picture, times its channels; each is a column."""


@dataclass(frozen=True)
class PictureSet:
    """pixels: (n, height, width) or (n, height, width, channels) in 0 .. white. labels: (n,) classes 0 .. classes - 1."""

    pixels: np.ndarray
    labels: np.ndarray
    classes: int
    white: float = 255.0


@options
class Pictures(Dataset):
    """Pictures of one size with classes. All pixels are divided by the largest value that a pixel can have.

    parties: a number of non-label parties, or party -> columns `pixel_ROW_COLUMN`, patterns allowed.
    cut: how K parties divide a picture: `grid` (K = 2: upper and lower half; 4: quarters; 6: 3 x 2), `rows` (K strips, one
    above the other) or `columns` (K strips side by side).

    A subclass overrides `pictures`.
    """

    cut: Literal["grid", "rows", "columns"] = "grid"

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        """All pictures, and facts for the run's manifest."""
        raise NotImplementedError

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        pictures, facts = self.pictures()
        return picture_table(pictures, self.rows), facts

    def divide(self, names: Sequence[str], raw: RawTable, role: np.ndarray) -> tuple[Assignment, str]:
        problem = "parties of a picture hold rectangles of it; name a number of them (and dataset.cut), or their pixels"
        raise UserError(problem, key="dataset.parties", value=getattr(self.parties, "kind", None))

    def assign(self, names: Sequence[str]) -> Assignment:
        if not isinstance(self.parties, int):
            return super().assign(names)
        whole = area_of(names)
        assert whole is not None  # `picture_table` names the columns
        rows, columns = _grid(self.parties, self.cut)
        fits = 1 <= self.parties <= len(ascii_lowercase) and rows <= whole.height and columns <= whole.width
        if not fits:
            problem = f"{whole.height} x {whole.width} pixels can't be cut into so many parts (cut={self.cut})"
            raise UserError(problem, key="dataset.parties", value=self.parties)
        pixel = {name: divmod(i // whole.channels, whole.width) for i, name in enumerate(names)}
        areas = product(_even_ranges(whole.height, rows), _even_ranges(whole.width, columns))
        return {
            party: tuple(name for name, (r, c) in pixel.items() if r in area_rows and c in area_columns)
            for party, (area_rows, area_columns) in zip(ascii_lowercase, areas, strict=False)
        }


def picture_table(pictures: PictureSet, rows: int | None = None) -> RawTable:
    """Pictures as raw columns. rows: how many, from the first on; None takes all."""
    pixels, labels = pictures.pixels[:rows], np.asarray(pictures.labels[:rows], dtype=np.int64)
    area = Area(0, 0, *pixels.shape[1:3], *pixels.shape[3:])
    numeric = np.ascontiguousarray(pixels.reshape(len(pixels), -1))
    digest = hashlib.sha256(repr((area, pictures.classes, pictures.white, numeric.dtype.str)).encode())
    digest.update(numeric)
    digest.update(labels)
    names = pixel_names(area.height, area.width, area.channels)
    return RawTable(
        names=names,
        numeric_names=names,
        categorical_names=(),
        sizes=(),
        numeric=numeric,
        categorical=np.empty((len(labels), 0), dtype=np.int32),
        labels=labels,
        classes=pictures.classes,
        fingerprint=digest.hexdigest(),
        limits=(np.zeros(len(names)), np.full(len(names), pictures.white)),
    )


def _grid(count: int, cut: str) -> tuple[int, int]:
    """Rows and columns of `count` parts. A grid is as square as possible, with at least as many rows as columns."""
    if cut != "grid" or count < 1:
        return (count, 1) if cut != "columns" else (1, count)
    columns = next(c for c in range(math.isqrt(count), 0, -1) if count % c == 0)
    return count // columns, columns


def _even_ranges(length: int, count: int) -> list[range]:
    return [range(start, stop) for start, stop in pairwise(round(i * length / count) for i in range(count + 1))]


@options
class Digits(Pictures):
    """Handwritten digits: 1,797 pictures of 8 x 8 grey pixels, 10 classes. Part of scikit-learn.

    Source: Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998.
    """

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        from sklearn.datasets import load_digits  # takes a second to import

        bunch = load_digits()
        return PictureSet(bunch.images, bunch.target, classes=10, white=16.0), {}


def _data_folder() -> Path:
    return Path(os.environ.get("VFLBENCH_DATA", "data"))


@options
class Mnist(Pictures):
    """Handwritten digits, 28 x 28 grey pixels, 10 classes: MNIST, or any other pair of idx files (Fashion-MNIST, EMNIST).

    path: a folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., or both, which are then joined;
    plain or .gz. null: the folder `mnist` in $VFLBENCH_DATA, or in `data`. images, labels: two such files, in place of path.

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998.
    """

    folders: ClassVar[Sequence[str]] = ("mnist",)
    """Where the files may be if `path` says nothing."""

    path: str | None = None
    images: str | None = None
    labels: str | None = None

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        pairs = self._pairs()
        pixels, labels = zip(*(_read_pair(*pair) for pair in pairs), strict=True)
        sizes = {part.shape[1:] for part in pixels}
        if len(sizes) > 1:
            several = " and ".join(" x ".join(map(str, size)) for size in sorted(sizes))
            raise _error(self.path, f"pictures of {several} pixels can't be joined")
        joined = np.concatenate(labels)
        pictures = PictureSet(np.concatenate(pixels), joined, classes=max(2, int(joined.max()) + 1))
        return pictures, {"files": [str(file) for pair in pairs for file in pair]}

    def _pairs(self) -> list[tuple[Path, Path]]:
        if self.images is not None and self.labels is not None:
            return [(Path(self.images), Path(self.labels))]
        if self.images is not None or self.labels is not None:
            problem = "images and labels must be given together, or a folder as dataset.path instead"
            raise UserError(problem, key=f"dataset.{'labels' if self.labels is None else 'images'}")
        usual = [_data_folder() / name for name in self.folders]
        path = next((folder for folder in usual if folder.is_dir()), usual[0]) if self.path is None else Path(self.path)
        check_folder(path)
        pairs: list[tuple[Path, Path]] = []
        for part in ("train", "t10k"):
            pair = [min(path.glob(f"{part}-{kind}*idx?*"), default=None) for kind in ("images", "labels")]  # idx3.ubyte too
            if None not in pair:
                pairs.append((pair[0], pair[1]))  # type: ignore[arg-type]
            elif pair != [None, None]:
                there, kind = ("labels", "images") if pair[0] is None else ("images", "labels")
                raise _error(path, f"it has {part}-{there}-idx... but no {part}-{kind}-idx...")
        if not pairs:
            example = "train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"
            raise _error(path, f"there are no MNIST files, such as {example}")
        return pairs


@options
class FashionMnist(Mnist):
    """Pictures of clothes, 28 x 28 grey pixels, 10 classes, in the files of MNIST.

    path: as of `mnist`. null: the folder `fashion_mnist`, `fashion-mnist` or `FashionMNIST/raw` (where torchvision puts it)
    in $VFLBENCH_DATA, or in `data`.

    Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    arXiv:1708.07747, 2017.
    """

    folders = ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw")


def _read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, height, width) uint8 pixels, 0 is black, and (n,) classes. Raises UserError if the files don't match."""
    pixels, classes = _read_idx(images, 3), _read_idx(labels, 1)
    if len(pixels) != len(classes):
        raise _error(labels, f"it holds {len(classes):,} labels for the {len(pixels):,} pictures of {images.name}")
    if not pixels.size:
        raise _error(images, "it holds no pictures")
    return pixels, classes


def _read_idx(file: Path, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes, plain or compressed.

        two zero bytes, type (8), number of dimensions, each dimension as big-endian uint32, the values

    Raises UserError if the file has another format or another length than it states.
    """
    ((_, content),) = read_whole([Part(file)])
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        problem = f"it is not an idx file of unsigned bytes like those of MNIST, with a header of {dimensions} dimension(s)"
        raise _error(file, problem)
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        problem = f"its header states {' x '.join(map(str, shape))} values, but {len(content) - start:,} follow"
        raise _error(file, problem)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


_SIDE, _CHANNELS = 32, 3
_VALUES = _SIDE * _SIDE * _CHANNELS


@dataclass(frozen=True)
class Version:
    """One of the two versions of CIFAR.

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


@options
class Cifar(Pictures):
    """Photographs of 32 x 32 pixels. A pixel has three columns, pixel_ROW_COLUMN_0 to _2: red, green and blue.

    path: the folder that an archive unpacks to, of the binary or the Python version; the archive itself, of which nothing
    is unpacked; or a folder that holds one of these under its published name. null: such a folder, $VFLBENCH_DATA or `data`.
    Both versions give the same rows. Files of the Python version may hold arrays and plain values; a pickle that names
    anything else is refused. Rows are those of the training files in order, then those of the test file, and are split
    as the options say; with `split=chronological test_fraction=0.1666667`, test rows are the data set's own.

    A subclass overrides `layout`.
    """

    path: str | None = None

    def layout(self) -> tuple[str, int, list[Version]]:
        """The name of the data set in those of published folders and archives, the number of classes, and the versions."""
        raise NotImplementedError

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        name, classes, versions = self.layout()
        path = str(_data_folder()) if self.path is None else self.path
        files = _cifar_files(path, name)
        version = next((version for version in versions if any(name in files for name in version.pictures)), None)
        if version is None:
            wanted = listed(name for version in versions for name in (version.pictures[0], version.pictures[-1]))
            raise _error(
                path, f"it holds no file with pictures, such as {wanted}; name the folder that the archive unpacks to"
            )
        parts = [files[name] for name in version.pictures if name in files]
        read = {part: _read_cifar(part, content, version, classes) for part, content in read_whole(parts)}
        pixels, labels = (np.concatenate([read[part][k] for part in parts])[: self.rows] for k in (0, 1))
        facts: dict[str, Any] = {"files": [str(part) for part in parts]}
        if version.names in files:
            facts["class_names"] = _read_names(version, files[version.names], classes)
        missing = [name for name in version.pictures if name not in files]
        if missing:
            facts["notes"] = [f"a part of the data set is not there: {', '.join(missing)}"]
        return PictureSet(pixels, labels, classes), facts


@options
class Cifar10(Cifar):
    """60,000 photographs, 32 x 32 colour pixels, 10 classes, of the binary or the Python archive.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """

    def layout(self) -> tuple[str, int, list[Version]]:
        batches = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
        binary = Version(tuple(f"{name}.bin" for name in batches), "batches.meta.txt", label_bytes=1)
        return "cifar-10", 10, [binary, Version(batches, "batches.meta", key="labels", names_key="label_names")]


@options
class Cifar100(Cifar):
    """60,000 photographs, 32 x 32 colour pixels, 100 classes in 20 groups, of the binary or the Python archive.

    labels: `fine`, the 100 classes, or `coarse`, their 20 groups.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """

    labels: Literal["fine", "coarse"] = "fine"

    def layout(self) -> tuple[str, int, list[Version]]:
        kind, fine = self.labels, self.labels == "fine"
        binary = Version(("train.bin", "test.bin"), f"{kind}_label_names.txt", label_bytes=2, label=int(fine))
        pickled = Version(("train", "test"), "meta", key=f"{kind}_labels", names_key=f"{kind}_label_names")
        return "cifar-100", 100 if fine else 20, [binary, pickled]


def _cifar_files(path: str, name: str) -> dict[str, Part]:
    """Name -> file of a folder or an archive, or of the one that a folder holds under a published name."""
    if refusal(path):
        check_folder(path)
        endings = ("-batches-bin", "-binary", "-batches-py", "-python", "-binary.tar.gz", "-python.tar.gz")
        published = [f"{name}{ending}" for ending in endings]
        path = next((str(Path(path) / one) for one in published if (Path(path) / one).exists()), path)
    if refusal(path):
        check_folder(path)
        return {file.name: Part(file) for file in Path(path).iterdir()}
    parts = archived_parts(Path(path))
    if parts is None:
        raise _error(path, "it is no archive such as cifar-10-binary.tar.gz; name one, or the folder that it unpacks to")
    return {str(part.member).rsplit("/", 1)[-1]: part for part in parts}


def _read_cifar(part: Part, content: bytes, version: Version, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 32, 32, 3) unsigned bytes and (n,) labels."""
    width = version.label_bytes + _VALUES
    if version.key:
        values = _unpickled(part, content)
        pixels, given = values.get("data"), values.get(version.key)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_VALUES,):
            raise _error(part, f"its `data` is no array of n x {_VALUES:,} unsigned bytes")
        if not isinstance(given, list) or len(given) != len(pixels) or any(type(label) is not int for label in given):
            raise _error(part, f"its `{version.key}` is no list of {len(pixels):,} classes, one for each picture")
        labels = np.array(given, dtype=object)
    elif len(content) % width:
        raise _error(part, f"it has {len(content):,} bytes; pictures take {width:,} bytes each")
    else:
        table = np.frombuffer(content, np.uint8).reshape(-1, width)
        pixels, labels = table[:, version.label_bytes :], table[:, version.label]
    if not len(pixels):
        raise _error(part, "it is empty")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        place = int(wrong.argmax())
        problem = f"the label of picture {place + 1:,} is {labels[place]}; the {classes} classes are 0 to {classes - 1}"
        raise _error(part, problem)
    planes = pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int64)


def _read_names(version: Version, part: Part, classes: int) -> list[str]:
    """The names of the classes in order. Raises UserError if the file is another's."""
    ((_, content),) = read_whole([part])
    if version.names_key:
        names = _unpickled(part, content).get(version.names_key)
    else:
        names = content.decode("utf-8", "replace").split()
    good = [name for name in names if isinstance(name, str) and not label_problem(name)] if isinstance(names, list) else []
    if len(set(good)) != classes or len(good) != classes:
        raise _error(part, f"it does not hold {classes} different names of classes")
    return good


_MULTIARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")
_KNOWN = {*((m, "_reconstruct") for m in _MULTIARRAYS), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _Arrays(pickle.Unpickler):
    """Knows five names, of which arrays are made; a pickle that names anything else is refused before it can call it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module} {name}, which is never called; only arrays are read")
        return super().find_class(module, name)


def _unpickled(part: Part, content: bytes) -> dict[str, Any]:
    try:
        values = _Arrays(io.BytesIO(content), encoding="latin-1").load()  # the texts of Python 2
    except Exception as error:  # a damaged pickle raises anything
        problem = f"it is no file of the Python version: {shown(str(error) or type(error).__name__, 200)}"
        raise _error(part, problem) from error
    if not isinstance(values, dict):
        raise _error(part, "it is no file of the Python version: it holds no dict")
    return values


def _error(path: object, problem: str) -> UserError:
    return UserError(problem, key=KEY, value=str(path))


Side = Annotated[Count, Range(1, 10**4)]
"""Pixels."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")  # of Pillow's: EPS would start a program
_WHITE = {"L": 255.0, "I;16": 65535.0}


@options
class ImageFolder(Pictures):
    """A folder of pictures: each subfolder of `path` is a class, sorted by name, and each file in it is a picture.

    path: the folder. PNG, JPEG, GIF (its first frame), BMP, TIFF, WebP or PPM. Grey pixels of 16 bits keep them all;
    those of 32 bits, and fractions, are counted from the least to the greatest value of all pictures. Files whose name
    begins with a dot are ignored; anything else in a subfolder that is not a picture is an error. Rows cycle through the
    classes, so that a small number of `rows` includes every class.
    size: side of the square to resize pictures to, or [height, width]; null requires that all have one size.
    grey: convert to grey; otherwise each pixel has three columns, red, green and blue.
    """

    path: str
    size: Side | list[Side] | None = None
    grey: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.size, list) and len(self.size) != 2:
            raise UserError("it must be a side length, or [height, width]", key="size", value=self.size)

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        classes, files = self._files()
        rows = [(file, k) for turn in zip_longest(*files) for k, file in enumerate(turn) if file is not None][: self.rows]
        pixels: list[np.ndarray] = []
        first = ""
        for file, _ in rows:
            mode, picture = self._read(file)
            pixels.append(picture)
            first = first or mode
            if mode != first:
                problem = f"its pixels are of the kind {mode} and those of {rows[0][0].name} are not"
                raise _error(file, f"{problem}; pictures must have one depth")
            if picture.shape != pixels[0].shape:
                sizes = " and ".join(f"{p.shape[0]} x {p.shape[1]}" for p in (pixels[0], picture))
                raise _error(file, f"pictures must have one size, and these have {sizes} (height x width); set dataset.size")
        table, white = np.stack(pixels), _WHITE.get(first)
        if white is None:
            table = table - table.min()
            white = float(table.max())
        return PictureSet(table, np.array([k for _, k in rows]), len(classes), white), {"class_names": classes}

    def _files(self) -> tuple[list[str], list[list[Path]]]:
        """The classes, and the files of each."""
        check_folder(self.path)
        folders = sorted(child for child in Path(self.path).iterdir() if child.is_dir() and not child.name.startswith("."))
        classes = [folder.name for folder in folders]
        files = [sorted(file for file in folder.iterdir() if not file.name.startswith(".")) for folder in folders]
        empty = [name for name, pictures in zip(classes, files, strict=True) if not pictures]
        if len(classes) < 2 or empty:
            problem = f"the subfolder {empty[0]} is empty" if empty else f"it has {len(classes)} subfolder(s)"
            needed = "each class needs a subfolder with pictures, and there must be at least two classes"
            raise _error(self.path, f"{problem}; {needed}")
        for file in chain.from_iterable(files):
            if refusal(file) == FOLDER:
                raise _error(file, "a folder within a class; pictures lie directly in it")
        return classes, files

    def _read(self, file: Path) -> tuple[str, np.ndarray]:
        """Pillow's name of the kind of its pixels, and (height, width) or (height, width, 3) of them: uint8, or float64 of
        grey pixels of more than 8 bits.
        """
        with open_regular(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata
            try:
                with Image.open(stream, formats=_FORMATS) as picture:
                    mode = "I;16" if picture.mode.startswith("I;16") else picture.mode if picture.mode in ("I", "F") else "L"
                    if mode != "L" and not self.grey:
                        problem = f"its grey pixels of more than 8 bits ({picture.mode}) have no colours"
                        raise ValueError(f"{problem}; set dataset.grey")
                    converted = picture.convert("F" if mode != "L" else "L" if self.grey else "RGB")
                if self.size is not None:
                    height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
                    converted = converted.resize((width, height), Image.Resampling.BILINEAR)
                pixels = np.asarray(converted, np.uint8 if mode == "L" else np.float64)
                if not np.isfinite(pixels).all():
                    raise ValueError("it has pixels that are no finite numbers")
                if pixels.size > MOST_PIXELS:
                    raise ValueError(f"it has {pixels.size:,} pixels, more than {MOST_PIXELS:,}; set dataset.size")
            except UnidentifiedImageError as error:
                raise _error(file, "it is not a picture") from error
            except Exception as error:  # whatever Pillow's decoders meet in a damaged file
                problem = shown(str(error) or type(error).__name__, 200)
                raise _error(file, f"the picture can't be read: {problem}") from error
        return mode, pixels
