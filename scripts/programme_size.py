"""Constraints and unknowns of the integer programme for a batch, counted while it is written.

    python scripts/programme_size.py 3x5 11x20

Beside the published count (2 m + 1) d^2 - 2 m d. The published programme seeks X alone. Runs with solver=highs or cbc know
X^T Y as well, and seek the labels as one more column.

Source: Li, Huang, Chen and Hong, "Quantification of the Leakage in Federated Learning", section 4.1.
"""

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import Gram
from vflbench.attacks.batch_reconstruction.integer_programme.formulation import Formulation, write_programme


class Size(NamedTuple):
    constraints: int
    unknowns: int


class Term:
    """A term of unknowns: any arithmetic and any comparison gives another."""

    def __add__(self, other: Any) -> "Term":
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __le__ = __ge__ = __add__
    __eq__ = __add__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Counter:
    """`formulation.ModellingLanguage`, which counts."""

    def __init__(self) -> None:
        self.constraints = self.unknowns = 0

    def binary(self, low: int = 0, high: int = 1) -> Term:
        self.unknowns += 1
        return Term()

    fraction = binary

    def total(self, terms: Iterable[Any]) -> Term:
        for _ in terms:
            pass
        return Term()

    def add(self, constraint: Any) -> None:
        self.constraints += 1


def counted(rows: int, columns: int, formulation: Formulation = "published", *, labels: bool = False) -> Size:
    """Of a batch of fair coins; the published programme has as many for any batch of this size."""
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 2, (rows, columns)), 2 * draw.integers(0, 2, rows) - 1
    counter = Counter()
    write_programme(counter, Gram.of(x, y if labels else None), formulation)
    return Size(counter.constraints, counter.unknowns)


def published_count(rows: int, columns: int) -> int:
    """(2 m + 1) d^2 - 2 m d constraints."""
    return (2 * rows + 1) * columns**2 - 2 * rows * columns


SIZES = ("constraints, published", "constraints, counted", "unknowns", "with labels: constraints", "unknowns")


def size_of(cell: tuple[int, int]) -> list[str]:
    """SIZES of the published programme, for X alone as in the paper, and for X and the labels as the runs solve it."""
    alone, with_labels = counted(*cell), counted(*cell, labels=True)
    return [f"{count:,}" for count in (published_count(*cell), *alone, *with_labels)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", metavar="MxD", help="rows x columns")
    for cell in parser.parse_args().cells:
        rows, columns = map(int, cell.split("x"))
        alone, with_labels = counted(rows, columns), counted(rows, columns, labels=True)
        tight = counted(rows, columns, "tight", labels=True)
        print(
            f"{cell}: published {published_count(rows, columns):,} constraints; counted {alone.constraints:,} and "
            f"{alone.unknowns:,} unknowns, with labels {with_labels.constraints:,} and {with_labels.unknowns:,}; "
            f"tight, with labels, {tight.constraints:,} and {tight.unknowns:,}"
        )


if __name__ == "__main__":
    main()
