"""Files within .zip and .tar archives. Nothing is unpacked to disk; members that are links or devices are left out."""

import lzma
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, BinaryIO

_MOST_MEMBERS = 100_000
_MOST_OF_A_HEADER = 1 << 20
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

_READ_ERRORS = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError),
    *(
        RuntimeError,
        ValueError,
        KeyError,
        IndexError,
        OverflowError,
        MemoryError,
        struct.error,
    ),  # encrypted; damaged headers
)


def read_errors() -> tuple[type[BaseException], ...]:
    """What reading a damaged or encrypted file or archive raises. Those of pyarrow where something has loaded it."""
    arrow = sys.modules.get("pyarrow")
    return _READ_ERRORS if arrow is None else (*_READ_ERRORS, arrow.ArrowException)


FREE_BYTES, MOST_EXPANSION = 256 << 20, 500
"""A text may be 500 times as long as what is stored of it, once it is longer than 256 MiB. Tables compress to a tenth."""


class BombError(OSError):
    """A file that expands to much more than any table would."""

    def __init__(self) -> None:
        super().__init__(f"it expands to more than {MOST_EXPANSION} times its size, as no table does")


def check_expansion(text: int, stored: int) -> None:
    """Raise BombError if this many stored bytes can't be those of a text of this length."""
    if text > FREE_BYTES and text > MOST_EXPANSION * max(stored, 1):
        raise BombError


def member_names(stream: BinaryIO) -> list[str] | None:
    """The regular files in an archive. None if it is no archive. Raises one of read_errors() for a damaged archive."""
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            _check_count(len(members))
            return [member.filename for member in members if not member.is_dir() and _is_plain(member)]
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(0)
    try:
        tar = tarfile.open(fileobj=stream, mode="r:*", tarinfo=_Header)  # noqa: SIM115 (closed below)
    except read_errors():
        return None
    with tar:
        names, count, total = [], 0, 0
        for count, info in enumerate(tar, 1):
            _check_count(count)
            total += 512 + max(0, info.size)
            check_expansion(total, size)
            if info.isreg():
                names.append(info.name)
        return names if count else None  # zeros alone are an archive of nothing to tarfile


def open_members(stream: BinaryIO, names: Sequence[str]) -> Iterator[tuple[str, IO[bytes], int | None]]:
    """Name, content and stored bytes (None: those that `stream` has been read for) of these members, one after another.

    Those of a .zip come in the order of `names`, those of a .tar in the archive's. Raises KeyError if one is missing.
    """
    if zipfile.is_zipfile(stream):
        stream.seek(0)
        with zipfile.ZipFile(stream) as archive:
            for name in names:
                with archive.open(name) as content:
                    yield name, content, archive.getinfo(name).compress_size
        return
    stream.seek(0)
    missing: Mapping[str, None] = dict.fromkeys(names)
    with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_Header) as tar:
        for info in tar:
            if info.isreg() and info.name in missing:
                missing = {name: None for name in missing if name != info.name}
                member = tar.extractfile(info)
                assert member is not None  # of a regular file
                yield info.name, member, None
    if missing:
        raise KeyError(f"no file {next(iter(missing))} in it any more")


class _Header(tarfile.TarInfo):
    """Refuses headers that claim to be very long, which tarfile would read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_HEADERS and not 0 <= header.size <= _MOST_OF_A_HEADER:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def _check_count(count: int) -> None:
    if count > _MOST_MEMBERS:
        raise tarfile.ReadError(f"it holds more than {_MOST_MEMBERS:,} files")


def _is_plain(member: zipfile.ZipInfo) -> bool:
    """Whether a member is a regular file: a link's content is the name that it points to."""
    return stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
