"""Write a file in the format of the Criteo Display Advertising Challenge, of any size, for benchmarks.

    python scripts/make_criteo.py --rows 2000000 --out train.txt
    python scripts/make_criteo.py --rows 45840617 --ids 33762565 --seed 1 --out train.txt.gz

Each line is `label TAB I1 .. I13 TAB C1 .. C26`, without a header, as in `train.txt`:

    id_ij     each of the V_j ids of column j once, at rows evenly apart; else floor((V_j + 1)^U(0, 1)) - 1, which is Zipf
    C_ij      32 mixed bits of id_ij in 8 hex digits: a permutation, so that as many values come out as there are ids
    I_ij      by the inverse of the real column's distribution function, linear between some of its quantiles
    P(y = 1)  sigmoid(b + sum_j w_j effect_j[id_ij] + sum_k w_k (rank of I_ik - 1/2)), 25.6 % in the mean
    missing   the real columns' shares, and together where they are missing together (C3, C4, C12, ... for instance)

V_j follows the cardinalities of the full data (C3 10,131,226, C12 8,351,592, ... C9 3; 33.8 million in all), scaled to add
up to --ids, 3 at least. Without --ids they add up to what so many rows of the real data hold, 33.8M (rows / 45.8M)^0.8.
Missing shares and quantiles are those of a random sample of 109,715 rows of the real data. Same seed, same file. Blocks
of 131,072 rows are made and written one after the other, so memory does not grow with --rows. With .gz, every block is a
member of its own, quickly compressed.

Columns are drawn independently of each other; of the real data's joint distribution there is nothing in here.
"""

import argparse
import gzip
import math
import sys
import time
from pathlib import Path

import numpy as np

FULL_ROWS = 45_840_617
FULL_CARDINALITIES = (
    *(1460, 583, 10131226, 2202607, 305, 23, 12517, 633, 3, 93145, 5683, 8351592, 3194),
    *(27, 14992, 5461305, 10, 5652, 2172, 3, 7046546, 17, 15, 286180, 104, 142571),
)
"""Distinct values of C1 .. C26 in the 45,840,617 rows of the challenge's train.txt, the missing value not counted."""
FULL_IDS = sum(FULL_CARDINALITIES)

POSITIVE_RATIO = 0.256
SAMPLE_ROWS, SAMPLE_IDS = 109_715, 266_846  # a random sample of the real rows, and the distinct values in it

_BLOCK_ROWS = 1 << 17
_RANKS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_QUANTILES = (  # of I1 .. I13 at these ranks, missing values left out
    (0, 0, 0, 1, 3, 9, 40, 425),
    (-2, -1, 0, 3, 35, 184, 2242, 10255),
    (0, 1, 2, 6, 17, 44, 218, 65535),
    (0, 1, 2, 4, 10, 18, 41, 349),
    (0, 11, 332, 2802, 10100, 33425, 344335, 2071071),
    (0, 1, 8, 32, 103, 277, 1323, 111105),
    (0, 0, 1, 3, 12, 34, 218, 6498),
    (0, 0, 2, 7, 19, 34, 48, 1689),
    (0, 2, 10, 38, 110, 264, 1005, 9465),
    (0, 0, 0, 1, 1, 1, 3, 6),
    (0, 0, 1, 1, 3, 6, 26, 123),
    (0, 0, 0, 0, 1, 2, 19, 193),
    (0, 1, 2, 4, 10, 20, 49, 1574),
)
_MISSING_TOGETHER = (  # (share, columns)
    (0.4511, ("I1", "I10")),
    (0.2124, ("I3",)),
    (0.2140, ("I4", "I13")),
    (0.0263, ("I5",)),
    (0.2226, ("I6",)),
    (0.0426, ("I7", "I9", "I11")),
    (0.0005, ("I8",)),
    (0.7645, ("I12",)),
    (0.0346, ("C3", "C4", "C12", "C16", "C21", "C24")),
    (0.1213, ("C6",)),
    (0.4421, ("C19", "C20", "C25", "C26")),
    (0.7605, ("C22",)),
)
# Of small, middling and large vocabularies, by column number; the other columns say nothing of the label.
_CATEGORY_COLUMNS = (2, 3, 5, 6, 7, 9, 11, 12, 14, 15, 17, 23, 24, 26)
_CATEGORY_WEIGHTS = dict(
    zip(_CATEGORY_COLUMNS, (0.4, 0.4, 0.3, 0.35, 0.3, 0.2, 0.35, 0.3, 0.55, 0.25, 0.5, 0.3, 0.3, 0.35), strict=True)
)
_INTEGER_WEIGHTS = {7: 1.2, 11: 1.0, 6: -1.0, 2: 0.5}
_EFFECTS = np.random.default_rng(20140624).standard_normal(1 << 16).astype(np.float32)


def default_ids(rows: int) -> int:
    """Distinct values in so many rows of the real data, by the power law through the sample's and the full data's."""
    power = math.log(FULL_IDS / SAMPLE_IDS) / math.log(FULL_ROWS / SAMPLE_ROWS)
    return max(3 * len(FULL_CARDINALITIES), round(FULL_IDS * (rows / FULL_ROWS) ** power))


def cardinalities(ids: int) -> tuple[int, ...]:
    """Sizes of 26 vocabularies in the real proportions, at least 3 each, which add up to `ids`."""
    real, least = np.array(FULL_CARDINALITIES, dtype=np.float64), 3
    if ids < least * len(real):
        raise ValueError(
            f"{len(real)} columns need at least {least} ids each, {least * len(real)} in all; {ids} were asked for"
        )
    low, high = 0.0, 2 * ids / FULL_IDS + 1
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(least, np.floor(real * middle)).sum() <= ids else (low, middle)
    sizes = np.maximum(least, np.floor(real * low)).astype(np.int64)
    sizes[sizes.argmax()] += ids - sizes.sum()
    return tuple(sizes.tolist())


def zipf(draw: np.random.Generator, size: int, rows: int) -> np.ndarray:
    """(rows,) int64 ids in 0 .. size - 1 with P(id = k) = log((k + 2) / (k + 1)) / log(size + 1)."""
    ids = np.exp(draw.random(rows) * math.log(size + 1)).astype(np.int64) - 1
    return np.clip(ids, 0, size - 1, out=ids)


def column_ids(draw: np.random.Generator, size: int, start: int, stop: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of rows start .. stop - 1 among `rows`, and (stop - start,) bool: where an id has its guaranteed appearance.

    Id k is certain to appear at row ceil((k + 1) rows / size) - 1; needs size <= rows to hold for all.
    """
    ids = zipf(draw, size, stop - start)
    before = np.arange(start, stop + 1) * min(size, rows) // rows  # how many ids had their turn before each row
    certain = before[1:] > before[:-1]
    ids[certain] = before[:-1][certain]
    return ids, certain


def mixed(ids: np.ndarray, column: int) -> np.ndarray:
    """A permutation of the 32-bit integers, one a column. ids: (n,) integers. Returns (n,) uint32."""
    x = ids.astype(np.uint32)
    x += np.uint32(column * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    x ^= x >> np.uint32(16)
    return x


class Criteo:
    """Rows of one file, block by block. seed: names the file; rows, ids: its size."""

    def __init__(self, rows: int, ids: int, seed: int):
        self.rows, self.sizes, self.seed = rows, cardinalities(ids), seed
        if max(self.sizes) > 0.75 * rows:
            raise ValueError(f"{ids} ids put {max(self.sizes)} into one column, and {rows} rows have no room for so many")
        self.intercept = 0.0
        logit = self._columns(-1, 0, min(rows, 1 << 18))[2]
        low, high = -20.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _sigmoid(logit + middle).mean() < POSITIVE_RATIO else (low, middle)
        self.intercept = low

    def blocks(self) -> list[tuple[int, int]]:
        """First row and the one after the last of each block."""
        return [(start, min(start + _BLOCK_ROWS, self.rows)) for start in range(0, self.rows, _BLOCK_ROWS)]

    def text(self, start: int, stop: int) -> memoryview:
        """Lines of rows start .. stop - 1, a block of `blocks`."""
        import pyarrow as pa
        from pyarrow import csv

        integers, categories, logit, labels_draw = self._columns(start // _BLOCK_ROWS, start, stop)
        labels = (labels_draw.random(stop - start, dtype=np.float32) < _sigmoid(logit)).astype(np.int8)
        arrays = [pa.array(labels)]
        arrays += [pa.array(values, mask=missing) for values, missing in integers]
        arrays += [_hex_strings(values, missing) for values, missing in categories]
        table = pa.Table.from_arrays(arrays, names=[str(j) for j in range(len(arrays))])
        sink = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none", batch_size=4096)
        csv.write_csv(table, sink, options)
        return memoryview(sink.getvalue())

    def _columns(self, block: int, start: int, stop: int) -> tuple[list, list, np.ndarray, np.random.Generator]:
        """(values, missing) of 13 integer and 26 categorical columns, the logit, and the generator to go on with."""
        draw, rows = np.random.default_rng([self.seed, block + 1]), stop - start
        missing = {}
        for share, names in _MISSING_TOGETHER:
            missing |= dict.fromkeys(names, (share, draw.random(rows, dtype=np.float32)))
        logit = np.full(rows, self.intercept, dtype=np.float32)
        integers, categories = [], []
        for k, quantiles in enumerate(_QUANTILES, 1):
            rank = draw.random(rows)
            values = np.interp(rank, _RANKS, quantiles)
            integers.append((np.rint(values).astype(np.int32), _absent(missing.get(f"I{k}"))))
            if k in _INTEGER_WEIGHTS:
                logit += np.float32(_INTEGER_WEIGHTS[k]) * (rank - 0.5).astype(np.float32)
        for j, size in enumerate(self.sizes, 1):
            ids, certain = column_ids(draw, size, start, stop, self.rows)
            words = mixed(ids, j)
            categories.append((words, _absent(missing.get(f"C{j}"), certain, size / self.rows)))
            if j in _CATEGORY_WEIGHTS:
                logit += np.float32(_CATEGORY_WEIGHTS[j]) * _EFFECTS[words >> np.uint32(16)]
        return integers, categories, logit, draw


def _absent(
    missing: tuple[float, np.ndarray] | None, certain: np.ndarray | None = None, certain_share: float = 0.0
) -> np.ndarray | None:
    """(n,) bool, or None if nothing is missing in the column. The others make up for rows that certainly hold a value."""
    if missing is None:
        return None
    share, uniform = missing
    absent = uniform < share / (1 - certain_share)
    return absent if certain is None else absent & ~certain


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _hex_strings(words: np.ndarray, missing: np.ndarray | None):
    """(n,) uint32 -> a pyarrow string array of 8 hex digits each."""
    import pyarrow as pa

    text = np.empty((len(words), 2), dtype=np.uint32)
    text[:, 0] = _FOUR_DIGITS[words >> np.uint32(16)]
    text[:, 1] = _FOUR_DIGITS[words & np.uint32(0xFFFF)]
    offsets = np.arange(0, 8 * len(words) + 1, 8, dtype=np.int32)
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), len(words), [valid, pa.py_buffer(offsets), pa.py_buffer(text)])


_FOUR_DIGITS = np.frombuffer("".join(f"{i:04x}" for i in range(1 << 16)).encode(), dtype=np.uint32)


def write(path: Path, rows: int, ids: int | None = None, seed: int = 0) -> int:
    """Write the file, compressed if its name ends in .gz; returns its size in bytes."""
    source = Criteo(rows, ids or default_ids(rows), seed)
    with path.open("wb") as file:
        for start, stop in source.blocks():
            text = source.text(start, stop)
            file.write(gzip.compress(text, compresslevel=1, mtime=0) if path.suffix == ".gz" else text)
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, required=True, help="how many lines")
    parser.add_argument("--ids", type=int, help="distinct categories over all columns (default: as many as real data has)")
    parser.add_argument("--out", type=Path, required=True, help="the file; .gz is compressed")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another file (default: 0)")
    options = parser.parse_args()
    start = time.perf_counter()
    try:
        size = write(options.out, options.rows, options.ids, options.seed)
    except (ValueError, OSError) as error:
        sys.exit(f"make_criteo: {error}")
    seconds = time.perf_counter() - start
    print(f"{options.out}: {options.rows} rows, {size / 1e6:.0f} MB in {seconds:.1f} s, {options.rows / seconds:.0f} rows/s")


if __name__ == "__main__":
    main()
