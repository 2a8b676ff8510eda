"""Ctrl-C and SIGTERM in a process that waits for a run in another one."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any


@dataclass
class Stopping:
    """What Ctrl-C and SIGTERM ask for: the first is passed on by a file, the second ends the run at once."""

    file: Path
    count: int = 0
    number: int = 0

    def note(self, number: int, _: FrameType | None) -> None:
        self.count, self.number = self.count + 1, number
        if self.count == 1:
            temporary = self.file.with_suffix(".new")
            temporary.write_text(str(number), encoding="ascii")
            temporary.replace(self.file)
            if sys.stderr is not None and sys.stderr.isatty():
                os.write(2, b"\nstopping: the current batch is finished and saved first; Ctrl-C again stops at once\n")

    @classmethod
    @contextmanager
    def watched(cls, file: Path) -> Iterator["Stopping"]:
        stopping = cls(file)
        if threading.current_thread() is not threading.main_thread():
            yield stopping
            return
        before: dict[signal.Signals, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stopping.note)
            yield stopping
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
