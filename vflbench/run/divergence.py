"""Why a run diverged, as far as it is known: the data, a defense, the protocol's or the optimiser's options."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from vflbench.data.rows import TrainTest
from vflbench.defenses.base import Defense
from vflbench.defenses.trace import Trace
from vflbench.errors import UserError
from vflbench.run.setup import Experiment

_LOUD = 1e3  # times the size of what a defense was given, or of a usual loss
_SAVED = "Completed epochs are in metrics.csv"


def diverged(experiment: Experiment, data: TrainTest, trace: Trace, problem: str) -> UserError:
    """The error for a run that met a number that is not finite: names the option behind it, or says that it isn't known.

    In this order: a column of the data that isn't finite; a defense that made of finite numbers some that aren't, or that
    made them `_LOUD` times as large; the options of the protocol or the optimiser that are outside their usual range.
    """
    if column := _bad_column(data):
        return UserError(f"{problem}; {column}, and no option mends that", key="dataset")
    for name, defense in experiment.defenses.items():
        if name in trace.broke:
            what = f"{name} made numbers that are not finite of finite ones"
            return _blamed(f"defense.{name}", _options(defense), f"{problem}; {what}, with")
    rates = hasattr(experiment.protocol, "rate")
    owner: Any
    room, owner = ("protocol", experiment.protocol) if rates else ("optimizer", experiment.optimizer)
    outside = sorted(_outside(owner), key=lambda item: -item[2])
    unusual = [f"{room}.{name}={value} is unusual as well" for name, value, _ in outside]
    for name, defense in sorted(experiment.defenses.items(), key=lambda item: -trace.size(item[0])):
        if trace.size(name) > _LOUD:
            what = f"the likely cause is {name}, which made numbers or a loss {trace.size(name):.3g} times as large"
            return _blamed(f"defense.{name}", _options(defense), "; ".join([problem, *unusual, f"{what}, with"]))
    if not outside:
        candidates = [f"{room}.{name}={getattr(owner, name)}" for name in owner.usual if hasattr(owner, name)]
        candidates += [f"defense={name}" for name in experiment.defenses]
        candidates += ["the model's own modules"] if _has_modules(experiment) else []
        cause = "the cause isn't known, as every option of the step is in its usual range"
        return UserError(f"{problem}; {cause}; candidates are {', '.join(candidates)}. {_SAVED}", key=room)
    name, value, _ = outside[0]
    low, high = owner.usual[name]
    cause = f"the likely cause is this option, usually from {low:g} to {high:g}"
    return UserError(f"{'; '.join([problem, cause, *unusual[1:]])}. {_SAVED}", key=f"{room}.{name}", value=value)


def _blamed(key: str, options: Mapping[str, Any], problem: str) -> UserError:
    listed = ", ".join(f"{name}={value}" for name, value in options.items()) or "no options"
    return UserError(f"{problem} {listed}. {_SAVED}", key=key)


def _options(defense: Defense) -> dict[str, Any]:
    """Its numbers, by name."""
    fields: Any = dataclasses.fields(defense) if dataclasses.is_dataclass(defense) else ()
    values: dict[str, Any] = {field.name: getattr(defense, field.name) for field in fields}
    return {name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}


def _outside(owner: Any) -> Iterator[tuple[str, float, float]]:
    """The options outside their usual range, and how many times beyond its end they are."""
    for name, (low, high) in owner.usual.items():
        value = getattr(owner, name, low)
        if value > high:
            yield name, value, value / high if high > 0 else float("inf")
        elif value < low:
            yield name, value, low / value if value > 0 else float("inf")


def _has_modules(experiment: Experiment) -> bool:
    return hasattr(experiment.model, "bottom_options")


def _bad_column(data: TrainTest) -> str:
    """A column of the training or the test rows with a number that is not finite, in words; empty if all are finite."""
    for split, rows in {"training": data.train, **data.held_out}.items():
        for block in rows.blocks(None):
            for party, features in block.features.items():
                bad = ~features.numeric.isfinite()
                if not bool(bad.any()):
                    continue
                column = int(bad.any(dim=0).nonzero()[0, 0])
                name, value = features.columns.numeric[column], features.numeric[bad[:, column], column][0].item()
                return f"column {name} of party {party} has {value} in a {split} row"
    return ""
