"""Options of a component: a dataclass that checks types and ranges when it is made. The state that it keeps beside them.

`@options` is a pydantic dataclass, strict (no "3" for 3, no true for 1) and closed (no unknown name), so the same check
holds for YAML, the command line and Python. `build.py` turns what it refuses into one paragraph.

The ranges of numbers that several classes have stand here, under the name with which they annotate their options. A range
is wide: it holds whatever an experiment could want, and leaves out what no arithmetic of ours survives, such as a step size
of 1e30 or 10^13 known rows. A class with a range of its own narrows one of these, as in Annotated[Width, Range(3, 10**6)].
"""

import copy
import dataclasses
import inspect
import math
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

from pydantic import ConfigDict, GetCoreSchemaHandler
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, core_schema

_CONFIG = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

C = TypeVar("C")


@dataclass_transform(kw_only_default=True)
def options(cls: type[C]) -> type[C]:
    """A class whose annotated attributes are options with types and ranges."""
    return dataclass(kw_only=True, config=_CONFIG)(cls)  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included. zero, infinity: whether 0 and inf, which lie outside, do as well."""

    low: float = -math.inf
    high: float = math.inf
    zero: bool = False
    infinity: bool = False

    def __contains__(self, value: float) -> bool:
        if math.isinf(value):
            return self.infinity and value > 0
        return self.low <= value <= self.high or (self.zero and value == 0)

    def __str__(self) -> str:
        others = ", or 0" * (self.zero and self.low > 0) + ", or inf" * self.infinity
        return f"from {_written(self.low)} to {_written(self.high)}{others}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: float) -> float:
        if value not in self:
            raise ValueError(f"it must be a number {self}")
        return value


def _written(number: float) -> str:
    """1000000 as 1,000,000, 1e-08 as 1e-8, and no digit less than it takes to tell the number."""
    return f"{number:,}" if isinstance(number, int) else f"{number:.12g}".replace("e-0", "e-")


Count = Annotated[int, Range(1, 10**9)]
"""How many of something that has no name below."""
NonNegativeInt = Annotated[int, Range(0, 10**9)]
Number = Annotated[int, Range(1, 10**6)]
"""A smaller count, such as epochs or known rows of a batch, or the place of one of them."""
Rows = Annotated[int, Range(1, 10**10)]
"""Rows of a table, of a batch, or that an attack follows; twice the largest click log that was published has fewer."""
Units = Annotated[int, Range(0, 10**4)]
"""Hidden units of an attacker's network, columns of a made table; 0 is none."""
Ids = Annotated[int, Range(1, 2**31 - 1)]
"""Ids of categorical columns, which are 32 bits wide."""
Steps = Annotated[int, Range(1, 10**9)]
"""Steps of training or of a search; batches."""
LayerCount = Annotated[int, Range(1, 1000)]
TopLayers = Annotated[int, Range(0, 1000)]
Width = Annotated[int, Range(1, 10**6)]
"""Numbers that a layer puts out of a row; the size of an embedding of a category."""
Seed = Annotated[int, Range(0, 2**63 - 1)]
"""What torch and numpy take for a seed."""

Positive = Annotated[float, Range(1e-12, 1e12)]
"""A number above 0 that has no name below."""
NonNegative = Annotated[float, Range(1e-12, 1e12, zero=True)]
Rate = Annotated[float, Range(1e-12, 1e4)]
"""A step size."""
Decay = Annotated[float, Range(1e-9, 1 - 1e-9, zero=True)]
"""The share of a moving mean that the last step leaves: beta1 and beta2 of Adam, momentum."""
RootTerm = Annotated[float, Range(1e-20, 100.0)]
"""What Adam adds to the root of its second moment; below 1e-20, float32 can't tell a gradient from none."""
WeightDecay = Annotated[float, Range(1e-12, 1e4, zero=True)]
"""The weight of an L2 penalty on weights."""
Weight = Annotated[float, Range(1e-9, 1e6, zero=True)]
"""The weight of a penalty, a prior, a rule or a ridge; 0 leaves it out."""
Eps = Annotated[float, Range(1e-6, 1e6)]
"""eps of differential privacy, in nats."""
EpsOrZero = Annotated[float, Range(1e-6, 1e6, zero=True)]
Delta = Annotated[float, Range(1e-15, 1 - 1e-9)]
"""delta of differential privacy."""
Sigma = Annotated[float, Range(1e-12, 1e6, zero=True)]
"""A standard deviation, in units of what is disturbed; 0 is no noise."""
Ratio = Annotated[float, Range(1e-9, 1e6)]
"""A length, a step or a ridge, beside another."""
RatioOrZero = Annotated[float, Range(1e-9, 1e6, zero=True)]
Length = Annotated[float, Range(1e-6, 1e6)]
"""A norm of an embedding."""
Fraction = Annotated[float, Range(1e-9, 1 - 1e-9)]
"""A share that is neither nothing nor all."""
Share = Annotated[float, Range(1e-9, 1.0)]
"""A share that may be all."""
ShareOrZero = Annotated[float, Range(1e-9, 1 - 1e-9, zero=True)]
"""A share that may be nothing."""
ShareOrAll = Annotated[float, Range(0.0, 1.0)]
"""A place between two ends, both of which do."""
Concentration = Annotated[float, Range(1e-3, 1e6)]
"""Of a Dirichlet distribution."""
HalfShare = Annotated[float, Range(1e-9, 0.5 - 1e-9, zero=True)]
"""A share below one half, or nothing: a rate of errors, a tail."""
Seconds = Annotated[float, Range(1e-3, 1e7)]


def allowed(hint: Any) -> str:
    """What an option with this type hint may be, in words; empty where the hint doesn't say it all."""
    if get_origin(hint) is Annotated:
        number, *extras = get_args(hint)
        ranges = [extra for extra in extras if isinstance(extra, Range)]
        return f"{_WORDS[number]} {ranges[-1]}" if ranges and number in _WORDS else ""  # the last is the narrowest
    if get_origin(hint) in (Union, UnionType):
        parts = [allowed(member) for member in get_args(hint)]
        return ", or ".join(parts) if all(parts) else ""
    if get_origin(hint) is Literal:
        *first, last = map(repr, get_args(hint))
        return f"{', '.join(first)} or {last}" if first else last
    if get_origin(hint) is list:
        return f"a list with each entry {allowed(get_args(hint)[0])}"
    return _WORDS.get(hint, "")


_WORDS: dict[Any, str] = {bool: "true or false", str: "text", int: "a whole number", float: "a number", NoneType: "null"}


def state_of(component: Any) -> dict[str, Any]:
    """The result of its `state()`; of a class without one, every attribute that is no option."""
    return component.state() if hasattr(component, "state") else attributes(component)


def restore_state(component: Any, state: dict[str, Any]) -> None:
    """Restore what `state_of` returned for a component of the same class and options."""
    if hasattr(component, "restore"):
        component.restore(state)
    else:
        restore_attributes(component, state)


def attributes(component: Any) -> dict[str, Any]:
    """Attributes that are no option, nor declared as a ClassVar: options of an `@options` class never change, and what an
    instance says in place of its class follows from them.
    """
    options = {field.name for field in dataclasses.fields(component)} if dataclasses.is_dataclass(component) else set()
    hints = {name: hint for base in type(component).__mro__ for name, hint in inspect.get_annotations(base).items()}
    fixed = options | {name for name, hint in hints.items() if _is_of_class(hint)}
    return {name: value for name, value in vars(component).items() if name not in fixed}


def _is_of_class(hint: Any) -> bool:
    """Whether it is a ClassVar, or says so as text, as annotations of modules do that postpone them."""
    return hint is ClassVar or get_origin(hint) is ClassVar or (isinstance(hint, str) and hint.startswith("ClassVar"))


def restore_attributes(component: Any, state: dict[str, Any]) -> None:
    """Copies, so that nothing hangs on the file they were read from."""
    vars(component).update(copy.deepcopy(state))
