"""Pictures in the files of MNIST (idx) and of CIFAR, as they are published."""

import gzip
import io
import math
import os
import pickle  # nosec B403  # an Unpickler that knows five names
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vflbench.data.files import KEY, Part, archived_parts, check_folder, kind_of, listed, open_regular, read_whole
from vflbench.data.labels import label_problem
from vflbench.data.pictures import Pictures, PictureSet
from vflbench.errors import UserError, shown
from vflbench.options import options

_KINDS = ("images", "labels")


def _data_folder() -> Path:
    return Path(os.environ.get("VFLBENCH_DATA", "data"))


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
        pixels, labels = zip(*(_read_pair(*pair) for pair in pairs), strict=True)
        sizes = {part.shape[1:] for part in pixels}
        if len(sizes) > 1:
            several = " and ".join(" x ".join(map(str, size)) for size in sorted(sizes))
            raise UserError(f"pictures of {several} pixels can't be joined", key=KEY, value=self.path)
        joined = np.concatenate(labels)
        pictures = PictureSet(np.concatenate(pixels), joined, classes=max(2, int(joined.max()) + 1))
        return pictures, {"files": [str(file) for pair in pairs for file in pair]}

    def default_folder(self) -> str:
        """Where the files are if `path` says nothing."""
        return str(_data_folder() / "mnist")

    def _pairs(self) -> list[tuple[Path, Path]]:
        if (self.images is None) != (self.labels is None):
            missing = "labels" if self.labels is None else "images"
            problem = "images and labels must be given together, or a folder as dataset.path instead"
            raise UserError(problem, key=f"dataset.{missing}")
        if self.images is not None and self.labels is not None:
            return [(Path(self.images), Path(self.labels))]
        path = self.default_folder() if self.path is None else self.path
        check_folder(path)
        # Both idx3-ubyte and idx3.ubyte are in use.
        found = {part: [sorted(Path(path).glob(f"{part}-{kind}*idx?*")) for kind in _KINDS] for part in ("train", "t10k")}
        for part, files in found.items():
            if any(files) and not all(files):
                other, kind = _KINDS if files[0] else _KINDS[::-1]
                raise UserError(f"it has {part}-{other}-idx... but no {part}-{kind}-idx...", key=KEY, value=path)
        pairs = [(images[0], labels[0]) for images, labels in found.values() if images]
        if not pairs:
            problem = "there are no MNIST files, such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"
            raise UserError(problem, key=KEY, value=path)
        return pairs


@options
class FashionMnist(Mnist):
    """Pictures of clothes, 28 x 28 grey pixels, 10 classes, in the files of MNIST.

    path: as of `mnist`. null: the folder `fashion_mnist`, `fashion-mnist` or `FashionMNIST/raw` (where torchvision puts it)
    in $VFLBENCH_DATA, or in `data`.

    Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    arXiv:1708.07747, 2017.
    """

    def default_folder(self) -> str:
        folders = [_data_folder() / name for name in ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw")]
        return str(next((folder for folder in folders if folder.is_dir()), folders[0]))


def _read_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, height, width) uint8 pixels, 0 is black, and (n,) classes. Raises UserError if the files don't match."""
    pixels, classes = _read_idx(images, "dataset.images", 3), _read_idx(labels, "dataset.labels", 1)
    if len(pixels) != len(classes):
        problem = f"it holds {len(classes):,} labels for the {len(pixels):,} pictures of {images.name}"
        raise UserError(problem, key="dataset.labels", value=labels)
    if not pixels.size:
        raise UserError("it holds no pictures", key="dataset.images", value=images)
    return pixels, classes


def _read_idx(file: Path, key: str, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes, plain or gzipped.

        two zero bytes, type (8), number of dimensions, each dimension as big-endian uint32, the values

    Raises UserError with this key if the file has another format or another length than it states.
    """
    with open_regular(file, key) as stream:
        content = stream.read()
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"its gzip stream is damaged: {error}", key=key, value=file) from error
    start = 4 + 4 * dimensions
    if len(content) < start or content[:4] != bytes((0, 0, 8, dimensions)):
        problem = f"it is not an idx file of unsigned bytes like those of MNIST, with a header of {dimensions} dimension(s)"
        raise UserError(problem, key=key, value=file)
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        problem = f"its header states {' x '.join(map(str, shape))} values, but {len(content) - start:,} follow"
        raise UserError(problem, key=key, value=file)
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

    def layout(self) -> tuple[list[Version], int, list[str]]:
        """The versions, the number of classes, and the names of folders and archives as published."""
        raise NotImplementedError

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        versions, classes, published = self.layout()
        path = str(_data_folder()) if self.path is None else self.path
        files = _cifar_files(path, published)
        version = next((version for version in versions if any(name in files for name in version.pictures)), None)
        if version is None:
            wanted = listed(name for version in versions for name in (version.pictures[0], version.pictures[-1]))
            problem = f"it holds no file with pictures, such as {wanted}; name the folder that the archive unpacks to"
            raise UserError(problem, key=KEY, value=path)
        parts = [files[name] for name in version.pictures if name in files]
        read: dict[Part, tuple[np.ndarray, np.ndarray]] = {}
        for part, content in read_whole(parts):
            read[part] = _read_cifar(part, content, version, classes)
            if (
                part.member is None
                and self.rows is not None
                and sum(len(labels) for _, labels in read.values()) >= self.rows
            ):
                break  # files come in their order, members in the archive's
        parts = [part for part in parts if part in read]
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

    def layout(self) -> tuple[list[Version], int, list[str]]:
        batches = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
        binary = Version(tuple(f"{name}.bin" for name in batches), "batches.meta.txt", label_bytes=1)
        pickled = Version(batches, "batches.meta", key="labels", names_key="label_names")
        published = ["cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"]
        return [binary, pickled], 10, published


@options
class Cifar100(Cifar):
    """60,000 photographs, 32 x 32 colour pixels, 100 classes in 20 groups, of the binary or the Python archive.

    labels: `fine`, the 100 classes, or `coarse`, their 20 groups.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
    """

    labels: Literal["fine", "coarse"] = "fine"

    def layout(self) -> tuple[list[Version], int, list[str]]:
        kind, fine = self.labels, self.labels == "fine"
        binary = Version(("train.bin", "test.bin"), f"{kind}_label_names.txt", label_bytes=2, label=int(fine))
        pickled = Version(("train", "test"), "meta", key=f"{kind}_labels", names_key=f"{kind}_label_names")
        published = ["cifar-100-binary", "cifar-100-python", "cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"]
        return [binary, pickled], 100 if fine else 20, published


def _cifar_files(path: str, published: list[str]) -> dict[str, Part]:
    """Name -> file of a folder or an archive, or of the one that a folder holds under a published name."""
    if kind_of(path) is not None:
        check_folder(path)
        path = next((str(Path(path) / name) for name in published if (Path(path) / name).exists()), path)
    if kind_of(path) is not None:
        check_folder(path)
        return {file.name: Part(file) for file in Path(path).iterdir()}
    parts = archived_parts(Path(path))
    if parts is None:
        problem = "it is no archive such as cifar-10-binary.tar.gz; name one, or the folder that it unpacks to"
        raise UserError(problem, key=KEY, value=path)
    return {str(part.member).rsplit("/", 1)[-1]: part for part in parts}


def _read_cifar(part: Part, content: bytes, version: Version, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, 32, 32, 3) unsigned bytes and (n,) labels."""
    if version.key:
        values = _unpickled(part, content)
        pixels, numbers = values.get("data"), values.get(version.key)
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_VALUES,):
            raise _error(part, f"its `data` is no array of n x {_VALUES:,} unsigned bytes")
        if (
            not isinstance(numbers, list)
            or len(numbers) != len(pixels)
            or any(type(n) is not int or not 0 <= n < classes for n in numbers)
        ):
            problem = (
                f"its `{version.key}` is no list of {len(pixels):,} classes from 0 to {classes - 1}, one for each picture"
            )
            raise _error(part, problem)
        labels = np.array(numbers, dtype=np.int64)
    else:
        width = version.label_bytes + _VALUES
        if len(content) % width:
            raise _error(part, f"it has {len(content):,} bytes; pictures take {width:,} bytes each")
        table = np.frombuffer(content, np.uint8).reshape(-1, width)
        pixels, labels = table[:, version.label_bytes :], table[:, version.label].astype(np.int64)
    if not len(pixels):
        raise _error(part, "it is empty")
    wrong = (labels < 0) | (labels >= classes)
    if wrong.any():
        place = int(wrong.argmax())
        problem = f"the label of picture {place + 1:,} is {labels[place]}; the {classes} classes are 0 to {classes - 1}"
        raise _error(part, problem)
    planes = pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def _read_names(version: Version, part: Part, classes: int) -> list[str]:
    """The names of the classes in order. Raises UserError if the file is another's."""
    ((_, content),) = read_whole([part])
    if version.names_key:
        names = _unpickled(part, content).get(version.names_key)
    else:
        names = [line.strip() for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
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


def _error(part: Part, problem: str) -> UserError:
    return UserError(problem, key=KEY, value=str(part))
