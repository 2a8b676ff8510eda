"""Pictures of rebuilt data in the folders of runs, made small enough for a page."""

import base64
import io
import warnings
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from vflbench.results.runs import Oddity
from vflbench.results.untrusted import MEGA, Unreadable, read_bytes, shown

PATTERN = "reconstruction*.png"
_WIDTH = 720
_MOST = 8  # of a section
_BYTES = 3_000_000  # of all in a page
_MOST_BYTES, _MOST_PIXELS = 64 * MEGA, 80 * MEGA  # of a picture: its file, and what it is when it is unpacked


class Pictures:
    """Returns pictures as data URLs until the page has enough of them. odd: those that can't be shown."""

    def __init__(self) -> None:
        self.left = _BYTES
        self.odd: list[Oddity] = []

    def of(self, folders: Sequence[Path], names: Sequence[str]) -> list[dict[str, str]]:
        """The pictures of the first run of each setting. names: the setting of each folder."""
        files = [(name, file) for name, folder in zip(names, folders, strict=True) for file in sorted(folder.glob(PATTERN))]
        once = {(name, file.name): file for name, file in reversed(files)}
        taken: list[dict[str, str]] = []
        for (name, file_name), file in sorted(once.items()):
            if len(taken) == _MOST or not self.left:
                break
            try:
                url = thumbnail(file)
            except (OSError, Unreadable) as error:
                self.odd.append(Oddity("foreign", file, shown(getattr(error, "problem", error))))
                continue
            if len(url) <= self.left:
                self.left -= len(url)
                taken.append({"url": url, "name": f"{name}: {shown(file_name)}"})
        return taken


def thumbnail(file: Path) -> str:
    """A data URL of the picture, at most 720 pixels wide. Raises Unreadable, before it is unpacked if it is too large."""
    content = read_bytes(file, _MOST_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its size, which is checked here
            with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise ValueError(f"it has {image.width:,} x {image.height:,} pixels")
                image.thumbnail((_WIDTH, 2 * _WIDTH))
                small = io.BytesIO()
                image.convert("RGB").quantize(64).save(small, "PNG", optimize=True)
    except Exception as error:  # Pillow raises SyntaxError, struct.error, zlib.error and others of its own
        what = "it is no PNG picture" if isinstance(error, UnidentifiedImageError) else error
        raise Unreadable(file, what) from error
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"
