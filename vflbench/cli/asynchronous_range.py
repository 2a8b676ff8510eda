"""`vflbench reproduce asynchronous_range`: the local step sizes at which asynchronous training reveals its batches."""

import argparse
from collections.abc import Sequence
from typing import Any

from vflbench.errors import UserError

_DESCRIPTION = """The local step sizes at which asynchronous training reveals its batches, measured on random binary batches.

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
    options = _parser().parse_args(arguments)
    shapes = [_shape(text) for text in options.shapes.split(",")]
    if options.draws < 1:
        raise UserError("at least 1", key="--draws", value=options.draws)
    if options.rates:
        _by_rate(options, shapes, _numbers(options.rates, "--rates", float))
    else:
        _ranges(options, shapes, _numbers(options.batches, "--batches", int))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vflbench reproduce asynchronous_range",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--shapes", default="4x10,8x10,8x20,11x20,16x32", help="rows x columns, separated by commas")
    parser.add_argument("--batches", default="2,3,5")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--lowest", type=float, default=1e-14, help="the lowest rate of the grid")
    parser.add_argument("--per-decade", type=int, default=6)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rates", default="", help="rates of the protocol, separated by commas: say what two batches reveal at these rates"
    )
    return parser


def _shape(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise UserError("rows x columns, as 8x10", key="--shapes", value=text)
    return int(rows), int(columns)


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
