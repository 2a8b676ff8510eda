"""Packing a message's codes into bits and back: time and bytes, beside NumPy's packbits.

    python scripts/bench_packing.py
    python scripts/bench_packing.py --rows 512 --width 64 --rounds 20

Data: random codes of 1, 2, 3, 4, 8, 10 and 14 bits, --width a row, --rows rows, int64. packbits: each code's bits as a byte
each, and numpy.packbits. One thread; in turns, for --rounds rounds; the quietest is printed.
"""

import argparse
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from vflbench.numerics.packing import pack, unpack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {options.rows} x {options.width} codes\n")
    print(f"{'bits':>4}{'bytes':>10}{'pack ms':>10}{'unpack ms':>11}{'packbits ms':>13}")
    rng = torch.Generator().manual_seed(0)
    for bits in (1, 2, 3, 4, 8, 10, 14):
        codes = torch.randint(2**bits, (options.rows, options.width), generator=rng)
        packing, unpacking, alternative = quietest(codes, bits, options.rounds)
        size = len(pack(codes, bits))
        print(f"{bits:>4}{size:>10}{packing * 1e3:>10.2f}{unpacking * 1e3:>11.2f}{alternative * 1e3:>13.2f}")


def quietest(codes: Tensor, bits: int, rounds: int) -> list[float]:
    payload, best = pack(codes, bits), [float("inf")] * 3
    calls = (lambda: pack(codes, bits), lambda: unpack(payload, codes.numel(), bits), lambda: packbits(codes, bits))
    for _ in range(rounds):
        best = [min(known, seconds(call)) for known, call in zip(best, calls, strict=True)]
    return best


def seconds(call) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def packbits(codes: Tensor, bits: int) -> np.ndarray:
    return np.packbits((codes.numpy().reshape(-1, 1) >> np.arange(bits)).astype(np.uint8) & 1)


if __name__ == "__main__":
    main()
