"""The local step sizes at which asynchronous training reveals its batches, measured on random binary batches.

    python scripts/asynchronous_range.py
    python scripts/asynchronous_range.py --shapes 8x10,11x20 --batches 2,3 --draws 20
    python scripts/asynchronous_range.py --dtype float32
    python scripts/asynchronous_range.py --rates 0.1,0.5,0.9731,1.0,1.7321,3.1416

With --rates, two local batches with mean gradients, at these rates of the protocol: the share of draws in which the sum of
both alphas follows with proof, and in which each of the two is right, if need be by an assumption.

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
"""

import argparse

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.rate_range import grid, rate_range, shares_by_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="4x10,8x10,8x20,11x20,16x32", help="rows x columns, separated by commas")
    parser.add_argument("--batches", default="2,3,5")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--density", type=float, default=0.5)
    parser.add_argument("--lowest", type=float, default=1e-14, help="where the grid of rates begins")
    parser.add_argument("--per-decade", type=int, default=6)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rates", default="", help="of the protocol, separated by commas: what two batches reveal at these")
    options = parser.parse_args()
    rates = grid(options.per_decade, options.lowest)
    if options.rates:
        _by_rate(options)
        return
    headings = ("2/|A2|", "rounding", "root", "lowest", "separation", "division", "lowest")
    print(f"{'m':>4}{'d':>4}{'n':>3}" + "".join(f"{name:>11}" for name in headings) + "  wrong")
    for shape in options.shapes.split(","):
        rows, columns = map(int, shape.split("x"))
        for batches in map(int, options.batches.split(",")):
            ranges = {}
            for estimate in ("rounding", "root", "separation"):
                ranges[estimate] = rate_range(
                    rows,
                    columns,
                    batches,
                    np.random.default_rng(options.seed),
                    draws=options.draws,
                    density=options.density,
                    estimate=estimate,
                    rates=rates,
                    dtype=np.dtype(options.dtype).type,
                )
            plain, root, separated = ranges["rounding"], ranges["root"], ranges["separation"]
            division = separated.division_high, separated.division_low
            rates_shown = (root.bound, plain.high, root.high, root.low, separated.high, *division)
            cells = "".join(_rate(r) for r in rates_shown)
            print(
                f"{rows:>4}{columns:>4}{batches:>3}{cells}  {separated.wrong:.1%} ({separated.proved_wrong:.1%})", flush=True
            )


def _by_rate(options: argparse.Namespace) -> None:
    rates = [float(rate) for rate in options.rates.split(",")]
    print(f"{'m':>4}{'d':>4}{'rate':>9}{'sum':>8}{'each':>8}{'wrong':>8}")
    for shape in options.shapes.split(","):
        rows, columns = map(int, shape.split("x"))
        rng, dtype = np.random.default_rng(options.seed), np.dtype(options.dtype).type
        measured = shares_by_rate(rows, columns, rates, rng, draws=options.draws, density=options.density, dtype=dtype)
        for at in measured:
            print(f"{rows:>4}{columns:>4}{at.rate:>9g}{at.sums:>8.0%}{at.batches:>8.0%}{at.proved_wrong:>8.0%}", flush=True)


def _rate(rate: float | None) -> str:
    return f"{'-':>11}" if rate is None else f"{rate:>11.1e}"


if __name__ == "__main__":
    main()
