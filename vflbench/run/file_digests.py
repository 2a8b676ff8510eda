"""The content of the files that a run's options name, as SHA-256. Large files are read once, while they stay as they are."""

import glob
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from vflbench.data.private_folders import cache_folder, make_part, make_private
from vflbench.errors import UserError
from vflbench.plain_files import open_plain, written_whole
from vflbench.results.identity import essential
from vflbench.run.plugin_files import sha256

_SMALL = 4 << 20  # bytes that are read again each time
_ANNOUNCED = 1 << 30
_SETTLED_SECONDS = 2.0  # a file that changed more recently may change again within the same tick of its clock
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLACES = frozenset({"path", "paths", "file", "files", "folder", "dir", "directory", "root", "images", "labels"})
_MNIST = "vflbench.data.mnist.Mnist"


def data_digests(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> SHA-256 of the file that the option names, or a list of them for several; of a folder, over its files.

    config: a run's, resolved. Every option that names a file counts, whatever it is called; a folder or a pattern where the
    option's name ends in one of _PLACES, as many a text is also the name of a folder. `missing` for a path in dataset where
    nothing is: the run itself reports that.
    """
    digests: dict[str, Any] = {}
    for key, words in _texts(essential(config)):
        is_place = key.rpartition(".")[2].rpartition("_")[2] in _PLACES or key.startswith("dataset.party_files.")
        found = [_content(word, everything=is_place) for word in words]
        if any(found):
            flat = [digest for one in found for digest in one or ["missing"]]
            digests[key] = flat[0] if len(flat) == 1 else flat
        elif is_place and key.startswith("dataset."):
            digests[key] = "missing"
    dataset = config.get("dataset")
    if isinstance(dataset, Mapping) and dataset.get("_target_") == _MNIST and not dataset.get("path"):
        folder = Path(os.environ.get("VFLBENCH_DATA", "data")) / "mnist"
        digests["dataset.path"] = tree_digest(folder) if folder.is_dir() else "missing"
    return dict(sorted(digests.items()))


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, list[str]]]:
    """(dotted key, its text or texts) of every option that is a text or a list of texts, but for names of classes."""
    if isinstance(node, Mapping):
        for name, child in node.items():
            if name != "_target_":
                yield from _texts(child, f"{key}.{name}" if key else str(name))
    elif isinstance(node, str):
        yield key, [node]
    elif isinstance(node, list | tuple):
        if texts := [text for text in node if isinstance(text, str)]:
            yield key, texts
        for place, child in enumerate(node):
            if isinstance(child, Mapping | list | tuple):
                yield from _texts(child, f"{key}.{place}")


def _content(word: str, *, everything: bool) -> list[str]:
    """The digests of what a text names; none if it names nothing. everything: also folders and patterns."""
    if not word or len(word) > 4096 or "\0" in word:
        return []
    path = Path(os.path.expanduser(word))
    with suppress(OSError, RuntimeError):
        if _is_file(path):
            return [file_digest(path)]
        if everything and path.is_dir():
            return [tree_digest(path)]
        if everything and not path.exists() and glob.has_magic(word):
            names = sorted(name for name in glob.glob(str(path), recursive=True) if _is_file(Path(name)))
            return [f"{os.path.basename(name)} {file_digest(Path(name))}" for name in names]
    return []


def file_digest(file: Path) -> str:
    """SHA-256 of a regular file's content. Raises OSError.

    A large file is read again when its size, either of its times or its inode has changed. Its time of change can't be set
    back, unlike the time of modification.
    """
    state = file.stat()
    if state.st_size <= _SMALL:
        return sha256(file) if state.st_size else hashlib.sha256().hexdigest()  # /proc has files of no size that wait
    signature = _signature(file, state)
    known = _remembered(signature)
    if known is not None:
        return known
    if state.st_size >= _ANNOUNCED:
        from tqdm import tqdm

        tqdm.write(f"reading {file} ({state.st_size / 1e9:.1f} GB) once, as its content is part of a run's identity")
    digest = sha256(file)
    settled = time.time() - max(state.st_ctime, state.st_mtime) > _SETTLED_SECONDS
    if settled and _signature(file, file.stat()) == signature:
        _remember(signature, digest)
    return digest


def tree_digest(folder: Path) -> str:
    """SHA-256 over the paths and contents of a folder's regular files; names that begin with a dot are left out."""
    lines = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(place) / name
            if not name.startswith(".") and _is_file(file):
                lines.append(f"{file.relative_to(folder).as_posix()}\0{file_digest(file)}\n")
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _signature(file: Path, state: os.stat_result) -> str:
    times = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_dev, state.st_ino)
    return hashlib.sha256(repr((os.path.realpath(file), *times)).encode(errors="surrogateescape")).hexdigest()


@cache
def _in_this_process() -> dict[str, str]:
    return {}


def _folder() -> Path | None:
    """Where digests are kept, if it is ours alone; else None, and digests are computed again in each process."""
    with suppress(OSError, UserError):
        make_private(cache_folder())
        return make_part(cache_folder(), "digests")
    return None


def _remembered(signature: str) -> str | None:
    known = _in_this_process()
    if signature not in known:
        folder = _folder()
        if folder is None:
            return None
        try:
            with open_plain(folder / signature) as file:
                text = file.read(65).decode("ascii", "replace")
        except (OSError, ValueError):
            return None
        if not _DIGEST.fullmatch(text):
            return None
        known[signature] = text
    return known[signature]


def _remember(signature: str, digest: str) -> None:
    _in_this_process()[signature] = digest
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError), written_whole(folder / signature, "w", private=True) as file:
        file.write(digest)
