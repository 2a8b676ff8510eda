"""Pictures in folders."""

import warnings
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vflbench.data.files import check_folder, kind_of, open_regular
from vflbench.data.labels import MOST_CLASSES, label_problem
from vflbench.data.pictures import MOST_PIXELS, Pictures, PictureSet
from vflbench.errors import UserError, shown
from vflbench.options import Count, Range, options

Side = Annotated[Count, Range(1, 10**4)]
"""Pixels."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")  # of Pillow's: EPS would start a program
_WHITE = {"L": 255.0, "I;16": 65535.0}
_MOST_DECODED = 1 << 26  # pixels of a picture before it is resized
_MOST_BYTES = 1 << 32  # of all pictures


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
        folder = Path(self.path)
        check_folder(self.path)
        classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
        if len(classes) > MOST_CLASSES:
            problem = f"it has {len(classes):,} subfolders; there are at most {MOST_CLASSES:,} classes"
            raise UserError(problem, key="dataset.path", value=folder)
        for subfolder in classes:
            unfit = label_problem(subfolder.name)
            if unfit:
                raise UserError(f"of a subfolder: {unfit}", key="dataset.path", value=folder)
        files = [_files(subfolder) for subfolder in classes]
        empty = [subfolder.name for subfolder, pictures in zip(classes, files, strict=True) if not pictures]
        if len(classes) < 2 or empty:
            problem = f"the subfolder {empty[0]} is empty" if empty else f"it has {len(classes)} subfolder(s)"
            raise UserError(
                f"{problem}; each class needs a subfolder with pictures, and there must be at least two classes",
                key="dataset.path",
                value=folder,
            )
        rows = [(file, k) for turn in zip_longest(*files) for k, file in enumerate(turn) if file is not None]
        rows = rows[: self.rows]
        pixels: list[np.ndarray] = []
        modes: dict[str, Path] = {}
        for file, _ in rows:
            mode, picture = self._read(file)
            pixels.append(picture)
            if len(modes | {mode: file}) > 1:
                problem = f"its pixels are of the kind {mode} and those of {next(iter(modes.values())).name} are not"
                raise UserError(f"{problem}; pictures must have one depth", key="dataset.path", value=file)
            modes[mode] = file
            if pixels[-1].shape != pixels[0].shape:
                sizes = " and ".join(f"{p.shape[0]} x {p.shape[1]}" for p in (pixels[0], pixels[-1]))
                problem = f"pictures must have one size, and these have {sizes} (height x width); set dataset.size"
                raise UserError(problem, key="dataset.path", value=file)
            if pixels[0].size * len(rows) > _MOST_BYTES:
                problem = (
                    f"{len(rows):,} pictures of {pixels[0].size:,} pixels are too many for memory; set dataset.size or rows"
                )
                raise UserError(problem, key="dataset.path", value=folder)
        labels = np.array([k for _, k in rows])
        table, white = np.stack(pixels), _WHITE.get(mode)
        if white is None:
            table = table - table.min()
            white = float(table.max())
        return PictureSet(table, labels, len(classes), white), {"class_names": [subfolder.name for subfolder in classes]}

    def _read(self, file: Path) -> tuple[str, np.ndarray]:
        """Pillow's name of the kind of its pixels, and (height, width) or (height, width, 3) of them: uint8, or float64 of
        grey pixels of more than 8 bits.
        """
        with open_regular(file) as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata; sizes are checked below
            try:
                with Image.open(stream, formats=_FORMATS) as picture:
                    if picture.width * picture.height > _MOST_DECODED:
                        raise ValueError(f"{picture.height} x {picture.width} pixels are more than {_MOST_DECODED:,}")
                    mode = "I;16" if picture.mode.startswith("I;16") else picture.mode if picture.mode in ("I", "F") else "L"
                    if mode != "L" and not self.grey:
                        raise ValueError(
                            f"its grey pixels of more than 8 bits ({picture.mode}) have no colours; set dataset.grey"
                        )
                    converted = picture.convert("F" if mode != "L" else "L" if self.grey else "RGB")
                if self.size is not None:
                    height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
                    converted = converted.resize((width, height), Image.Resampling.BILINEAR)
                pixels = np.asarray(converted, np.uint8 if mode == "L" else np.float64)
                if not np.isfinite(pixels).all():
                    raise ValueError("it has pixels that are no finite numbers")
            except UnidentifiedImageError as error:
                raise UserError("it is not a picture", key="dataset.path", value=file) from error
            except Exception as error:  # whatever Pillow's decoders meet in a damaged file
                problem = shown(str(error) or type(error).__name__, 200)
                raise UserError(f"the picture can't be read: {problem}", key="dataset.path", value=file) from error
        if pixels.size > MOST_PIXELS:
            problem = f"the picture has {pixels.size:,} pixels, more than {MOST_PIXELS:,}; set dataset.size"
            raise UserError(problem, key="dataset.path", value=file)
        return mode, pixels


def _files(folder: Path) -> list[Path]:
    check_folder(folder)
    files = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    for file in files:
        if kind_of(file) == "a folder":
            raise UserError("a folder within a class; pictures lie directly in it", key="dataset.path", value=file)
    return files
