"""A digest of the part of vflbench that decides numbers: two runs with equal digests were computed by the same code."""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
WITHOUT_NUMBERS = frozenset({"cli", "results"})
"""Rooms that decide no number: what they choose is in a run's options, what they show is computed by other rooms."""


@cache
def code_digest() -> str:
    """SHA-256 over the path and the SHA-256 of each of our modules that decide numbers.

    Read once in a process, before its first run, as modules are loaded once. Compiled files don't count: Python itself
    takes one for its source if the source's size and time are those that it names.
    """
    return digest_of(own_sources())


def own_sources(package: Path = PACKAGE) -> dict[str, str]:
    """Path within the package -> SHA-256 of the source, of all modules outside the rooms that decide no number."""
    return {name: _digest(f"{package}/{name}") for name in sorted(_modules(str(package), ""))}


def _modules(folder: str, within: str) -> Iterator[str]:
    """The names of modules in a folder and in those below it. Paths as text: there are some 500, and each command asks."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield within + entry.name
            elif entry.is_dir() and entry.name != "__pycache__" and not (not within and entry.name in WITHOUT_NUMBERS):
                yield from _modules(entry.path, f"{within}{entry.name}/")


def _digest(file: str) -> str:
    with open(file, "rb", buffering=0) as source:
        return hashlib.sha256(source.readall()).hexdigest()


def digest_of(sources: dict[str, str]) -> str:
    """One digest of paths and digests, whatever their order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def edited_while_running() -> bool:
    """Whether our sources have changed since `code_digest` read them: modules loaded later are not those it stands for."""
    return digest_of(own_sources()) != code_digest()
