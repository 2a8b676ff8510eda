"""Where things of ours lie."""

from pathlib import Path


def config_folder() -> Path:
    """The package's own configs if it was installed with them, else the checkout's."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else packaged.parent.parent / "configs"
