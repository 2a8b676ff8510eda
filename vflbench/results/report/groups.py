"""Runs that differ in their seed alone, side by side with those that they are compared with."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vflbench.numerics.interval import Interval, mean_interval, within_unit
from vflbench.results.identity import essential
from vflbench.results.report import quantity
from vflbench.results.report.sweep import Run

_NEUTRAL = {"dcor": ("alpha_d", 0.0), "marvell": ("sumkl", math.inf)}
"""Defense -> the option and its value with which it changes nothing, if nothing else asks for noise."""


@dataclass(frozen=True)
class Group:
    """Runs of one configuration, one a seed. name: what tells it from the others of its section."""

    runs: tuple[Run, ...]
    name: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.runs[0].config

    @property
    def defense(self) -> str:
        return "+".join(self.config.get("defense") or {}) or "none"

    @property
    def count(self) -> str:
        """How many runs, in words."""
        return f"{len(self.runs)} runs" if len(self.runs) > 1 else "one run: no interval"

    @property
    def seeds(self) -> list[Any]:
        return [run.config.get("seed") for run in self.runs]

    @property
    def undefended(self) -> bool:
        """No defense, or only such as change nothing: alpha_d = 0, sumKL = inf."""
        return all(_is_neutral(name, options or {}) for name, options in (self.config.get("defense") or {}).items())

    def attacks(self) -> list[str]:
        return list(dict.fromkeys(key for run in self.runs for key in quantity.by_attack(run)))

    def values(self, name: str, layer: str | None = None) -> dict[Any, float]:
        """Seed -> value, of the runs that have one. `leak_auc` and the like: of the attack with the largest mean."""
        if name in quantity.LEAKS:
            name = f"{name}:{self.worst_attack(name, layer)}"
        found = {run.config.get("seed"): quantity.value(run, name, layer) for run in self.runs}
        return {seed: value for seed, value in found.items() if not math.isnan(value)}

    def worst_attack(self, name: str = "leak_auc", layer: str | None = None) -> str:
        """The attack on messages whose mean over seeds is the largest, or that `name` names; empty if none scored."""
        name, _, named = name.partition(":")
        if named or name not in quantity.LEAKS:
            return named
        means: dict[str, list[float]] = {}
        for run in self.runs:
            for attack, value in quantity.by_attack(run, name, layer).items():
                means.setdefault(attack, []).extend([] if math.isnan(value) else [value])
        scored = {attack: math.fsum(values) / len(values) for attack, values in means.items() if values}
        return max(scored, key=scored.__getitem__, default="")

    def interval(self, name: str, layer: str | None = None) -> Interval:
        """Mean and Student's 95 % interval over seeds; that of an AUC, an accuracy or the like within [0, 1]."""
        return bounded(name, mean_interval(list(self.values(name, layer).values())))


def bounded(name: str, interval: Interval) -> Interval:
    """An AUC or a share lies in [0, 1], a two-sided AUC in [0.5, 1], and so does its interval."""
    if name.partition(":")[0] in ("leak_auc", "leak_two_sided", "leak_oriented"):
        return Interval(interval.mean, max(interval.low, 0.5), min(interval.high, 1.0))
    in_unit = any(word in name for word in ("auc", "accuracy", "leak")) and "ami" not in name
    return within_unit(interval) if in_unit else interval


def paired(group: Group, baseline: Group, name: str, layer: str | None = None) -> tuple[Interval, int]:
    """Mean and 95 % interval of value - baseline's value with the same seed, and the number of pairs."""
    ours, theirs = group.values(name, layer), baseline.values(name, layer)
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return mean_interval(differences), len(differences)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups with the names that tell them apart, undefended ones first, then in the order of their options."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_key(run.config, ("seed",)), []).append(run)
    groups = [Group(tuple(sorted(members, key=lambda r: str(r.config.get("seed"))))) for members in found.values()]
    told = distinguishing(groups)
    named = [replace(g, name=_name(g, t), told=t) for g, t in zip(groups, told, strict=True)]
    return sorted(named, key=lambda g: (g.defense != "none", g.defense, [_rank(k, v) for k, v in sorted(g.told.items())]))


def baseline_of(group: Group, groups: Iterable[Group]) -> Group | None:
    """The undefended group with which all else is equal; itself if it is one."""
    if group.undefended:
        return group
    rest = _key(group.config, ("seed", "defense"))
    found = [g for g in groups if g.undefended and _key(g.config, ("seed", "defense")) == rest]
    return min(found, key=lambda g: g.defense != "none", default=None)


def distinguishing(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """For each group: the options that differ among the groups; those of defenses, among groups with the same ones."""
    leaves = [flatten(essential(g.config)) for g in groups]
    by_defense: dict[str, list[int]] = {}
    for index, g in enumerate(groups):
        by_defense.setdefault(g.defense, []).append(index)
    told: list[dict[str, Any]] = [{} for _ in groups]
    for members in [list(range(len(groups))), *by_defense.values()]:
        whole = len(members) == len(groups) and len(by_defense) > 1
        keys = dict.fromkeys(key for index in members for key in leaves[index])
        for key in keys:
            if key == "seed" or (whole and key.startswith("defense")):
                continue
            if len({json.dumps(leaves[i].get(key), default=str) for i in members}) > 1:
                for index in members:
                    if key in leaves[index]:
                        told[index][key] = leaves[index][key]
    return [_without_parts_of_others(dict(sorted(t.items(), key=_weight))) for t in told]


def _weight(entry: tuple[str, Any]) -> int:
    """What a reader looks for comes first: the defense's options, then the others, then the attacks'."""
    return ("defense", "", "attack").index(group if (group := entry[0].split(".")[0]) in ("defense", "attack") else "")


def _without_parts_of_others(told: dict[str, Any]) -> dict[str, Any]:
    """Where the class differs, its name says enough: the options that only it has go."""
    classes = {key.removesuffix("._target_") for key in told if key.endswith("._target_")}
    return {
        key: value
        for key, value in told.items()
        if key.endswith("._target_") or not any(key.startswith(f"{cls}.") for cls in classes)
    }


def flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def short(key: str) -> str:
    """The last part of a dotted key; of a class, the part before."""
    parts = key.split(".")
    return parts[-2] if parts[-1] == "_target_" and len(parts) > 1 else parts[-1]


def shown(value: Any) -> str:
    """An option's value; a class by its last name, a file by its own."""
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text.rsplit(".", 1)[-1] if text.startswith("vflbench.") else text.rsplit("/", 1)[-1]


def _name(group: Group, told: Mapping[str, Any]) -> str:
    parts = [f"{short(key)} {shown(value)}" for key, value in told.items() if not key.startswith("attack")]
    attacks = [key for key in told if key.startswith("attack")]
    if attacks:
        own = group.config.get("attack") or {}
        inner = [f"{short(key)} {shown(told[key])}" for key in attacks if not key.endswith("_target_")]
        parts.append("attacked by " + ("+".join(own) or "none") + (f" ({', '.join(inner)})" if 0 < len(inner) <= 3 else ""))
    return f"{group.defense}{', ' if parts else ''}{', '.join(parts)}"


def _key(config: Mapping[str, Any], without: Sequence[str]) -> str:
    kept = {key: value for key, value in essential(config).items() if key not in without}
    return json.dumps(kept, sort_keys=True, default=str)


def _is_neutral(name: str, options: Mapping[str, Any]) -> bool:
    if name not in _NEUTRAL or options.get("error_bound") is not None or options.get("power") is not None:
        return False
    key, value = _NEUTRAL[name]
    return isinstance(options.get(key), int | float) and options[key] == value


def _rank(key: str, value: Any) -> tuple[str, bool, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return key, True, float(value), ""
    return key, False, 0.0, str(value)
