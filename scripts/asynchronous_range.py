"""The local step sizes at which asynchronous training reveals its batches, measured on random binary batches.

    python scripts/asynchronous_range.py
    python scripts/asynchronous_range.py --shapes 8x10,11x20 --batches 2,3 --draws 20
    python scripts/asynchronous_range.py --dtype float32

A party sends theta_n - theta_0 after n local steps on batches of m rows with d columns. Over the reals this does not
determine the batches; for integers the sum of all alphas follows while the rate is small. Rates are those of summed
gradients: for mean gradients multiply by m. The columns:

    2/|A2|        the rate at which the second-order term of the expansion reaches 1/2, median over draws
    rounding      highest rate at which plain rounding is right in 90 % of the draws
    root          the same after the n-th root has subtracted the higher terms of equal batches
    lowest        lowest rate at which the root is right: below, the precision of the differences hides the integers
    division      highest and lowest rate at which the two batches are divided (n = 2, given their rows)
    wrong         share of the root's results, at any rate, that were neither right nor refused; in brackets: called proved
"""

import argparse

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.rate_range import grid, rate_range


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
    options = parser.parse_args()
    rates = grid(options.per_decade, options.lowest)
    headings = ("2/|A2|", "rounding", "root", "lowest", "division", "lowest")
    print(f"{'m':>4}{'d':>4}{'n':>3}" + "".join(f"{name:>10}" for name in headings) + "  wrong")
    for shape in options.shapes.split(","):
        rows, columns = map(int, shape.split("x"))
        for batches in map(int, options.batches.split(",")):
            ranges = {}
            for estimate in ("rounding", "root"):
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
            plain, root = ranges["rounding"], ranges["root"]
            rates_shown = (root.bound, plain.high, root.high, root.low, root.division_high, root.division_low)
            cells = "".join(_rate(r) for r in rates_shown)
            print(f"{rows:>4}{columns:>4}{batches:>3}{cells}  {root.wrong:.1%} ({root.proved_wrong:.1%})", flush=True)


def _rate(rate: float | None) -> str:
    return f"{'-':>10}" if rate is None else f"{rate:>10.1e}"


if __name__ == "__main__":
    main()
