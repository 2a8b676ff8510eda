"""What a component keeps from batch to batch, told and put back, so that a run that was stopped can go on."""

import copy
import dataclasses
import inspect
from typing import Any, ClassVar, get_origin


def state_of(component: Any) -> dict[str, Any]:
    """What its own `state()` says; of a class without one, every attribute that is no option."""
    return component.state() if hasattr(component, "state") else attributes(component)


def restore_state(component: Any, state: dict[str, Any]) -> None:
    """Put back what `state_of` told of a component of the same class and options."""
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
