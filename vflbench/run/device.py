"""Which device a run would take, for who only wants to name it."""

import importlib.util
import re
import sys
from pathlib import Path


def device_name(wanted: str) -> str:
    """That of `settings.choose_device`. torch is loaded only where it may be a GPU."""
    if wanted == "cpu" or (wanted == "auto" and _knows_no_gpu()):
        return "cpu"
    from vflbench.run.settings import choose_device

    return str(choose_device(wanted))


def _knows_no_gpu() -> bool:
    """Whether the installed torch was built for CPUs alone, as its version.py says."""
    spec = None if "torch" in sys.modules else importlib.util.find_spec("torch")
    file = spec and spec.origin and Path(spec.origin).with_name("version.py")
    text = file.read_text("utf-8") if file and file.is_file() else ""
    return all(re.search(rf"^{kind}\b.*= None$", text, re.MULTILINE) for kind in ("cuda", "hip"))
