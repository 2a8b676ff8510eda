"""What a run's numbers depend on beside its options, by hash: our sources, its plug-ins, its data files.

Computed once, when a run starts; it stands in the manifest, and the name of a run's folder ends in a digest of it.
"""

import glob
import hashlib
import importlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vflbench import __version__
from vflbench.errors import UserError
from vflbench.files import config_folder
from vflbench.results.folder import LOCK, essential, flat, is_begun, read_manifest

PACKAGE = Path(__file__).resolve().parents[1]
MOST_PLUGIN_FILES, MOST_PLUGIN_BYTES = 2_000, 256 << 20
_PATH_OPTIONS = frozenset({"path", "paths", "file", "files", "folder", "dir", "directory", "root", "images", "labels"})
"""Options whose name is or ends in one of these may name a folder or a pattern; every other one a file alone."""
_DEFAULT_FOLDERS = {
    "Mnist": ["mnist"],
    "FashionMnist": ["fashion_mnist", "fashion-mnist", "FashionMNIST/raw"],
    "Cifar10": ["cifar-10-*"],
    "Cifar100": ["cifar-100-*"],
}
"""Data set -> where it lies in $VFLBENCH_DATA if it has no path."""
_ANNOUNCED_BYTES = 1 << 30
_PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "hydra-core", "omegaconf", "pydantic", "numba"),
    *("python-flint", "pulp", "highspy", "scikit-image", "pillow"),
)


def origin_of(config: Mapping[str, Any], folders: Sequence[Path] = ()) -> dict[str, Any]:
    """The provenance of a run: the entry `identity` of its manifest. With the essential options it decides the numbers.

    config: a run's, resolved; the configs' defaults are in it. folders: its plug-in folders.

    vflbench, code: our version, and the hash of all our sources and configs: any change of vflbench makes new runs.
    plugins: if the run uses a class from a plug-in folder, path -> SHA-256 of every file in every folder in use, a mapping a
    folder. Where a folder lies and what it is called doesn't count.
    data: option -> size and SHA-256 of the files that it names. Their times don't count.

    Not in it are versions of other packages, the device, threads and the machine, which decide no more than rounding and
    stand in the manifest; nor what a plug-in reads or imports from elsewhere.
    """
    used = plugins(folders).values()
    modules = {re.split("[/.]", name)[0] for files in used for name in files}
    named = (re.match(r"(\w+)[.:]", text) for _, text in _texts(essential(config)))
    uses_plugins = any(name and name[1] in modules for name in named)
    return {
        "vflbench": __version__,
        "code": code_hash(),
        "plugins": [*used] if uses_plugins else [],
        "data": data_files(config),
    }


@cache
def code_hash() -> str:
    """SHA-256 over the path and the content of each of our modules and configs; read once in a process."""
    roots = ((PACKAGE, "*.py"), (config_folder(), "*.yaml"))
    files = [(file.relative_to(root).as_posix(), file) for root, pattern in roots for file in sorted(root.rglob(pattern))]
    return _summed(files)["sha256"]


_in_use: dict[Path, dict[str, str]] = {}


def import_from(folders: Sequence[Path]) -> None:
    """Make the modules of these folders importable in this process. They come last on Python's path, and shadow nothing.

    Raises UserError for a folder that holds too much, and for one that was edited since this process began to import from
    it: a module is imported once, so the hash would stand for code that doesn't run.
    """
    for folder in map(Path.resolve, folders):
        read = _read_folder(folder)
        if _in_use.setdefault(folder, read) != read:
            raise UserError("it was edited since this process imported it; start a new one", key="--plugins", value=folder)
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
            importlib.invalidate_caches()
        sys.dont_write_bytecode = True  # a compiled file stands for any source of its size and second


def plugins(folders: Sequence[Path] = ()) -> dict[Path, dict[str, str]]:
    """All folders whose modules this process can import, in the order in which it looks in them, and then `folders`: path
    within the folder -> SHA-256 of the file, as it was when this process began to import from it.

    A run counts all of them: a module of one may import what lies in another.
    """
    return _in_use | {folder: _read_folder(folder) for folder in map(Path.resolve, folders) if folder not in _in_use}


def _read_folder(folder: Path) -> dict[str, str]:
    """Left out: names that begin with a dot or # or end with ~, `__pycache__`, and folders of runs and of their sweeps."""
    digests: dict[str, str] = {}
    total = 0
    for place, folders, files in os.walk(folder, followlinks=True):
        here = Path(place)
        if here != folder and any(is_begun(one) or (one / LOCK).exists() for one in (here, *map(here.joinpath, folders))):
            folders[:] = []
            continue
        folders[:] = sorted(name for name in folders if _counts(name))
        for file in sorted(here / name for name in files if _counts(name) and (here / name).is_file()):
            total += file.stat().st_size
            if len(digests) == MOST_PLUGIN_FILES or total > MOST_PLUGIN_BYTES:
                problem = (
                    f"it holds more than {MOST_PLUGIN_FILES:,} files or {MOST_PLUGIN_BYTES >> 20} MB, all of which would "
                    "count as parts of plug-ins; name a folder that holds nothing else"
                )
                raise UserError(problem, key="--plugins", value=folder)
            digests[file.relative_to(folder).as_posix()] = _sha256(file)
    return digests


def _counts(name: str) -> bool:
    return not (name.startswith((".", "#")) or name.endswith("~") or name == "__pycache__")


def data_files(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Option -> {"bytes": size, "sha256": hash} of the file that it names; of several, their sum and a hash over all.

    Every option that names a file counts, whatever it is called; a folder or a pattern where _PATH_OPTIONS says so.
    """
    texts, dataset = [*_texts(essential(config))], config.get("dataset") or {}
    if not dataset.get("path"):
        kind, data = str(dataset.get("_target_")).rpartition(".")[2], Path(os.environ.get("VFLBENCH_DATA", "data"))
        texts += [("dataset.path", str(data / name)) for name in _DEFAULT_FOLDERS.get(kind, ())]
    files_by_key: dict[str, list[tuple[str, Path]]] = {}
    for key, text in texts:
        files_by_key.setdefault(key, []).extend(_files_of(key, text))
    return {key: _summed(files) for key, files in sorted(files_by_key.items()) if files}


def _texts(options: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """(dotted key, text) of every option that is a text, or of each of a list of them."""
    for key, value in flat(options):
        if isinstance(value, str):
            yield key, value
        for part in value if isinstance(value, list | tuple) else ():
            yield from _texts({key: part})


def _files_of(key: str, text: str) -> Iterator[tuple[str, Path]]:
    """(name by which it counts, file) of the files that an option names."""
    names_places = key.rpartition(".")[2].rpartition("_")[2] in _PATH_OPTIONS or key.startswith("dataset.party_files.")
    place = os.path.expanduser(text)
    is_pattern = names_places and glob.has_magic(text) and not os.path.exists(place)
    for one in map(Path, sorted(glob.glob(place, recursive=True)) if is_pattern else [place] if text else []):
        if os.path.isfile(one) and (names_places or "." in text or os.sep in text):
            yield one.name, one
        elif names_places and os.path.isdir(one):
            for file in sorted(file for file in one.rglob("*") if file.is_file()):
                name = file.relative_to(one)
                if not any(part[0] == "." for part in name.parts):
                    yield name.as_posix(), file


def _summed(files: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    total = sum(file.stat().st_size for _, file in files)
    if len(files) == 1:
        return {"bytes": total, "sha256": _sha256(files[0][1])}
    lines = "".join(f"{name}\0{_sha256(file)}\n" for name, file in files)
    return {"bytes": total, "sha256": hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()}


known_hashes: dict[tuple[str, int, int, int, int], str] = {}
"""(file, size, times of modification and of change, which can't be set back, inode) -> SHA-256 of its content: a file is
read once in a process, as long as it stays as it is.
"""


def _sha256(file: Path) -> str:
    state = file.stat()
    key = (str(file.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    if key not in known_hashes:
        if state.st_size >= _ANNOUNCED_BYTES:
            size = f"{state.st_size / 1e9:.1f} GB"
            print(f"reading {file} ({size}), as its content is part of a run's provenance", file=sys.stderr)
        with file.open("rb") as opened:
            known_hashes[key] = hashlib.file_digest(opened, "sha256").hexdigest()
    return known_hashes[key]


def provenance(
    seed: int,
    overrides: Sequence[str],
    choices: Mapping[str, Any],
    identity: Mapping[str, Any],
    folders: Sequence[Path] = (),
) -> dict[str, Any]:
    """The part of manifest.json that is known before any data is loaded. identity: as `origin_of` returns it. folders: of
    plug-ins, of which the manifest says [{"folder": "/home/a/mine", "files": {"attack/loud.yaml": "9f86d0...", ...}}].
    """
    return {
        "vflbench": __version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "seed": seed,
        "overrides": list(overrides),
        "choices": {group: choice for group, choice in choices.items() if not group.startswith("hydra/")},
        "identity": dict(identity),
        "plugins": [{"folder": str(folder), "files": files} for folder, files in plugins(folders).items()],
    }


def rounding_notices(folder: Path, device: str | None = None) -> list[str]:
    """A line if a finished run was made with other versions of packages, or on another device, than a run would be now.

    Its options, code, plug-ins and data are the same, so its numbers are too, up to rounding; on another device random
    numbers differ as well. device: that of a run now; None where it isn't known.
    """
    manifest = read_manifest(folder)
    pairs = [(name, then, _version(name)) for name, then in manifest.versions.items()]
    pairs += [("device", manifest.device, device)] if device and manifest.device else []
    changed = [f"{name} {then} (now {now})" for name, then, now in pairs if then != now]
    return [f"note: this run was made with {', '.join(changed)}"] if changed else []


def git_commit() -> str | None:
    """Commit of the checkout that this package runs from, with `+changes` if it was edited; None outside a checkout."""
    command = ["git", "-C", os.fspath(PACKAGE), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    with suppress(OSError, subprocess.SubprocessError):
        if (PACKAGE.parent / ".git").exists():
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # nosec B603
    return None


def _version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None
