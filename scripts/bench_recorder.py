"""What the recorder costs: the same training loop with and without it, in turns.

    python scripts/bench_recorder.py                        # 8192 x 128, one batch in ten
    python scripts/bench_recorder.py --every 1 --dtype bfloat16

Two copies of one network train on the same batches. A turn is EVERY steps of each, so that the recorder writes one batch a
turn; which of the two goes first alternates. Printed: the median seconds of a step (wall and CPU), and the median over turns
of what a turn costs more than its partner. A step is forward, backward and optimiser of both halves. The recorder is that of
the party with the bottom model, which has no labels; `rec.label` batch by batch costs a sort of the ids more.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from vflbench import Recording

NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    # bottom models over the columns of Criteo, as wide as its categories' embeddings: 39 columns of 16
    "mlp": lambda columns, width: nn.Sequential(nn.Linear(columns, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()),
    "linear": lambda columns, width: nn.Sequential(nn.Linear(columns, width), nn.ReLU()),
}


class Training:
    """A split network, its optimiser, and a loop of its own."""

    def __init__(self, network: str, columns: int, width: int, rec: Recording | None, dtype: torch.dtype):
        torch.manual_seed(0)
        self.bottom = NETWORKS[network](columns, width)
        self.top = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))
        self.optimizer = torch.optim.SGD([*self.bottom.parameters(), *self.top.parameters()], lr=0.01)
        self.rec, self.dtype = rec, dtype

    def step(self, ids: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=self.dtype) if self.dtype is not torch.float32 else nullcontext():
            h = self.bottom(x)
            if self.rec is not None:
                h = self.rec.watch(h, ids=ids)
            loss = F.binary_cross_entropy_with_logits(self.top(h)[:, 0].float(), y)
        loss.backward()
        self.optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--columns", type=int, default=39 * 16)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--network", choices=list(NETWORKS), default="mlp")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    rng = torch.Generator().manual_seed(1)
    batches = [
        (
            torch.arange(options.rows) + options.rows * number,
            torch.randn(options.rows, options.columns, generator=rng),
            (torch.rand(options.rows, generator=rng) < 0.3).float(),
        )
        for number in range(4)
    ]
    dtype = getattr(torch, options.dtype)
    with tempfile.TemporaryDirectory() as folder, Recording(folder, "media", every=options.every) as rec:
        loops = [
            Training(options.network, options.columns, options.width, rec_or_none, dtype) for rec_or_none in (rec, None)
        ]
        for loop, batch in itertools.product(loops, batches):
            loop.step(*batch)
        for _ in range(options.every - len(batches) % options.every):
            loops[0].step(*batches[0])  # so that each turn has one recorded batch
        seconds = np.zeros((options.turns, 2, 2))  # turn, with or without, wall or CPU
        for turn in range(options.turns):
            for which in (0, 1) if turn % 2 else (1, 0):
                before = time.perf_counter(), time.process_time()
                for number in range(options.every):
                    loops[which].step(*batches[number % len(batches)])
                seconds[turn, which] = time.perf_counter() - before[0], time.process_time() - before[1]
        written = rec.written
    print(f"{options.rows} x {options.width}, {options.network} over {options.columns} columns, {options.dtype}")
    print(
        f"one batch in {options.every}; {options.turns} turns, {written} batches written, {torch.get_num_threads()} threads"
    )
    print(f"{'':8}{'without, ms':>14}{'with, ms':>14}{'cost of a step':>18}{'quartiles':>24}")
    for which, name in enumerate(("wall", "CPU")):
        with_, without = seconds[:, 0, which], seconds[:, 1, which]
        low, median, high = np.percentile(with_ / without - 1, [25, 50, 75])
        ms = [1000 * np.median(values) / options.every for values in (without, with_)]
        print(f"{name:8}{ms[0]:14.2f}{ms[1]:14.2f}{median:18.1%}{f'{low:.1%} to {high:.1%}':>24}")


if __name__ == "__main__":
    main()
