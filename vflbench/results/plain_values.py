"""JSON and YAML that others may have written, as plain values: bounded in size, number and depth."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from vflbench.results.untrusted import MEGA, MOST_TEXT, Unreadable, read_bytes, shown

MOST_JSON, MOST_YAML = 64 * MEGA, 2 * MEGA
"""Bytes of a JSON file and of a YAML file."""
MOST_VALUES, MOST_YAML_VALUES = 1_500_000, 20_000
"""Values in a file, those in lists and mappings counted one by one; in YAML each time that an alias repeats them."""
MOST_DEPTH = 40
"""Lists and mappings within each other."""
MOST_NUMBER = 1e100
"""A larger number overflows where it is squared or added up. Infinity is none in JSON, and is an option's value in YAML."""
_DIGITS = 20  # of an integer: more than 64 bits hold


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises FileNotFoundError and Unreadable."""
    return _parsed(path, read_bytes(path, MOST_JSON), _json)


def read_yaml(path: Path, *, as_it_is: bool = False) -> dict[str, Any]:
    """A YAML mapping without tags of its own. Raises FileNotFoundError and Unreadable.

    as_it_is: with its texts and keys as they are, to compare and never to show.
    """
    return _parsed(path, read_bytes(path, MOST_YAML), partial(_yaml, as_it_is=as_it_is))


def _parsed(path: Path, content: bytes, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        made = parse(content.decode())
    except _LimitError as error:
        raise Unreadable(path, error) from error
    except RecursionError as error:
        raise Unreadable(path, f"it is nested more than {MOST_DEPTH} deep") from error
    except (ValueError, TypeError, OverflowError, yaml.YAMLError) as error:  # TypeError: keys that don't compare
        raise Unreadable(path, error, kind="torn") from error
    if not isinstance(made, dict):
        raise Unreadable(path, "it holds no options or results", kind="torn")
    return made


class _LimitError(ValueError):
    """More than is read."""


def _json(text: str) -> Any:
    if text.count(",") + text.count("[") + text.count("{") > MOST_VALUES:
        raise _LimitError(f"it has more than {MOST_VALUES:,} values")
    return _plain(json.loads(text, parse_constant=_no_constant, parse_int=_integer, parse_float=_number), 0)


def _no_constant(name: str) -> float:
    raise _LimitError(f"{name} is no JSON number")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise _LimitError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no_constant(digits[:40])


def _yaml(text: str, *, as_it_is: bool) -> Any:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
    _check_events(yaml.parse(text, loader))
    made = yaml.load(text, loader)  # nosec B506  # one of PyYAML's two safe loaders
    return made if as_it_is else _plain(made, 0)


def _check_events(events: Iterator[Any]) -> None:
    """Raises ValueError for what would grow too large or too deep, or without end, when aliases are followed.

    It is known before anything is built: an alias stands for as many values as what it repeats.
    """
    sizes: dict[str, tuple[int, int]] = {}  # anchor -> values, depth
    open_: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # anchor, values so far, depth below
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, 1, 0))
            if event.anchor is not None:
                sizes.pop(event.anchor, None)  # an alias in here that has this name is of this one
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, depth = open_.pop()
            _count(open_, values, depth + 1)
            if anchor is not None:
                sizes[anchor] = values, depth + 1
        elif isinstance(event, yaml.ScalarEvent):
            _count(open_, 1, 0)
            if len(event.value) > MOST_TEXT:  # a number of base 60 takes quadratic time
                raise _LimitError(f"it has a text of {len(event.value):,} characters")
            if event.anchor is not None:
                sizes[event.anchor] = 1, 0
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _LimitError("an alias in it repeats itself, or nothing")
            _count(open_, *sizes[event.anchor])
        if len(open_) > MOST_DEPTH:
            raise _LimitError(f"it is nested more than {MOST_DEPTH} deep")


def _count(open_: list[tuple[str | None, int, int]], values: int, depth: int) -> None:
    anchor, before, below = open_[-1]
    open_[-1] = anchor, before + values, max(below, depth)
    if before + values > MOST_YAML_VALUES:
        raise _LimitError(f"it has more than {MOST_YAML_VALUES:,} values, aliases followed")
    if len(open_) + depth > MOST_DEPTH:
        raise _LimitError(f"it is nested more than {MOST_DEPTH} deep")


def _plain(value: Any, depth: int) -> Any:
    """The same of texts, numbers, true, false and null alone; texts are printable (see `shown`), keys are texts."""
    if depth > MOST_DEPTH:
        raise _LimitError(f"it is nested more than {MOST_DEPTH} deep")
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            raise _LimitError(f"it has a text of {len(value):,} characters")
        return value if value.isprintable() else shown(value, MOST_TEXT)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        if value != value or (abs(value) > MOST_NUMBER and not (isinstance(value, float) and math.isinf(value))):
            raise _LimitError(
                f"it has the number {shown(f'{value:.3g}') if isinstance(value, float) else 'of too many digits'}"
            )
        return value
    if isinstance(value, Mapping):
        return {_plain(key if isinstance(key, str) else str(key), depth): _plain(v, depth + 1) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, depth + 1) for v in value]
    if isinstance(value, date):
        return str(value)
    raise _LimitError(f"it has a value of type {type(value).__name__}")
