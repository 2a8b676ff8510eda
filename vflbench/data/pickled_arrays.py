"""The three calls in a pickle that stand for arrays of unsigned bytes: what they would make, without any of them made."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np


class PickleError(ValueError):
    """What is wrong with a pickle, or what it holds beside plain values."""


@dataclass(frozen=True)
class Name:
    """A function or class that the file names: module and name."""

    name: str


class UnsignedBytes:
    """The type of unsigned bytes."""


@dataclass
class Array:
    """An array. values: unsigned bytes; None before it is built."""

    values: np.ndarray | None = None


_RECONSTRUCT = {Name(f"{module} _reconstruct") for module in ("numpy.core.multiarray", "numpy._core.multiarray")}
_NDARRAY, _DTYPE, _ENCODE = Name("numpy ndarray"), Name("numpy dtype"), Name("_codecs encode")
_KNOWN = {*_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE}
_UNSIGNED = ("u1", "uint8", "|u1")
_ONLY = "only arrays of unsigned bytes and plain values are read"


def known_name(module: str, name: str) -> Name:
    """One of the names of the known calls. Raises PickleError for any other."""
    found = Name(f"{module} {name}")
    if found not in _KNOWN:
        raise PickleError(f"it names {found.name[:100]!r}, which is not called; {_ONLY}")
    return found


def result_of(function: object, given: object) -> Any:
    """What a known call would make of these arguments: an array to be built, a type, or bytes."""
    if not isinstance(function, Name) or not isinstance(given, tuple):
        raise PickleError("a call in it is of no name, or has no arguments")
    first = given[0] if given else None
    if function in _RECONSTRUCT and len(given) == 3 and first == _NDARRAY:
        return Array()
    if function == _DTYPE and isinstance(first, str | bytes) and text_of(first) in _UNSIGNED:
        return UnsignedBytes()
    if function == _ENCODE and len(given) == 2 and isinstance(first, str) and given[1] == "latin1":
        try:
            return first.encode("latin-1")
        except UnicodeEncodeError as error:
            raise PickleError("bytes in it are none") from error
    raise PickleError(f"it calls what makes no array of unsigned bytes; {_ONLY}")


def set_state(made: object, state: object) -> None:
    """Give an array its values: (version, shape, type, by column, content). Of a type, the state says nothing of bytes."""
    if isinstance(made, UnsignedBytes) and isinstance(state, tuple):
        return
    if not isinstance(made, Array) or not isinstance(state, tuple) or len(state) != 5:
        raise PickleError("it sets the state of something that is no array")
    _, shape, kind, by_column, content = state
    sizes = isinstance(shape, tuple) and len(shape) <= 4 and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    if not sizes or not isinstance(kind, UnsignedBytes) or not isinstance(content, bytes | memoryview):
        raise PickleError("an array in it is not one of unsigned bytes")
    if len(content) != prod(shape):
        raise PickleError(f"an array in it states {' x '.join(map(str, shape))} values, and has {len(content):,}")
    if by_column not in (True, False):
        raise PickleError("an array in it does not say whether it is stored by column")
    values = np.frombuffer(content, np.uint8) if len(content) else np.zeros(0, np.uint8)
    made.values = values.reshape(shape, order="F" if by_column else "C")


def text_of(value: object) -> str | None:
    """A text of Python 2 or 3; None for anything else."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("latin-1")
    return value if isinstance(value, str) else None
