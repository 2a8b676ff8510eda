"""What the recorder costs: the same training loop with and without it, in turns.

    python scripts/bench.py recorder --every 1 --dtype bfloat16

Two copies of one network train on the same batches. A turn is EVERY steps of each, so that the recorder writes one batch a
turn; which of the two goes first alternates. A step costs the median over turns; the note has the median and the quartiles
over turns of what a turn costs more than its partner. The limit is the same loop without the recorder. A step is forward,
backward and optimiser of both halves. The recorder is that of the party with the bottom model, which has no labels;
`rec.label` batch by batch costs a sort of the ids more.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benches.lines import Cost, Line, median, timed
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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--columns", type=int, default=39 * 16)
    parser.add_argument("--every", type=int, default=10, help="one batch in so many is recorded")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--network", choices=list(NETWORKS), default="mlp")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.rows, options.columns, options.turns = 64, 16, 2
    rng, every = torch.Generator().manual_seed(1), options.every
    batches = [
        (
            torch.arange(options.rows) + options.rows * number,
            torch.randn(options.rows, options.columns, generator=rng),
            (torch.rand(options.rows, generator=rng) < 0.3).float(),
        )
        for number in range(4)
    ]
    dtype, costs = getattr(torch, options.dtype), ([], [])
    with tempfile.TemporaryDirectory() as folder, Recording(folder, "media", every=every) as rec:
        made = (options.network, options.columns, options.width)
        loops = [Training(*made, rec_or_none, dtype) for rec_or_none in (rec, None)]
        for loop, batch in itertools.product(loops, batches):
            loop.step(*batch)
        for _ in range(every - len(batches) % every):
            loops[0].step(*batches[0])  # so that each turn has one recorded batch

        def turn(loop: Training) -> None:
            for number in range(every):
                loop.step(*batches[number % len(batches)])

        for number in range(options.turns):
            for which in (0, 1) if number % 2 else (1, 0):
                costs[which].append(timed(lambda: turn(loops[which])).per(every))  # noqa: B023
        written = rec.written
    what = f"a step of {options.rows} x {options.width}, {options.network} over {options.columns} columns, {options.dtype}"
    note = f"one batch in {every}, {written} written; CPU {more(costs, 'cpu')}, clock {more(costs, 'wall')}"
    yield Line(f"{what}, recorded", median(costs[0]), limit="not recorded", least=median(costs[1]), note=note)


def more(costs: tuple[list[Cost], list[Cost]], which: str) -> str:
    """What the recorder costs, turn by turn: median and quartiles."""
    ratios = [getattr(with_it, which) / getattr(bare, which) - 1 for with_it, bare in zip(*costs, strict=True)]
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return f"{middle:+.1%} ({low:+.1%} .. {high:+.1%})"
