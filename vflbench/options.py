"""Options of a component: a dataclass that checks types and ranges when it is made. The state that it keeps beside them.

`@options` is a pydantic dataclass, strict (no "3" for 3, no true for 1) and closed (no unknown name), so the same check
holds for YAML, the command line and Python. `build.py` turns what it refuses into one paragraph.
"""

import copy
import dataclasses
import inspect
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_origin

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_CONFIG = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

C = TypeVar("C")


@dataclass_transform(kw_only_default=True)
def options(cls: type[C]) -> type[C]:
    """A class whose annotated attributes are options with types and ranges."""
    return dataclass(kw_only=True, config=_CONFIG)(cls)  # type: ignore[return-value]


Count = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, lt=1)]  # the open interval (0, 1)


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
    fixed = options | {name for name, hint in hints.items() if hint is ClassVar or get_origin(hint) is ClassVar}
    return {name: value for name, value in vars(component).items() if name not in fixed}


def restore_attributes(component: Any, state: dict[str, Any]) -> None:
    """Copies, so that nothing hangs on the file they were read from."""
    vars(component).update(copy.deepcopy(state))
