"""Pictures in folders."""

from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vflbench.data.pictures import Pictures, PictureSet
from vflbench.errors import UserError
from vflbench.options import Count, Range, options

Side = Annotated[Count, Range(1, 10**4)]
"""Pixels."""


@options
class ImageFolder(Pictures):
    """A folder of pictures: each subfolder of `path` is a class, sorted by name, and each file in it is a picture.

    path: the folder. Any format that Pillow reads: PNG, JPEG, GIF (its first frame), BMP, TIFF, WebP. Files whose name
    begins with a dot are ignored; any other file that is not a picture is an error. Rows cycle through the classes, so that
    a small number of `rows` includes every class.
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
        if not folder.is_dir():
            raise UserError("there is no such folder", key="dataset.path", value=folder)
        classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
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
        pixels = [self._read(file) for file, _ in rows]
        for (file, _), picture in zip(rows, pixels, strict=True):
            if picture.shape != pixels[0].shape:
                sizes = " and ".join(f"{p.shape[0]} x {p.shape[1]}" for p in (pixels[0], picture))
                problem = f"pictures must have one size, and these have {sizes} (height x width); set dataset.size"
                raise UserError(problem, key="dataset.path", value=file)
        labels = np.array([k for _, k in rows])
        return PictureSet(np.stack(pixels), labels, len(classes)), {"class_names": [subfolder.name for subfolder in classes]}

    def _read(self, file: Path) -> np.ndarray:
        """(height, width) or (height, width, 3) uint8."""
        try:
            with Image.open(file) as picture:
                converted = picture.convert("L" if self.grey else "RGB")
                if self.size is not None:
                    height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
                    converted = converted.resize((width, height), Image.Resampling.BILINEAR)
                return np.asarray(converted)
        except UnidentifiedImageError as error:
            raise UserError("it is not a picture", key="dataset.path", value=file) from error
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"the picture is damaged: {error}", key="dataset.path", value=file) from error


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
