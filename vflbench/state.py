"""What a component keeps from batch to batch, told and put back, so that a run that was stopped can go on."""

import copy
import dataclasses
from typing import Any


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
    """Attributes that are no option: options of an `@options` class never change."""
    options = {field.name for field in dataclasses.fields(component)} if dataclasses.is_dataclass(component) else set()
    return {name: value for name, value in vars(component).items() if name not in options}


def restore_attributes(component: Any, state: dict[str, Any]) -> None:
    """Copies, so that nothing hangs on the file they were read from."""
    vars(component).update(copy.deepcopy(state))
