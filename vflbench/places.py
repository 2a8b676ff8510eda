"""Where vflbench's own files are, and where it was installed from."""

import json
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit


@cache
def config_folder() -> Path:
    """The configs in the installed package, or else those of the checkout."""
    packaged = Path(__file__).resolve().parent / "configs"
    return packaged if packaged.is_dir() else packaged.parent.parent / "configs"


def pip_install(extra: str) -> str:
    """The command that adds an extra to what is installed: from the same wheel or folder, else by name.

    Source: PEP 610, direct_url.json.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # late: only who lacks something asks

    given, option = "vflbench", ""
    try:
        direct = json.loads(distribution("vflbench").read_text("direct_url.json") or "{}")
        url = urlsplit(direct.get("url", ""))
        if url.scheme == "file":
            place = Path(unquote(url.path))
            given = str(place) if place.exists() else f"./{place.name}"
            option = "-e " if direct.get("dir_info", {}).get("editable") else ""
    except (PackageNotFoundError, ValueError, AttributeError, OSError):
        pass
    return f"pip install {option}{shlex.quote(f'{given}[{extra}]')}"
