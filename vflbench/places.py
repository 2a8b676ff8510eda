"""Where vflbench's own files are."""

from pathlib import Path


def config_folder() -> Path:
    """The configs in the installed package, or else those of the checkout."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else packaged.parent.parent / "configs"
