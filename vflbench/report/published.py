"""Experiments that can be repeated: what configs/experiment says of them, and what was published.

NAME.yaml is the sweep; its first comments say what it shows, its `Source:` and its `Cost:`. published_values.json has,
under NAME, what was published: `data` and `scale` of the original, `values`, and the options that `reproduce` adds on the
command line.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vflbench.files import config_folder

OVER_DAYS = "mean over days"
"""In the words on a published value that is one."""
LOSS_OF = "loss_of:"
"""`loss_of:test_auc`: what the undefended run of the same seed has more of."""


@dataclass(frozen=True)
class Value:
    """A published number. options: dotted key -> value of the runs that repeat it.

    number: None if no number is printed; mark: the sign that is printed in its place, and reason: what it stands for, or why
    there is no number. quantity: the quantity of the runs that it is compared with, as in
    `vflbench.report.group.Section.values`, or `loss_of:` and its name for what a defense costs; None if no run measures it.
    """

    what: str
    number: float | None
    quantity: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    mark: str = ""
    reason: str = ""


@dataclass(frozen=True)
class PublishedExperiment:
    """minutes: expected on 2 cores, nan if `cost` names none. sweep: option -> its values, as Hydra's sweeper takes them."""

    name: str
    does: str
    source: str
    cost: str
    config: Mapping[str, Any]
    data: str = ""
    scale: str = ""
    note: str = ""
    values: tuple[Value, ...] = ()
    reproduce: Sequence[str] = ()

    @property
    def minutes(self) -> float:
        match = re.match(r"(?:about )?([0-9.]+) minutes?\b", self.cost)
        return float(match[1]) if match else float("nan")

    @property
    def sweep(self) -> Mapping[str, Any]:
        hydra = self.config.get("hydra") or {}
        return (hydra.get("sweeper") or {}).get("params") or {}

    @property
    def is_sweep(self) -> bool:
        return (self.config.get("hydra") or {}).get("mode") == "MULTIRUN"

    @property
    def dataset(self) -> str | None:
        """The data set that the experiment chooses; None if it leaves the choice to the user."""
        entries = [entry for entry in self.config.get("defaults") or () if isinstance(entry, Mapping)]
        chosen = {key.removeprefix("override ").strip("/ "): str(value) for entry in entries for key, value in entry.items()}
        return chosen.get("dataset")


def read_experiments(names: Collection[str] | None = None) -> dict[str, PublishedExperiment]:
    """Name -> experiment for every YAML file in configs/experiment. names: those that are wanted."""
    files = sorted((config_folder() / "experiment").glob("*.yaml"))
    return {file.stem: read_experiment(file) for file in files if names is None or file.stem in names}


def read_experiment(file: Path) -> PublishedExperiment:
    """file: NAME.yaml, with published_values.json beside it."""
    comments: dict[str, Any] = dict(comments_of(file))
    comments.pop("threat")
    published = json.loads(file.with_name("published_values.json").read_text()).get(file.stem, {})
    published["values"] = tuple(Value(**value) for value in published.get("values", ()))
    return PublishedExperiment(file.stem, config=yaml.safe_load(file.read_text()) or {}, **comments, **published)


def comments_of(file: Path) -> dict[str, str]:
    """source, threat, cost: the comment lines that begin with `Source: `, ...  does: the first other comment line."""
    comments = {"does": "", "source": "", "threat": "", "cost": ""}
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            label, _, text = line.lstrip("# ").partition(": ")
            key = label.lower() if label in ("Source", "Threat", "Cost") else "does"
            comments[key] = comments[key] or (text if key != "does" else line.lstrip("# "))
    return comments
