"""Runs that differ only in their seed, and the runs that they are compared with."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import LEAST_RUNS, OverRuns, over_runs
from vflbench.report.option_words import in_words, within
from vflbench.results import quantity
from vflbench.results.provenance import digest, essential, may_be_compared, names_of, origin
from vflbench.results.runs import Run

_NEUTRAL = {"dcor": ("alpha_d", 0.0), "marvell": ("sumkl", math.inf)}
"""Defense -> the option and the value at which it changes nothing, if no other option asks for noise."""

_MOST_NAME = 300  # characters


@dataclass(frozen=True)
class Group:
    """Runs of one configuration and one origin, one per seed: the same code, plug-ins, data and device.

    options: those that distinguish it from the other groups of its section. made_by: what of its origin distinguishes it
    from groups of the same options, in words; '' if there are none. name: its defenses and these, in words.
    """

    runs: tuple[Run, ...]
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    made_by: str = ""

    @property
    def config(self) -> Mapping[str, Any]:
        return self.runs[0].config

    @property
    def defense(self) -> str:
        return self.runs[0].defense

    @property
    def adversary(self) -> str:
        return self.runs[0].adversary

    @property
    def count(self) -> str:
        """The number of runs, in words."""
        count = f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        return count if len(self.runs) >= LEAST_RUNS else f"{count}: no interval"

    @property
    def seeds(self) -> list[Any]:
        return [run.seed for run in self.runs]

    @property
    def undefended(self) -> bool:
        """Whether it has no defense, or only defenses that change nothing: alpha_d = 0, sumKL = inf."""
        if self.runs[0].is_audit:
            return False
        return all(_is_neutral(name, options or {}) for name, options in (self.config.get("defense") or {}).items())

    @property
    def honest(self) -> "Group | None":
        """Of runs with an adversary: the same runs without it; None if there are none."""
        runs = tuple(run.honest for run in self.runs if run.honest is not None)
        return Group(runs, f"{self.name}, honest") if runs else None

    def attacks(self) -> list[str]:
        return list(dict.fromkeys(key for run in self.runs for key in quantity.by_attack(run)))

    def values(self, name: str, layer: str | None = None) -> dict[Any, float]:
        """Seed -> value, of the runs that have one. `leak_auc` and the like: of the attack with the largest mean."""
        if name in quantity.LEAKS:
            name = f"{name}:{self.worst_attack(name, layer)}"
        values = {run.seed: quantity.value(run, name, layer) for run in self.runs}
        return {seed: value for seed, value in values.items() if not math.isnan(value)}

    def worst_attack(self, name: str = "leak_auc", layer: str | None = None) -> str:
        """The attack on messages with the largest mean over seeds, or the attack in `name`; empty if none scored."""
        name, _, named = name.partition(":")
        if named or name not in quantity.LEAKS:
            return named
        by_name: dict[str, list[float]] = {}
        for run in self.runs:
            for attack, value in quantity.by_attack(run, name, layer).items():
                by_name.setdefault(attack, []).extend([] if math.isnan(value) else [value])
        means = {attack: math.fsum(values) / len(values) for attack, values in by_name.items() if values}
        return max(means, key=means.__getitem__, default="")

    def interval(self, name: str, layer: str | None = None) -> OverRuns:
        """Mean and Student's 95 % interval over seeds, within the range of the figure."""
        return over_runs(self.values(name, layer).values(), range_of(name))


def paired(group: Group, baseline: Group, name: str, layer: str | None = None) -> tuple[OverRuns, int]:
    """Mean and 95 % interval of value - baseline's value with the same seed, and the number of pairs."""
    values, theirs = group.values(name, layer), baseline.values(name, layer)
    differences = [values[seed] - theirs[seed] for seed in values if seed in theirs]
    low, high = range_of(name)
    return over_runs(differences, (low - high, high - low)), len(differences)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups with the names that distinguish them; undefended ones first, then in the order of their options."""
    by_key: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        alike = by_key.setdefault(options_key(run.config, ("seed",)), {})
        alike.setdefault(json.dumps(origin(run)), []).append(run)
    groups, made_by = [], []
    for of_options in by_key.values():
        parts = list(of_options.values())
        groups += [Group(tuple(sorted(part, key=lambda r: str(r.seed)))) for part in parts]
        made_by += names_of([part[0] for part in parts])
    options = distinguishing(groups)
    named = [
        replace(g, name=", ".join(filter(None, [within(settings_name(g, o), _MOST_NAME), made])), options=o, made_by=made)
        for g, o, made in zip(groups, options, made_by, strict=True)
    ]
    return sorted(_told_apart(named), key=_order)


def _told_apart(groups: Sequence[Group]) -> list[Group]:
    """Tables collect values by name: of several groups with one name, each also has a digest of its options in it."""
    times = Counter(g.name for g in groups)
    return [
        g if times[g.name] == 1 else replace(g, name=f"{g.name}, options {digest({**g.config, 'seed': None})}")
        for g in groups
    ]


def baseline_of(group: Group, groups: Iterable[Group]) -> Group | None:
    """The undefended group with all other options equal and of the same origin; the group itself if it is undefended."""
    if group.undefended:
        return group
    rest = options_key(group.config, ("seed", "defense"))
    equal = [g for g in groups if g.undefended and options_key(g.config, ("seed", "defense")) == rest]
    equal = [g for g in equal if may_be_compared(group.runs[0], g.runs[0])]
    same = [g for g in equal if origin(g.runs[0]) == origin(group.runs[0])]
    return min(same or equal, key=lambda g: g.defense != "none", default=None)


def distinguishing(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """For each group: the options that differ among the groups; options of defenses, among groups with the same ones."""
    leaves = [flatten(essential(g.config)) for g in groups]
    by_defense: dict[str, list[int]] = {}
    for index, g in enumerate(groups):
        by_defense.setdefault(g.defense, []).append(index)
    options: list[dict[str, Any]] = [{} for _ in groups]
    for members in [list(range(len(groups))), *by_defense.values()]:
        whole = len(members) == len(groups) and len(by_defense) > 1
        keys = dict.fromkeys(key for index in members for key in leaves[index])
        for key in keys:
            if key == "seed" or (whole and key.startswith("defense")):
                continue
            if len({json.dumps(leaves[i].get(key), default=str) for i in members}) > 1:
                for index in members:
                    if key in leaves[index]:
                        options[index][key] = leaves[index][key]
    return [_without_parts_of_others(dict(sorted(o.items(), key=_weight))) for o in options]


def _weight(entry: tuple[str, Any]) -> int:
    """The order in a name: the defense's options, then the others, then those of attacks."""
    return ("defense", "", "attack").index(group if (group := entry[0].split(".")[0]) in ("defense", "attack") else "")


def _without_parts_of_others(options: dict[str, Any]) -> dict[str, Any]:
    """If a class differs, its name is enough: the options that only this class has are left out."""
    classes = {key.removesuffix("._target_") for key in options if key.endswith("._target_")}
    return {
        key: value
        for key, value in options.items()
        if key.endswith("._target_") or not any(key.startswith(f"{cls}.") for cls in classes)
    }


def flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def _order(group: Group) -> tuple[Any, ...]:
    ranks = [_rank(key, value) for key, value in sorted(group.options.items())]
    return group.defense != "none", group.defense, group.adversary != "none", group.adversary, ranks, group.made_by


def settings_name(group: Group, options: Mapping[str, Any]) -> str:
    """Its defenses, and these options, in words."""
    others = {key: value for key, value in options.items() if key.split(".")[0] not in ("attack", "adversary")}
    parts = in_words(others)
    if group.adversary != "none" and any(key.startswith("adversary") for key in options):
        parts.append(f"adversary {group.adversary}{_inner(options, 'adversary')}")
    if any(key.startswith("attack") for key in options):
        attacks = list(group.config.get("attack") or {})
        attacks = attacks if len(attacks) <= 4 else [*attacks[:2], f"{len(attacks) - 2} more"]
        parts.append("attacked by " + ("+".join(attacks) or "none") + _inner(options, "attack"))
    return f"{group.defense}{', ' if parts else ''}{', '.join(parts)}"


def _inner(options: Mapping[str, Any], head: str) -> str:
    """The distinguishing options of attacks or adversaries in brackets, if they are few."""
    words = in_words({k: v for k, v in options.items() if k.startswith(f"{head}.") and not k.endswith("_target_")})
    return f" ({', '.join(words)})" if 0 < len(words) <= 3 else ""


def options_key(config: Mapping[str, Any], without: Sequence[str]) -> str:
    rest = {key: value for key, value in essential(config).items() if key not in without}
    return json.dumps(rest, sort_keys=True, default=str)


def _is_neutral(name: str, options: Mapping[str, Any]) -> bool:
    if name not in _NEUTRAL or options.get("error_bound") is not None or options.get("power") is not None:
        return False
    key, value = _NEUTRAL[name]
    return isinstance(options.get(key), int | float) and options[key] == value


def _rank(key: str, value: Any) -> tuple[str, bool, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return key, True, float(value), ""
    return key, False, 0.0, str(value)
