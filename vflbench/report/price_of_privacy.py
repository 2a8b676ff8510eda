"""What label privacy costs: test AUC by the proved ceiling and the number of epochs, at learning rates that validation rows
chose.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflbench.report.groups import Group, options_key
from vflbench.report.option_words import in_words
from vflbench.report.sections import Section
from vflbench.results import quantity
from vflbench.results.runs import Run
from vflbench.results.table_formats import Table

EXPERIMENT = "price_of_privacy"
OTHER_SEEDS = "1,2"
_CEILINGS = (("dp.eps", "0.753", "1.076"), ("gdp.mu", "0.661", "0.935"))
OTHER_CEILING = {f"defense.label_{a}={b}": f"defense.label_{a}={c}" for a, b, c in _CEILINGS}
"""The experiment's options -> those of the second ceiling, leak AUC 0.746, of the runs that `commands` makes."""
_DATA = ("path", "rows", "min_count", "numeric_transform")


@dataclass(frozen=True)
class Setting:
    """A defense with its options. ceiling: of the leak AUC from all messages, 1 where nothing is promised.

    others: the other options that distinguish it, in words. rest: all other options but the learning rate and the number of
    epochs, and what made the runs.
    """

    method: str
    ceiling: float
    others: str
    rest: str


def chosen(section: Section) -> dict[Setting, dict[int, Group]]:
    """Setting -> epochs -> the group at the rate with the highest validation AUC in the first seed.

    Test rows choose nothing. Empty for sections of other experiments, and without validation rows.
    """
    groups = [g for g in section.groups if section.experiment == EXPERIMENT and _first_seed(g) is not None]
    table: dict[Setting, dict[int, list[Group]]] = {}
    for g in groups:
        table.setdefault(_setting(g), {}).setdefault(g.config["epochs"], []).append(g)
    return {
        setting: {epochs: max(of, key=_validation) for epochs, of in sorted(by_epochs.items())}
        for setting, by_epochs in table.items()
    }


def price_table(section: Section) -> Table:
    """A line a defense, two columns for each number of epochs: test AUC and the chosen rate."""
    table = chosen(section)
    counts = sorted({epochs for by_epochs in table.values() for epochs in by_epochs})
    rows: list[list[Any]] = []
    for setting in sorted(table, key=lambda s: (-s.ceiling, s.method, s.others, s.rest)):
        cells: list[Any] = [
            ", ".join(filter(None, [setting.method, setting.others])),
            None if setting.ceiling == 1 else setting.ceiling,
        ]
        for epochs in counts:
            group = table[setting].get(epochs)
            cells += (
                [None, None, None] if group is None else [group.interval("test_auc"), f"{rate(group):g}", len(group.runs)]
            )
        rows.append(cells)
    columns = ["defense", "ceiling"]
    for n in counts:
        columns += [f"test AUC, {n} epoch{'s' * (n > 1)}", f"rate, {n}", f"runs, {n}"]
    note = (
        "Test AUC: mean (95 % t-interval over seeds) at the learning rate with the highest validation AUC in the first "
        "seed, which has them all. Ceiling: of the leak AUC from all messages of a run. "
        "`vflbench report DIR --commands` prints the commands for the other seeds at these rates."
    )
    return Table(f"{section.slug}_price", "The price of label privacy", tuple(columns), rows, note)


def commands(section: Section) -> list[str]:
    """Two for each number of epochs and learning rate: other seeds, and all seeds at the other ceiling.

    They skip runs that are there. Empty for sections of other experiments.
    """
    lines = []
    for by_epochs in chosen(section).values():
        for epochs, group in by_epochs.items():
            run = min(group.runs, key=lambda run: run.seed)
            data = [f"dataset={run.dataset}"]
            data += [f"dataset.{key}={value}" for key in _DATA if (value := run.option(f"dataset.{key}")) is not None]
            key = (*data, f"epochs={epochs}", f"optimizer.lr={rate(group):g}")
            defense = [str(word) for word in run.manifest.get("overrides") or () if str(word).startswith("defense")]
            others = [OTHER_CEILING.get(word, word) for word in defense]
            if not {*OTHER_CEILING.values()} & {*defense}:
                lines.append([*key, f"seed={OTHER_SEEDS}", *(defense or ["defense=none"])])
            if others != defense:
                lines.append([*key, f"seed={run.seed},{OTHER_SEEDS}", *others])
    return [shlex.join(["vflbench", "train", f"experiment={EXPERIMENT}", *words]) for words in lines]


def rate(group: Group) -> float:
    return quantity.number(group.runs[0].option("optimizer.lr"))


def _first_seed(group: Group) -> Run | None:
    """The run with the first seed, if it has validation rows."""
    known = [run for run in group.runs if isinstance(run.seed, int) and _auc(run) == _auc(run)]
    usable = isinstance(group.config.get("epochs"), int) and rate(group) == rate(group)
    return min(known, key=lambda run: run.seed, default=None) if usable else None


def _validation(group: Group) -> tuple[int, float]:
    """Groups without the first seed come last: other seeds choose nothing."""
    run = _first_seed(group)
    return (-run.seed, _auc(run)) if run is not None else (0, -1.0)


def _auc(run: Run) -> float:
    return quantity.number(run.summary.get("validation_auc"))


def _setting(group: Group) -> Setting:
    run = group.runs[0]
    promises = [p for p in (run.summary.get("guarantees") or {}).values() if p]
    ceilings = [v for p in promises if (v := quantity.number(p.get("leak_auc_all_messages"))) == v]
    choice = (run.manifest.get("choices") or {}).get("defense")  # its options may follow from the number of epochs
    config = {key: value for key, value in group.config.items() if key not in ("epochs", "defense" if choice else "")}
    optimizer = config.get("optimizer")
    if isinstance(optimizer, Mapping):
        config["optimizer"] = {key: value for key, value in optimizer.items() if key != "lr"}
    rest = f"{options_key(config, ('seed',))} {choice} {group.made_by}"
    others = {k: v for k, v in group.options.items() if not k.startswith(("defense", "attack", "epochs", "optimizer.lr"))}
    words = ", ".join([*in_words(others), *filter(None, [group.made_by])])
    return Setting(_method(run.config.get("defense") or {}), round(min(ceilings, default=1.0), 3), words, rest)


def _method(defense: Mapping[str, Any]) -> str:
    names: list[str] = []
    for name, node in defense.items():
        options: Mapping[str, Any] = node or {}
        words: Sequence[str] = [
            str(options[key]) for key in ("mechanism", "target", "noise") if options.get(key) not in (None, "auto")
        ]
        names.append(" ".join([name, *(word for word in words if word != "randomized_response")]))
    return " + ".join(names) or "none"
