"""`vflbench reproduce no_defense`: what is measured by itself."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vflbench.cli.main import Words
from vflbench.errors import UserError

if TYPE_CHECKING:
    from vflbench.numerics.interval import Interval
    from vflbench.run.experiment import Experiment


DEFENSES: dict[str, tuple[str, ...]] = {
    "none": (),
    "dcor, alpha_d 0.02": ("defense=dcor", "defense.dcor.alpha_d=0.02"),
    "label_gdp, mu 0.661": ("defense=label_gdp", "defense.label_gdp.mu=0.661"),
    "zero_sum, eps 0.753": ("defense=label_dp", "defense.label_dp.mechanism=zero_sum", "defense.label_dp.eps=0.753"),
    "label_dp, eps 0.753": ("defense=label_dp", "defense.label_dp.eps=0.753"),
}
"""Row of the table -> the options of its defense."""
KNOWN = (5, 10, 20, 50, 100, 200, 400, 1000)
_NO_DEFENSE = """What no defense can do: new rows ranked by whoever has the embeddings and k labelled rows.

The label party has no columns of its own. For each defense and seed it trains one network; KEY=VALUE are options of
`vflbench train`. Then it takes k training rows at random, of both classes. It fits the head of `completion` to their labels
and to what the non-label party's own network makes of them. With that it ranks the test rows, on which nobody trained, and
training rows, up to 20,000 each. Beside it stands the model itself. k = 0 is `directions`: no label, but the gradients of
the last epoch, two-sided. "Own columns" is the same head on the party's raw columns, which takes no label party at all.

Prints two Markdown tables, of test rows and of training rows: AUC, means over the seeds with Student's 95 % intervals of
means over --draws draws of labelled rows.

examples:
  vflbench reproduce no_defense dataset.rows=4000 --seeds 0 --draws 3     # quickly, on synthetic rows
  vflbench reproduce no_defense dataset=criteo dataset.path=train.txt.gz
"""
_Key = tuple[str, str, int | str]


def no_defense(arguments: Sequence[str]) -> None:
    """Print the tables, and on stderr a line for each network that was trained."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Words(prog="vflbench reproduce no_defense", description=_NO_DEFENSE, formatter_class=form)
    of_train = "options of vflbench train, as dataset=criteo epochs=2"
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE", help=of_train)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10, help="random draws of labelled rows, for each number of rows")
    parser.add_argument("--known", type=int, nargs="+", default=list(KNOWN))
    options = parser.parse_intermixed_args(arguments)
    if options.draws < 1:
        raise UserError("at least 1", key="--draws", value=options.draws)
    if min(options.known) < 2:
        raise UserError("at least 2, one of each class", key="--known", value=min(options.known))
    from vflbench.numerics.interval import UNIT, over_runs  # late, as the next: --help waits for nothing that trains
    from vflbench.run.no_defense import MODEL, Readings, readings

    runs: list[Readings] = []
    for seed in options.seeds:
        found: Readings = {}
        for name, overrides in DEFENSES.items():
            experiment = _configured(*options.options, *overrides, f"seed={seed}")
            found |= readings(experiment, name, options.known, options.draws)
            print(f"seed {seed}, {name}: test AUC {found[name, 'test', MODEL]:.4f}", file=sys.stderr, flush=True)
        runs.append(found)
    means = {key: over_runs((run[key] for run in runs), UNIT) for key in runs[0]}
    for split in ("test", "train"):
        print(f"\n{split} rows\n\n{markdown(means, split, options.known)}")


def _configured(*overrides: str) -> "Experiment":
    """Without attacks, and on all labels as they are."""
    from vflbench.cli.build import build
    from vflbench.cli.config import composed, current_config, own_options

    config = composed("train", ["attack=none", "audit.canaries=0", "name=no_defense", *overrides])
    with current_config(config):
        return build(own_options(config))


def markdown(means: "Mapping[_Key, Interval]", split: str, known: Sequence[int]) -> str:
    """A line for each defense, and one for the party's own columns."""
    from vflbench.numerics.interval import interval_text
    from vflbench.run.no_defense import MODEL, NO_LABEL, OWN

    columns: list[int | str] = [MODEL, NO_LABEL, *known]
    header = ["defense", MODEL, *(f"{k} labels" for k in columns[1:])]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name in (*DEFENSES, OWN):
        cells = [interval_text(means[name, split, column]) if (name, split, column) in means else "" for column in columns]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)
