"""Where a run that is started elsewhere has its files: its job, its parties' tables, and what they say to who started it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vflbench.errors import UserError


@dataclass(frozen=True)
class Places:
    """The folders and files of a run that is started elsewhere."""

    root: Path

    @property
    def job(self) -> Path:
        return self.root / "job"

    @property
    def sites(self) -> Path:
        return self.root / "sites"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def outcome(self) -> Path:
        return self.root / "outcome.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def problem(self) -> Path:
        return self.root / "problem"

    @property
    def console(self) -> Path:
        return self.root / "console"


@contextmanager
def workspace(name: str | None) -> Iterator[Path]:
    """A new private folder, deleted at the end unless the user named it."""
    if name is None:
        root = Path(tempfile.mkdtemp(prefix="vflbench-nvflare-"))
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return
    root = Path(name).absolute()
    try:
        root.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise UserError("it is there already; name a new folder", key="engine.workspace", value=root) from error
    except OSError as error:
        raise UserError(f"{error.strerror}", key="engine.workspace", value=root) from error
    yield root
