"""Files within .zip and .tar archives. Nothing is unpacked to disk; members that are links or devices are left out."""

import lzma
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, BinaryIO

_READ_ERRORS = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
    # of encrypted files and damaged headers
    *(RuntimeError, ValueError, KeyError, IndexError, OverflowError, MemoryError, struct.error),
)


def read_errors() -> tuple[type[BaseException], ...]:
    """What reading a damaged or encrypted file or archive raises. Those of pyarrow where something has loaded it."""
    arrow = sys.modules.get("pyarrow")
    return _READ_ERRORS if arrow is None else (*_READ_ERRORS, arrow.ArrowException)


def member_names(stream: BinaryIO) -> list[str] | None:
    """The regular files in an archive. None if it is no archive. Raises one of read_errors() for a damaged archive."""
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            return [member.filename for member in archive.infolist() if not member.is_dir() and _is_plain(member)]
    stream.seek(0)
    try:
        tar = tarfile.open(fileobj=stream, mode="r:*")  # noqa: SIM115 (closed below)
    except read_errors():
        return None
    with tar:
        members = tar.getmembers()
    return [info.name for info in members if info.isreg()] if members else None  # zeros alone are an archive of nothing


def open_members(stream: BinaryIO, names: Sequence[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of these members, one after another.

    Those of a .zip come in the order of `names`, those of a .tar in the archive's. Raises KeyError if one is missing.
    """
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            for name in names:
                with archive.open(name) as content:
                    yield name, content
        return
    stream.seek(0)
    missing = set(names)
    with tarfile.open(fileobj=stream, mode="r|*") as tar:
        for info in tar:
            if info.isreg() and info.name in missing:
                missing.remove(info.name)
                member = tar.extractfile(info)
                assert member is not None  # of a regular file
                yield info.name, member
    if missing:
        raise KeyError(f"no file {min(missing)} in it any more")


def _is_plain(member: zipfile.ZipInfo) -> bool:
    """Whether a member is a regular file: a link's content is the name that it points to."""
    return stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
