"""Values in a pickle, read as data: nothing that the file names is imported, looked up or called.

A pickle is a program for a stack machine, which may call any function. This reader knows the instructions that build plain
values, and three calls by name, which it does not make: those that stand for an array of unsigned bytes and for bytes.
"""

import struct
from collections.abc import Callable
from typing import Any

from vflbench.data.pickled_arrays import Array, PickleError, known_name, result_of, set_state

MOST_STEPS = 5_000_000
"""Instructions of one pickle; a standard one of 50,000 pictures has 300,000."""

_MOST_KEYS = 1000
_SHORT = 4096  # bytes of a text that is copied; a longer one is a view of the file
_LONGEST_LINE = 1000


def read_plain(data: bytes) -> Any:
    """What a pickle of dicts, lists, tuples, texts, whole numbers, None and arrays of unsigned bytes holds.

    Texts of Python 2 come as bytes, or as views of `data` where they are long. Memory is that of the values, which share
    the bytes of `data`. Raises PickleError for anything else, also for a pickle that ends early or goes on after its end.
    """
    return _Machine(data).run()


class _Machine:
    def __init__(self, data: bytes):
        self.data, self.view, self.place = data, memoryview(data).toreadonly(), 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.encoded = 0

    def run(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self.take(1)[0]
            if code == _STOP:
                if len(self.stack) != 1 or self.marks or self.place != len(self.data):
                    raise PickleError("it does not end with one value")
                return finished(self.stack[0])
            step = _STEPS.get(code)
            if step is None:
                raise PickleError(f"its byte {self.place:,} is {code:#04x}, an instruction that builds no plain value")
            step(self)
        raise PickleError(f"it has more than {MOST_STEPS:,} instructions")

    def take(self, count: int) -> memoryview:
        """The next bytes of the file."""
        piece = self.view[self.place : self.place + count]
        if count < 0 or len(piece) < count:
            raise PickleError("it breaks off")
        self.place += count
        return piece

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.place, self.place + _LONGEST_LINE)
        if end < 0:
            raise PickleError("it breaks off within a line, or holds a very long one")
        piece = bytes(self.take(end - self.place))
        self.place += 1
        return piece

    def whole(self) -> int:
        line = self.line()
        digits = line.removesuffix(b"L")
        if not digits.removeprefix(b"-").isdigit() or len(digits) > 18:
            raise PickleError(f"{line[:40]!r} is no whole number")
        return int(digits)

    def text(self, count: int) -> bytes | memoryview:
        piece = self.take(count)
        return bytes(piece) if count <= _SHORT else piece

    def unicode(self, count: int) -> str:
        try:
            return str(self.take(count), "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise PickleError("a text in it is not UTF-8") from error

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise PickleError("an instruction finds no value")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        value = self.pop()
        if not isinstance(value, kind):
            raise PickleError(f"an instruction finds no {kind.__name__}")
        self.push(value)
        return value

    def marked(self) -> list[Any]:
        """The values since the last mark, which is taken away."""
        if not self.marks:
            raise PickleError("an instruction finds no mark")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def remember(self, place: int) -> None:
        self.memo[place] = self.top(object)

    def recall(self, place: int) -> None:
        if place not in self.memo:
            raise PickleError("it recalls a value that it did not remember")
        self.push(self.memo[place])

    def some(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    @staticmethod
    def fill(into: dict[str, Any], values: list[Any]) -> dict[str, Any]:
        if len(values) % 2:
            raise PickleError("a key in it has no value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            key = key.decode("latin-1") if isinstance(key, bytes) else key
            if not isinstance(key, str) or len(into) >= _MOST_KEYS:
                raise PickleError(f"a dict in it has a key that is no text, or more than {_MOST_KEYS:,} keys")
            into[key] = value
        return into

    def protocol(self) -> None:
        if self.place != 1 or self.take(1)[0] > 5:
            raise PickleError("it states a protocol that is unknown, or not at its start")

    def set(self, values: list[Any]) -> None:
        self.fill(self.top(dict), values)

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def stacked_name(self) -> None:
        module, name = self.some(2)
        if not (isinstance(module, str) and isinstance(name, str)):
            raise PickleError("it names something that is no text")
        self.push(known_name(module, name))

    def call(self) -> None:
        made = result_of(*self.some(2))
        self.encoded += len(made) if isinstance(made, bytes) else 0
        if self.encoded > len(self.data):
            raise PickleError("it expands to more than it holds")
        self.push(made)

    def build(self) -> None:
        made, state = self.some(2)
        set_state(made, state)
        self.push(made)


def finished(value: Any) -> Any:
    """The value itself; of an array, its values. Raises PickleError for one that was never built."""
    if isinstance(value, Array):
        if value.values is None:
            raise PickleError("an array in it has no values")
        return value.values
    if isinstance(value, dict):
        return {key: finished(one) if isinstance(one, Array) else one for key, one in value.items()}
    return value


def _quoted(m: _Machine) -> bytes:
    line = m.line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"') or b"\\" in line:
        raise PickleError("a text in it has no quotes, or an escape")
    return line[1:-1]


def _integer(m: _Machine) -> object:
    """Of protocol 0, in which 00 and 01 are false and true."""
    if m.data[m.place : m.place + 3] in (b"00\n", b"01\n"):
        return m.line() == b"01"
    return m.whole()


def _long(m: _Machine) -> int:
    return int.from_bytes(m.take(m.number("<B")), "little", signed=True)


_STOP = ord(".")
_PUSHED: dict[int, Callable[[_Machine], Any]] = {
    ord("}"): lambda _: {},
    ord("]"): lambda _: [],
    ord(")"): lambda _: (),
    ord("d"): lambda m: m.fill({}, m.marked()),
    ord("l"): lambda m: m.marked(),
    ord("t"): lambda m: tuple(m.marked()),
    0x85: lambda m: m.some(1),
    0x86: lambda m: m.some(2),
    0x87: lambda m: m.some(3),
    ord("N"): lambda _: None,
    0x88: lambda _: True,
    0x89: lambda _: False,
    ord("I"): _integer,
    ord("L"): lambda m: m.whole(),
    ord("K"): lambda m: m.take(1)[0],
    ord("M"): lambda m: m.number("<H"),
    ord("J"): lambda m: m.number("<i"),
    0x8A: _long,
    ord("S"): _quoted,
    ord("U"): lambda m: m.text(m.number("<B")),
    ord("T"): lambda m: m.text(m.number("<i")),
    ord("C"): lambda m: m.text(m.number("<B")),
    ord("B"): lambda m: m.text(m.number("<I")),
    0x8E: lambda m: m.text(m.number("<Q")),
    0x8C: lambda m: m.unicode(m.number("<B")),
    ord("X"): lambda m: m.unicode(m.number("<I")),
    0x8D: lambda m: m.unicode(m.number("<Q")),
}
_DONE: dict[int, Callable[[_Machine], object]] = {
    0x80: lambda m: m.protocol(),
    0x95: lambda m: m.take(8),  # how long a frame is, of use to a reader of streams alone
    ord("("): lambda m: m.marks.append(len(m.stack)),
    ord("s"): lambda m: m.set(list(m.some(2))),
    ord("u"): lambda m: m.set(m.marked()),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.marked()),
    ord("q"): lambda m: m.remember(m.number("<B")),
    ord("r"): lambda m: m.remember(m.number("<I")),
    ord("p"): lambda m: m.remember(m.whole()),
    0x94: lambda m: m.remember(len(m.memo)),
    ord("h"): lambda m: m.recall(m.number("<B")),
    ord("j"): lambda m: m.recall(m.number("<I")),
    ord("g"): lambda m: m.recall(m.whole()),
    ord("c"): lambda m: m.push(known_name(m.line().decode("latin-1"), m.line().decode("latin-1"))),
    0x93: lambda m: m.stacked_name(),
    ord("R"): lambda m: m.call(),
    ord("b"): lambda m: m.build(),
}


def _pushing(make: Callable[[_Machine], Any]) -> Callable[[_Machine], object]:
    return lambda m: m.push(make(m))


_STEPS = _DONE | {code: _pushing(make) for code, make in _PUSHED.items()}
