"""Values held against types, as strictly as pydantic does, and without it: to load it takes longer than to read a run.

What is in order is accepted here. For what isn't, pydantic is asked, and says what is wrong: there is one set of rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Required, TypeVar, Union, get_args, get_origin

from typing_extensions import is_typeddict

from vflbench.results.untrusted import shown

T = TypeVar("T")
Check = Callable[[Any], bool]
_EXACT = 2**53
"""Whole numbers up to here are floats as well."""


@dataclass(frozen=True)
class Most:
    """The most entries of a list or mapping, as in Annotated[list[str], Most(500)]."""

    count: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(source) | {"max_length": self.count}


def open_and_strict(kind: T) -> T:
    """A TypedDict for pydantic: nothing is converted, and names that are not listed may hold anything."""
    kind.__pydantic_config__ = {"strict": True, "extra": "allow"}  # type: ignore[attr-defined]
    return kind


@cache
def accepts(hint: Any) -> Check:
    """Whether a value is of a type: of a TypedDict, whose other keys may hold anything, and what these are made of. False
    may also mean that it can't be said here.
    """
    if is_typeddict(hint):
        return _accepts_fields(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        members = [accepts(arg) for arg in args]
        return lambda value: any(member(value) for member in members)
    if origin is Literal:
        return lambda value: type(value) is str and value in args
    if origin is Annotated:
        whole, most = accepts(args[0]), next(extra.count for extra in args[1:] if isinstance(extra, Most))
        return lambda value: whole(value) and (value is None or len(value) <= most)
    if origin is Required:
        return accepts(args[0])
    if origin is list:
        entry = accepts(args[0])
        return lambda value: type(value) is list and all(map(entry, value))
    if origin is dict:
        key, entry = accepts(args[0]), accepts(args[1])
        return lambda value: type(value) is dict and all(map(key, value)) and all(map(entry, value.values()))
    return _PLAIN[hint]


def _accepts_fields(hint: Any) -> Check:
    fields = {name: accepts(kind) for name, kind in hint.__annotations__.items()}
    required, anything = hint.__required_keys__, accepts(Any)
    return lambda value: (
        type(value) is dict
        and required <= value.keys()
        and all(map(_is_text, value))
        and all(fields.get(name, anything)(entry) for name, entry in value.items())
    )


def _is_text(value: Any) -> bool:
    return type(value) is str and (value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value))


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _EXACT)


_PLAIN: dict[Any, Check] = {
    Any: lambda _: True,
    str: _is_text,
    float: _is_number,
    int: lambda value: type(value) is int and abs(value) <= _EXACT,
    bool: lambda value: type(value) is bool,
    NoneType: lambda value: value is None,
}


def refusal(kind: Any, content: Mapping[str, Any]) -> str | None:
    """What is wrong with the content, in one line; None if nothing is."""
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(shown(part, 60) for part in first["loc"])
        return f"{place} is {shown(repr(first['input']), 60)}: {first['msg'].lower()}"
    return None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
