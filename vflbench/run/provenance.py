"""What a result came from: versions, modules, source revision, command."""

import glob
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from vflbench import __version__
from vflbench.results.read import read_manifest
from vflbench.run.own_code import WITHOUT_NUMBERS

_PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "hydra-core", "omegaconf", "pydantic", "numba"),
    *("python-flint", "pulp", "highspy", "ortools", "scikit-image", "pillow"),
)


def provenance(
    *,
    seed: int,
    overrides: list[str],
    choices: dict[str, Any],
    source: dict[str, Any] | None = None,
    modules: Mapping[str, str] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The part of manifest.json that is known before any data is loaded.

    source: as `source` returns it. modules: as `module_digests` returns them. identity: as `run.identity.origin_of` does.
    """
    return {
        "vflbench": __version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "seed": seed,
        "overrides": overrides,
        "choices": {group: choice for group, choice in choices.items() if not group.startswith("hydra/")},
        "source": source,
        "identity": dict(identity or {}),
        "modules": dict(modules or {}),
    }


def final_provenance(plugins: Mapping[str, str]) -> dict[str, Any]:
    """The part of manifest.json that is known at the end: torch's threads, and the modules that were loaded on the way."""
    import torch  # late: `source` is also called where nothing is trained

    return {"threads": torch.get_num_threads(), "modules": module_digests(plugins)}


def module_digests(plugins: Mapping[str, str]) -> dict[str, str]:
    """Dotted module -> SHA-256 of its source: the plug-ins', and those of all vflbench modules that are loaded now.

    plugins: as `plugin_digests` returns them. Modules that decide no number are left out: which are loaded depends on how
    the run was launched.
    """
    package = __name__.partition(".")[0]
    digests = dict(plugins)
    for name, module in list(sys.modules.items()):
        file, (top, room, *_) = getattr(module, "__file__", None), (*name.split("."), "")
        if top == package and room not in WITHOUT_NUMBERS and file is not None and Path(file).is_file():
            digests[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return dict(sorted(digests.items()))


def source(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Size and time of the data files that a configuration names. Their content is part of the run's identity."""
    path = (config.get("dataset") or {}).get("path")
    words = [path] if isinstance(path, str) else path or []
    names = [name for word in words for name in ([word] if os.path.exists(word) else sorted(glob.glob(word)))]
    if not names:
        return None
    states = [os.stat(name) for name in names]
    paths = [os.path.abspath(name) for name in names]
    return {
        "path": paths[0] if len(paths) == 1 else paths,
        "bytes": sum(state.st_size for state in states),
        "modified_ns": max(state.st_mtime_ns for state in states),
    }


def rounding_notices(folder: Path, device: str | None = None) -> list[str]:
    """A line if a finished run was made with other versions of packages, or on another device, than a run would be now.

    Its options, code, plug-ins and data are the same, so its numbers are too, up to rounding; on another device random
    numbers differ as well. device: that of a run now; None where it isn't known.
    """
    manifest = read_manifest(folder)
    then = manifest.get("versions") or {}
    now: dict[str, Any] = {name: _version(name) for name in then}
    if device is not None and manifest.get("device"):
        then, now = then | {"device": manifest["device"]}, now | {"device": device}
    changed = [f"{name} {then[name]} (now {now[name]})" for name in then if then[name] != now[name]]
    return [f"note: this run was made with {', '.join(changed)}"] if changed else []


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, with `+changes` if it was edited; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]
    if not (package.parent / ".git").exists():
        return None
    try:
        commit = _git(package, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(package, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", os.fspath(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # nosec B603  # git, no shell
    return done.stdout.strip()


def _version(package: str) -> str | None:
    """As `importlib.metadata.version`, which reads the whole description of a package as a mail."""
    try:
        found = distribution(package)
        head, _, _ = (found.read_text("METADATA") or "").partition("\n\n")
        line = re.search(r"^Version: (\S+)$", head, re.MULTILINE)
        return line[1] if line else found.version
    except PackageNotFoundError:
        return None
