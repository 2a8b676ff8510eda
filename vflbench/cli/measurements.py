"""`vflbench reproduce asynchronous_range` and `no_defense`: what is measured by itself."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vflbench.cli.main import Words
from vflbench.errors import UserError

if TYPE_CHECKING:
    from vflbench.numerics.interval import Interval
    from vflbench.run.experiment import Experiment


_RANGE = """The local step sizes at which asynchronous training reveals its batches, measured on random binary batches.

A party sends theta_n - theta_0 after n local steps on batches of m rows with d columns. Over the reals this does not
determine the batches; for integers the sum of all alphas follows while the rate is small. Rates are those of summed
gradients: for mean gradients multiply by m. The columns:

  2/|A2|        the rate at which the second-order term of the expansion reaches 1/2, median over draws
  rounding      highest rate at which plain rounding is right in 90 % of the draws
  root          the same after the n-th root has subtracted the higher terms of equal batches
  separation    the same where each entry is separated into its two integers first (n = 2)
  lowest        lowest rate at which the root is right: below, the precision of the differences hides the integers
  division      highest and lowest rate at which the two batches are divided, by separation or given their rows (n = 2)
  wrong         share of its results, at any rate, that were neither right nor refused; in brackets: called proved

With --rates, two local batches with mean gradients, at these rates of the protocol: the share of draws in which the sum of
both alphas follows with proof, and in which each of the two is right, if need be by an assumption.

examples:
  vflbench reproduce asynchronous_range
  vflbench reproduce asynchronous_range --shapes 8x10,11x20 --batches 2,3 --draws 20
  vflbench reproduce asynchronous_range --rates 0.1,0.5,0.9731,1.0,1.7321,3.1416
"""


def asynchronous_range(arguments: Sequence[str]) -> None:
    """Print the table, line by line as it is measured."""
    options = _range_parser().parse_args(arguments)
    if not re.fullmatch(r"([1-9]\d*x[1-9]\d*(,(?!$)|$))+", options.shapes):
        raise UserError("rows x columns, as 8x10", key="--shapes", value=options.shapes)
    shapes = [(int(rows), int(columns)) for rows, columns in re.findall(r"(\d+)x(\d+)", options.shapes)]
    if options.draws < 1:
        raise UserError("at least 1", key="--draws", value=options.draws)
    if options.rates:
        _by_rate(options, shapes, _numbers(options.rates, "--rates", float))
    else:
        _ranges(options, shapes, _numbers(options.batches, "--batches", int))


def _range_parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = Words(prog="vflbench reproduce asynchronous_range", description=_RANGE, formatter_class=form)
    parser.add_argument("--shapes", default="4x10,8x10,8x20,11x20,16x32", help="rows x columns, separated by commas")
    parser.add_argument("--batches", default="2,3,5")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--lowest", type=float, default=1e-14, help="the lowest rate of the grid")
    parser.add_argument("--per-decade", type=int, default=6)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seed", type=int, default=0)
    at_rates = "rates of the protocol, separated by commas: say what two batches reveal at these rates"
    parser.add_argument("--rates", default="", help=at_rates)
    return parser


def _numbers(text: str, key: str, kind: type) -> list[Any]:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError("numbers, separated by commas", key=key, value=text) from error
    if not all(number > 0 for number in numbers):
        raise UserError("each above 0", key=key, value=text)
    return numbers


def _ranges(options: argparse.Namespace, shapes: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
    import numpy as np  # late: --help waits for neither

    from vflbench.attacks.batch_reconstruction.asynchronous.rate_range import grid, rate_range

    rates = grid(options.per_decade, options.lowest)
    headings = ("2/|A2|", "rounding", "root", "lowest", "separation", "division", "lowest")
    print(f"{'m':>4}{'d':>4}{'n':>3}" + "".join(f"{name:>11}" for name in headings) + "  wrong")
    how = {"draws": options.draws, "density": options.density, "rates": rates, "dtype": np.dtype(options.dtype).type}
    for rows, columns in shapes:
        for batches in counts:
            plain, root, separated = (
                rate_range(rows, columns, batches, np.random.default_rng(options.seed), estimate=estimate, **how)
                for estimate in ("rounding", "root", "separation")
            )
            division = separated.division_high, separated.division_low
            shown = (root.bound, plain.high, root.high, root.low, separated.high, *division)
            cells = "".join(f"{'-':>11}" if rate is None else f"{rate:>11.1e}" for rate in shown)
            wrong = f"{separated.wrong:.1%} ({separated.proved_wrong:.1%})"
            print(f"{rows:>4}{columns:>4}{batches:>3}{cells}  {wrong}", flush=True)


def _by_rate(options: argparse.Namespace, shapes: Sequence[tuple[int, int]], rates: Sequence[float]) -> None:
    import numpy as np

    from vflbench.attacks.batch_reconstruction.asynchronous.rate_range import shares_by_rate

    print(f"{'m':>4}{'d':>4}{'rate':>9}{'sum':>8}{'each':>8}{'wrong':>8}")
    for rows, columns in shapes:
        rng, dtype = np.random.default_rng(options.seed), np.dtype(options.dtype).type
        measured = shares_by_rate(rows, columns, rates, rng, draws=options.draws, density=options.density, dtype=dtype)
        for at in measured:
            print(f"{rows:>4}{columns:>4}{at.rate:>9g}{at.sums:>8.0%}{at.batches:>8.0%}{at.proved_wrong:>8.0%}", flush=True)


DEFENSES: dict[str, tuple[str, ...]] = {
    "none": (),
    "dcor, alpha_d 0.02": ("defense=dcor", "defense.dcor.alpha_d=0.02"),
    "label_gdp, mu 0.661": ("defense=label_gdp", "defense.label_gdp.mu=0.661"),
    "zero_sum, eps 0.753": ("defense=label_dp", "defense.label_dp.mechanism=zero_sum", "defense.label_dp.eps=0.753"),
    "label_dp, eps 0.753": ("defense=label_dp", "defense.label_dp.eps=0.753"),
}
"""Row of the table -> the options of its defense."""
KNOWN = (5, 10, 20, 50, 100, 200, 400, 1000)
SPLITS = ("test", "train")
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
    for split in SPLITS:
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
