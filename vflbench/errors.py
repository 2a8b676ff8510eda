"""What a user did that a run can't go on with, in one paragraph."""

import os
import reprlib
from collections.abc import Iterable, Iterator

_MOST = 999  # characters of a message
_MOST_OF_A_VALUE = 240
_MOST_OF_A_PLACE = 300  # a path that the message names as its value
_BOUNDED = reprlib.Repr()
"""`repr` that stops early."""
_BOUNDED.maxlevel, _BOUNDED.maxstring, _BOUNDED.maxother, _BOUNDED.maxlong = 4, 100, 100, 100
_BOUNDED.maxlist = _BOUNDED.maxtuple = _BOUNDED.maxset = _BOUNDED.maxfrozenset = _BOUNDED.maxdict = 16


class UserError(ValueError):
    """A wrong option, file or combination, told as: key, value, what is allowed, where to look.

    It ends a run with exit code 1 and this text alone; `HYDRA_FULL_ERROR=1` adds the traceback. Whatever the parts hold, the
    text is one printable paragraph of less than a thousand characters.

    Args:
        problem: what is wrong and what is allowed.
        key: the option, file or argument.
        value: what was given for it.
        see: the command or page that shows the choices.
    """

    def __init__(self, problem: str, *, key: str | None = None, value: object = None, see: str | None = None):
        key, problem = key and shown(key), printable(problem)
        most = _MOST_OF_A_PLACE if isinstance(value, os.PathLike) else _MOST_OF_A_VALUE
        where = f"{key}={shown(value, most)}: " if key is not None and value is not None else f"{key}: " if key else ""
        hint = f" (see: {shown(see, 150)})" if see else ""
        super().__init__(f"{where}{_cut(problem, _MOST - len(where) - len(hint))}{hint}")
        self.problem, self.key, self.value, self.see = problem, key, value, see


class NonFiniteError(ArithmeticError):
    """A loss or a prediction that nothing can be done with."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came from, each once: such a chain may lead back to itself."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and all(following is not one for one in seen):
        yield following
        seen.append(following)
        following = following.__cause__ or following.__context__


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean norm?` for the name that is most like a mistyped one; empty where none is like it."""
    from difflib import get_close_matches  # late: most commands need none

    known = {one.lower().replace("-", "_"): one for one in names}
    wanted = name.lower().replace("-", "_")
    close = get_close_matches(wanted, known, n=1) or [one for one in known if len(wanted) > 2 and one.startswith(wanted)]
    return f"; did you mean {known[close[0]]}?" if close else ""


def printable(text: str) -> str:
    """The text with every character that is not printable escaped, such as \\x1b: it can't write to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(value: object, most: int = 200) -> str:
    """A value as printable text of at most `most` characters; of a longer one, its beginning and its end."""
    if isinstance(value, bytes):
        value = value[: 4 * most].decode("utf-8", "backslashreplace")
    return _cut(printable(value if isinstance(value, str) else _text(value)), most)


def paragraph(text: str) -> str:
    """A text as one printable line of less than a thousand characters."""
    return _cut(printable(" ".join(text.split())), _MOST)


def _text(value: object) -> str:
    """`str(value)`, but of containers at most some hundred entries: a few bytes of YAML can name 10^9 of them."""
    if isinstance(value, list | tuple | dict | set | frozenset):
        return _BOUNDED.repr(value)
    try:
        return str(value)
    except ValueError:  # Python spells no integer of more than 4300 digits
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = max(0, (most - 5) // 3)
    return f"{text[: most - 5 - end]} ... {text[len(text) - end :]}"


def pip_install(extra: str) -> str:
    """The command that adds an extra to what is installed: pip keeps that, from wherever it came."""
    return f"pip install 'vflbench[{extra}]'"
