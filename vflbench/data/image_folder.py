"""Any folder of pictures."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from vflbench.data.pictures import Pictures, PictureSet
from vflbench.errors import UserError
from vflbench.options import Count, options


@options
class ImageFolder(Pictures):
    """Pictures in folders: each subfolder of `path` is a class, in the order of their names, and each file in it a picture.

    path: the folder. Whatever Pillow reads goes: PNG, JPEG, GIF (its first frame), BMP, TIFF, WebP. Files whose name begins
    with a dot are passed over; any other that is no picture ends the run. Row i + 1 is of the next class after that of row
    i, as long as that has pictures, so that the first so many `rows` have all classes.
    size: side of the square that pictures are resized to, or [height, width]; null: they must all have one size.
    grey: make them grey; else they have red, green and blue, three columns a pixel.
    """

    path: str
    size: Count | list[Count] | None = None
    grey: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.size, list) and len(self.size) != 2:
            raise UserError("it must be a side, or [height, width]", key="size", value=self.size)

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        folder = Path(self.path)
        if not folder.is_dir():
            raise UserError("there is no such folder", key="dataset.path", value=folder)
        classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
        files = [_files(own) for own in classes]
        empty = [own.name for own, inside in zip(classes, files, strict=True) if not inside]
        if len(classes) < 2 or empty:
            problem = f"the subfolder {empty[0]} is empty" if empty else f"it has {len(classes)} subfolder(s)"
            raise UserError(
                f"{problem}; every class needs a subfolder with pictures, and there must be two at least",
                key="dataset.path",
                value=folder,
            )
        rows = [(file, k) for turn in zip_longest(*files) for k, file in enumerate(turn) if file is not None]
        rows = rows[: self.rows]
        pixels = [self._read(file) for file, _ in rows]
        for (file, _), own in zip(rows, pixels, strict=True):
            if own.shape != pixels[0].shape:
                sizes = " and ".join(f"{p.shape[0]} x {p.shape[1]}" for p in (pixels[0], own))
                problem = f"pictures have one size, and these have {sizes} (height x width); set dataset.size"
                raise UserError(problem, key="dataset.path", value=file)
        labels = np.array([k for _, k in rows])
        return PictureSet(np.stack(pixels), labels, len(classes)), {"class_names": [own.name for own in classes]}

    def _read(self, file: Path) -> np.ndarray:
        """(height, width) or (height, width, 3) uint8."""
        try:
            with Image.open(file) as picture:
                shown = picture.convert("L" if self.grey else "RGB")
                if self.size is not None:
                    height, width = self.size if isinstance(self.size, list) else (self.size, self.size)
                    shown = shown.resize((width, height), Image.Resampling.BILINEAR)
                return np.asarray(shown)
        except UnidentifiedImageError as error:
            raise UserError("it is no picture", key="dataset.path", value=file) from error
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"it is a damaged picture: {error}", key="dataset.path", value=file) from error


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
