"""What label privacy costs: test AUC against the proved ceiling and the number of epochs, at learning rates that validation
rows chose.

    vflbench train experiment=price_of_privacy dataset=criteo dataset.path=train.txt.gz
    python scripts/price_of_privacy.py outputs --commands | sh
    python scripts/price_of_privacy.py outputs --picture price_of_privacy.png

For each defense with its options and number of epochs, the learning rate is that of the runs with the highest validation AUC
(the first seed's, which has them all), the same number of rates for each. Prints a Markdown table: the ceiling of the leak
AUC from all messages of a run; for each number of epochs the test AUC, mean over the seeds at that rate, with Student's 95 %
interval, and the rate in brackets. --commands prints commands instead: they make the runs of the other --seeds, and those of
each --ceiling beside the first, at the rates chosen for the first. --picture draws a PNG or SVG.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflbench.numerics.interval import UNIT, OverRuns, interval_text, over_runs
from vflbench.results.files import SUMMARY
from vflbench.results.report.chart import Chart, Point, Series, exact
from vflbench.results.report.raster import write_png
from vflbench.results.report.svg import svg
from vflbench.results.runs import Run, read_runs

STYLES = ("solid", "dashed", "dotted")  # of ceilings


@dataclass(frozen=True)
class Setting:
    """A defense with its options, on some data. ceiling: of the leak AUC from all messages, 1 where nothing is promised."""

    data: str
    method: str
    ceiling: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with finished runs in or under them")
    parser.add_argument("--commands", action="store_true", help="print the commands that make the runs of other seeds")
    parser.add_argument("--seeds", default="1,2", help="of these commands (default: 1,2)")
    parser.add_argument("--ceiling", default="746", help="the other, as in the name of a choice (default: 746)")
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    runs = [run for run in read_runs(options.folders) if "validation_auc" in run.summary]
    if not runs:
        where = ", ".join(map(str, options.folders))
        parser.error(f"there is no finished run with validation rows (no {SUMMARY} that has their AUC) under {where}")
    table = chosen(runs)
    if options.commands:
        print("\n".join(commands(table, options.seeds, options.ceiling)))
        return
    print(markdown(table))
    if options.picture:
        if options.picture.suffix == ".svg":
            options.picture.write_text(svg(chart(table), standalone=True))
        else:
            write_png(chart(table), options.picture)
        print(f"\n{options.picture}")


def setting_of(run: Run) -> Setting:
    promises = [promise for promise in (run.summary.get("guarantees") or {}).values() if promise]
    ceiling = min((promise["leak_auc_all_messages"] for promise in promises), default=1.0)
    names = []
    for name, node in (run.config.get("defense") or {}).items():
        words = [str(node[key]) for key in ("mechanism", "target", "noise") if node.get(key) not in (None, "auto")]
        names.append(" ".join([name, *(word for word in words if word != "randomized_response")]))
    return Setting(run.dataset, " + ".join(names) or "none", round(ceiling, 3))


def rate(run: Run) -> float:
    return float(run.option("optimizer.lr"))


def chosen(runs: Sequence[Run]) -> dict[Setting, dict[int, list[Run]]]:
    """Setting -> epochs -> the runs of all seeds at the rate that validation rows chose in the first seed."""
    table: dict[Setting, dict[int, list[Run]]] = {}
    for run in runs:
        table.setdefault(setting_of(run), {}).setdefault(run.option("epochs"), []).append(run)
    first = min(run.seed for run in runs)
    for of_epochs in table.values():
        for epochs, found in of_epochs.items():
            best = max((run for run in found if run.seed == first), key=lambda run: run.summary["validation_auc"])
            at_best = [run for run in found if rate(run) == rate(best)]
            of_epochs[epochs] = list({run.seed: run for run in at_best}.values())
    return table


def commands(table: Mapping[Setting, Mapping[int, Sequence[Run]]], seeds: str, ceiling: str) -> list[str]:
    """Two for each number of epochs and learning rate: other seeds, and all seeds at the other ceiling. They skip runs that
    are there.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for of_epochs in table.values():
        for epochs, found in of_epochs.items():
            run = min(found, key=lambda run: run.seed)
            data = [f"dataset={run.dataset}"]
            for key in ("path", "rows", "min_count", "numeric_transform"):
                value = run.option(f"dataset.{key}")
                if value is not None:
                    data.append(f"dataset.{key}={value}")
            key = (*data, f"epochs={epochs}", f"optimizer.lr={rate(run):g}")
            choice = choice_of(run)
            method, _, its_ceiling = choice.rpartition("_")
            if its_ceiling != ceiling:
                groups.setdefault((*key, f"seed={seeds}"), []).append(choice)
            if method and its_ceiling != ceiling:
                groups.setdefault((*key, f"seed={run.seed},{seeds}"), []).append(f"{method}_{ceiling}")
    return [
        shlex.join(["vflbench", "train", "experiment=price_of_privacy", *key, f"defense={','.join(names)}"])
        for key, names in groups.items()
    ]


def choice_of(run: Run) -> str:
    return str((run.manifest.get("choices") or {}).get("defense") or "none")


def markdown(table: Mapping[Setting, Mapping[int, Sequence[Run]]]) -> str:
    counts = sorted({epochs for of_epochs in table.values() for epochs in of_epochs})
    header = ["data", "ceiling", "defense", *(f"{n} epoch{'s' * (n > 1)}" for n in counts)]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for setting in sorted(table, key=lambda s: (s.data, -s.ceiling, s.method)):
        cells = [setting.data, "-" if setting.ceiling == 1 else f"{setting.ceiling:.3f}", setting.method]
        cells += [cell(table[setting].get(n, [])) for n in counts]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def cell(runs: Sequence[Run]) -> str:
    if not runs:
        return "-"
    return f"{interval_text(test_auc(runs))} [{rate(runs[0]):g}]"


def test_auc(runs: Sequence[Run]) -> OverRuns:
    return over_runs((run.summary["test_auc"] for run in runs), UNIT)


def chart(table: Mapping[Setting, Mapping[int, Sequence[Run]]]) -> Chart:
    """Test AUC against epochs: a colour for each defense, a kind of line for each ceiling. Of the first data alone."""
    data = next(iter(table)).data
    settings = sorted((s for s in table if s.data == data), key=lambda s: (-s.ceiling, s.method))
    counts = sorted({epochs for setting in settings for epochs in table[setting]})
    methods = list(dict.fromkeys(setting.method for setting in settings))
    ceilings = sorted({setting.ceiling for setting in settings if setting.ceiling < 1}, reverse=True)
    series = []
    for setting in settings:
        of_epochs = table[setting]
        points = tuple(Point(exact(float(i)), test_auc(of_epochs[n])) for i, n in enumerate(counts) if n in of_epochs)
        place = ceilings.index(setting.ceiling) if setting.ceiling < 1 else 0
        label = setting.method if setting.ceiling == 1 else f"{setting.method}, {setting.ceiling:.3f}"
        series.append(Series(label, points, look=methods.index(setting.method), line=STYLES[place], hollow=place > 0))
    ticks = tuple((float(i), str(n)) for i, n in enumerate(counts))
    title = f"The price of label privacy: {data}"
    return Chart("price_of_privacy", title, "epochs", "test AUC", tuple(series), (), ticks)


if __name__ == "__main__":
    main()
