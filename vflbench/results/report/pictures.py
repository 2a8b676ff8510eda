"""Pictures of rebuilt data in the folders of runs, made small enough for a page."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

PATTERN = "reconstruction*.png"
_WIDTH = 720
_MOST = 8  # of a section
_BYTES = 3_000_000  # of all in a page


class Pictures:
    """Returns pictures as data URLs until the page has enough of them."""

    def __init__(self) -> None:
        self.left = _BYTES

    def of(self, folders: Sequence[Path], names: Sequence[str]) -> list[dict[str, str]]:
        """The pictures of the first run of each setting. names: the setting of each folder."""
        files = [(name, file) for name, folder in zip(names, folders, strict=True) for file in sorted(folder.glob(PATTERN))]
        once = {(name, file.name): file for name, file in reversed(files)}
        taken: list[dict[str, str]] = []
        for (name, file_name), file in sorted(once.items()):
            url = thumbnail(file)
            if url and len(taken) < _MOST and len(url) <= self.left:
                self.left -= len(url)
                taken.append({"url": url, "name": f"{name}: {file_name}"})
        return taken


def thumbnail(file: Path) -> str:
    """A data URL of the picture, at most 720 pixels wide; empty if it can't be read."""
    try:
        with Image.open(file) as image:
            image.thumbnail((_WIDTH, 2 * _WIDTH))
            small = io.BytesIO()
            image.convert("RGB").quantize(64).save(small, "PNG", optimize=True)
    except (OSError, ValueError):
        return ""
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"
