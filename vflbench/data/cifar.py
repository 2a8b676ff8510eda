"""Photographs of 32 x 32 colour pixels, in the files of CIFAR."""

import os
from typing import Any

from vflbench.data.cifar_files import Version, find_version, read_names, read_pictures
from vflbench.data.pictures import Pictures, PictureSet
from vflbench.options import options


@options
class Cifar(Pictures):
    """Photographs of 32 x 32 pixels. A pixel has three columns, pixel_ROW_COLUMN_0 to _2: red, green and blue.

    path: the folder that an archive unpacks to, of the binary or the Python version; the archive itself, of which nothing
    is unpacked; or a folder that holds one of these under its published name. null: such a folder, $VFLBENCH_DATA or `data`.
    Both versions give the same rows. Files of the Python version are read as data: nothing in them is executed.
    Rows are those of the training files in order, then those of the test file, and are split as the options say; with
    `split=chronological test_fraction=0.1666667`, test rows are the data set's own.

    A subclass overrides `layout`.
    """

    path: str | None = None

    def layout(self) -> tuple[list[Version], int, list[str]]:
        """The versions, the number of classes, and the names of folders and archives as published."""
        raise NotImplementedError

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        versions, classes, published = self.layout()
        path = os.environ.get("VFLBENCH_DATA", "data") if self.path is None else self.path
        version, files = find_version(path, versions, published)
        pixels, labels, parts = read_pictures(version, files, classes, self.rows)
        facts: dict[str, Any] = {"files": [str(part) for part in parts]}
        names = read_names(version, files, classes)
        if names is not None:
            facts["class_names"] = names
        missing = [name for name in version.pictures if name not in files]
        if missing:
            facts["notes"] = [f"a part of the data set is not there: {', '.join(missing)}"]
        return PictureSet(pixels, labels, classes), facts
