"""Several runs beside each other: one line for each setting, mean and 95 % interval over seeds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vflbench.numerics.interval import Interval, mean_interval, within_unit
from vflbench.results.read import read_manifest, read_summary

QUANTITIES = ("raw", "two_sided", "oriented", "distance")
"""Of a leak AUC a: a; max(a, 1 - a); the mean over batches of max(a, 1 - a); |a - 0.5|."""


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration and what it came to; manifest: on what data and machine, where that was read."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any] = field(default_factory=dict)

    def option(self, key: str) -> Any:
        """The value of a dotted key; None where this run has no such option."""
        node: Any = self.config
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return None
            node = node[part]
        return node

    @property
    def cut(self) -> str:
        """The layer that crosses."""
        return f"f{self.config['model']['bottom_layers']}"

    def leak(self, attack: str, layer: str | None = None) -> dict[str, float]:
        """Quantity -> leak AUC at that layer (the cut, if left out), of the party with the largest; nan: there is none.

        Of a layer that no attacker sees only where that is asked for by name. Of an attack without messages, the one it has.
        """
        found = [
            leak
            for leak in self.summary["leaks"]
            if leak["attack"] == attack and leak["raw"]["mean"] is not None
            if leak["visible"] or layer is not None
            if leak["message"] == "none" or leak["layer"] == (layer or self.cut)
        ]
        if not found:
            return dict.fromkeys(QUANTITIES, math.nan)
        worst = max(found, key=lambda leak: (leak["visible"], leak["two_sided"]["mean"]))
        values = {name: worst[name]["mean"] for name in ("raw", "two_sided", "oriented")}
        return values | {"distance": abs(values["raw"] - 0.5)}

    def ceiling(self, messages: str) -> float:
        """The least leak AUC that any of its defenses promises for `one_message` or `all_messages`; nan for no promise."""
        promised = [p[f"leak_auc_{messages}"] for p in self.summary["guarantees"].values() if p is not None]
        return min(promised, default=math.nan)


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their seed alone, as far as the chosen options tell."""

    defense: str
    options: tuple[Any, ...]
    runs: tuple[Run, ...]

    def over_seeds(self, quantity: str, attack: str | None = None, layer: str | None = None) -> Interval:
        """A number of summary.json, or a quantity of an attack's leak AUC."""
        values = [run.summary[quantity] if attack is None else run.leak(attack, layer)[quantity] for run in self.runs]
        interval = mean_interval([value for value in values if value is not None and not math.isnan(value)])
        return interval if attack is None and "auc" not in quantity else within_unit(interval)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Every finished run in or under these folders, in the order of their names."""
    found = sorted({file.parent for folder in folders for file in folder.rglob("summary.json")})
    return [Run(f, yaml.safe_load((f / "config.yaml").read_text()), read_summary(f), _manifest(f)) for f in found]


def _manifest(folder: Path) -> dict[str, Any]:
    """Empty where there is none."""
    return read_manifest(folder) if (folder / "manifest.json").exists() else {}


def settings(runs: Sequence[Run], by: Sequence[str]) -> list[Setting]:
    """Runs of the same defenses and values of the options `by`, undefended ones first, then in the order of the values."""
    groups: dict[tuple[str, tuple[Any, ...]], list[Run]] = {}
    for run in runs:
        defense = "+".join(run.config["defense"] or {}) or "none"
        groups.setdefault((defense, tuple(run.option(key) for key in by)), []).append(run)
    ordered = sorted(groups, key=lambda key: (key[0] != "none", key[0], [_rank(value) for value in key[1]]))
    return [Setting(*key, tuple(groups[key])) for key in ordered]


def _rank(value: Any) -> tuple[bool, float, str]:
    return (True, value, "") if isinstance(value, float | int) else (False, 0.0, str(value))


def attacks_of(runs: Sequence[Run]) -> list[str]:
    """Attacks on gradients or embeddings that scored something in any of the runs."""
    return list(dict.fromkeys(leak["attack"] for run in runs for leak in run.summary["leaks"] if leak["visible"]))


def markdown(found: Sequence[Setting], by: Sequence[str], attacks: Sequence[str], layer: str | None = None) -> str:
    """A table: mean (low to high) over the runs of each setting; one run has no interval."""
    names = {"raw": "", "two_sided": ", two-sided", "oriented": ", oriented", "distance": ", \\|AUC - 0.5\\|"}
    leaks = [(attack, quantity) for attack in attacks for quantity in QUANTITIES]
    header = ["defense", *by, "runs", "test AUC", *(f"{attack}{names[quantity]}" for attack, quantity in leaks)]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for setting in found:
        cells = [setting.defense, *("" if v is None else str(v) for v in setting.options), str(len(setting.runs))]
        cells.append(_cell(setting.over_seeds("test_auc")))
        cells += [_cell(setting.over_seeds(quantity, attack, layer)) for attack, quantity in leaks]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(interval: Interval) -> str:
    if math.isnan(interval.mean):
        return "-"
    told = f"{interval.mean:.3f}"
    return told if math.isnan(interval.low) else f"{told} ({interval.low:.3f} - {interval.high:.3f})"


def along(found: Sequence[Setting], position: int = 0) -> Iterator[tuple[float, Setting]]:
    """Settings whose option at that position is a number, with it, in rising order."""
    numbered = [(s.options[position], s) for s in found if isinstance(s.options[position], float | int)]
    yield from sorted(numbered, key=lambda pair: pair[0])
