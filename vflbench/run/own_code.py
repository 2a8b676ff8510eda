"""A digest of the part of vflbench that decides numbers: two runs with equal digests were computed by the same code."""

import hashlib
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
    files = [*package.glob("*.py")]
    for room in package.iterdir():
        if room.is_dir() and room.name not in WITHOUT_NUMBERS:
            files += room.rglob("*.py")
    return {
        file.relative_to(package).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(files)
        if "__pycache__" not in file.parts
    }


def digest_of(sources: dict[str, str]) -> str:
    """One digest of paths and digests, whatever their order."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(sources.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def edited_while_running() -> bool:
    """Whether our sources have changed since `code_digest` read them: modules loaded later are not those it stands for."""
    return digest_of(own_sources()) != code_digest()
