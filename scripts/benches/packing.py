"""Packing a message's codes into bits and back: time and bytes, beside NumPy's packbits.

    python scripts/bench.py packing --rows 512 --width 64 --rounds 20

Data: random codes of 1, 2, 3, 4, 8, 10 and 14 bits, --width a row, --rows rows, int64. packbits: each code's bits as a byte
each, and numpy.packbits. The limit: copying the int64 codes once. One thread; in turns, for --rounds rounds; the quietest
counts.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from benches.lines import Line, in_turns, timed
from vflbench.numerics.packing import pack, unpack


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    rows, width, rounds = (64, 16, 1) if options.quick else (options.rows, options.width, options.rounds)
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(0)
    for bits in (1, 2, 3, 4, 8, 10, 14):
        codes = torch.randint(2**bits, (rows, width), generator=rng)
        payload = pack(codes, bits)
        calls = {
            "pack": lambda: timed(lambda: pack(codes, bits)),  # noqa: B023
            "unpack": lambda: timed(lambda: unpack(payload, codes.numel(), bits)),  # noqa: B023
            "packbits": lambda: timed(lambda: packbits(codes, bits)),  # noqa: B023
            "copy": lambda: timed(codes.clone),  # noqa: B023
        }
        costs = in_turns(calls, rounds)
        what = f"{{}}, {rows} x {width} codes of {bits} bits"
        beside = {"limit": "copying the codes", "least": costs["copy"], "note": f"{len(payload):,} bytes"}
        yield Line(what.format("pack"), costs["pack"], "numpy.packbits", costs["packbits"], **beside)
        yield Line(what.format("unpack"), costs["unpack"], **beside)


def packbits(codes: Tensor, bits: int) -> np.ndarray:
    return np.packbits((codes.numpy().reshape(-1, 1) >> np.arange(bits)).astype(np.uint8) & 1)
