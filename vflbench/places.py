"""Where vflbench's own files are, and how more of it is installed."""

from functools import cache
from pathlib import Path


@cache
def config_folder() -> Path:
    """The configs in the installed package, or else those of the checkout."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else packaged.parent.parent / "configs"


def pip_install(extra: str) -> str:
    """The command that adds an extra to what is installed: pip keeps that, from wherever it came."""
    return f"pip install 'vflbench[{extra}]'"
