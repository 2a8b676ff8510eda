"""The folder into which a report is written: whole files, none of them through a link."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vflbench.errors import UserError
from vflbench.results.untrusted import shown

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """Writes files into a folder that exists, and into folders right in it.

    A file is written under a name that nobody can guess, and then takes its place: what was there before, a link too, is
    replaced and never written to. A folder in it that is a link is refused.
    """

    def __init__(self, folder: Path, key: str = "--out"):
        """key: the option by which the folder was chosen, for errors."""
        self.folder, self.key = folder, key

    def write(self, name: str, content: str | bytes, within: str = "") -> Path:
        """name: of the file; within: of a folder in the folder, which is made if it is not there. Raises UserError."""
        path = self.folder / within / name
        data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
        temporary = f".{secrets.token_hex(16)}.tmp"
        try:
            with self._opened(within) as folder:
                try:
                    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=folder)
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(data)
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
        except OSError as error:
            problem = f"it can't be written: {error.strerror or error}{_about_links(error)}"
            raise UserError(problem, key=self.key, value=shown(path, 500)) from error
        return path

    @contextmanager
    def _opened(self, within: str) -> Iterator[int]:
        """The descriptor of the folder, or of one in it."""
        outer = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not within:
                yield outer
                return
            with suppress(FileExistsError):
                os.mkdir(within, dir_fd=outer)
            inner = os.open(within, _FOLDER, dir_fd=outer)
            try:
                yield inner
            finally:
                os.close(inner)
        finally:
            os.close(outer)


def _about_links(error: OSError) -> str:
    is_about_them = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST)
    return "; a report follows no link in its folder" if is_about_them else ""
