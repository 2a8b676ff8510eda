"""Distance correlation of a batch with its labels, value and gradient: time, memory and error, beside what others run.

    python scripts/bench.py dcor
    python scripts/bench.py dcor --rows 2048,8192,32768 --largest 8192 --rounds 3

The data are --rows ReLU embeddings of --width coordinates in float32, a quarter of them positive. Our form keeps the
distances for the gradient of up to 8,192 rows, and computes them again of more. The alternative is:

    naive     torch.cdist, both matrices doubly centred, autograd

The limit is the matrix products alone, in the same shapes as ours and in memory that is already allocated: of the rows with
each other, on and above the diagonal, and of a matrix as large as the distances with the rows.

Each form runs in a process of its own, set up as runs are (machine.tune). The forms take turns, for --rounds rounds of
three calls. The values are the CPU seconds of all threads in the quietest round. Memory is the peak of the process minus
what it held before the first call (on 500 rows, so that libraries are loaded). Errors are those of the value and of the
norm of the gradient, against the naive form in float64 on 4,096 rows. The naive form runs up to --largest rows: at 32,768
it would hold some 25 GB.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterator

import torch

from benches.lines import Cost, Line, command, in_turns, peak_memory, quietest, timed

_BLOCK = 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default="2048,8192,32768")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--largest", type=int, default=8192, help="rows that the alternatives are given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.rows, options.width, options.rounds = "600", 8, 1
    note = errors(options.width)
    for rows in map(int, options.rows.split(",")):
        compared = rows <= options.largest
        names = ["kept", "products", *(["naive"] if compared else [])]
        calls: dict[str, Callable[[], Cost]] = {
            name: lambda name=name, rows=rows: in_process(name, rows, options.width) for name in names
        }
        costs = in_turns(calls, options.rounds)
        what, limit = f"{rows:,} x {options.width}, value and gradient", ("products alone", costs["products"])
        goal = 8 if rows == 8192 and options.width == 128 else None
        if not compared:
            yield Line(what, costs["kept"], "", None, *limit, note=note)
            continue
        yield Line(what, costs["kept"], "naive", costs["naive"], *limit, faster=goal, note=note)


def in_process(name: str, rows: int, width: int) -> Cost:
    words = command("dcor", "--worker", name, "--rows", str(rows), "--width", str(width))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return Cost(**json.loads(done.stdout))


def work(options: argparse.Namespace) -> None:
    """The quietest of three calls, and the memory of the first, as JSON."""
    from vflbench.run.settings import tune

    tune()
    call, (x, y) = WORKERS[options.worker], data(int(options.rows), options.width)
    call(x[:500], y[:500])
    before = peak_memory()
    first = timed(lambda: call(x, y))
    memory = peak_memory() - before
    best = quietest([first, timed(lambda: call(x, y)), timed(lambda: call(x, y))])
    print(json.dumps({"wall": best.wall, "cpu": best.cpu, "memory": memory}))


def data(rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    y = (torch.rand(rows, generator=rng) < 0.25).long()
    factors = torch.randn(rows, 32, generator=rng) @ torch.randn(32, width, generator=rng)
    return torch.relu(factors + 0.5 * y[:, None] * torch.randn(width, generator=rng)), y


def kept(x: torch.Tensor, y: torch.Tensor) -> None:
    from vflbench.numerics.distance_correlation import distance_correlation

    differentiated(distance_correlation, x, y)


def naive_value(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = torch.cdist(x, x), (y[:, None] != y).to(x)
    a = a - a.mean(dim=0) - a.mean(dim=1, keepdim=True) + a.mean()
    b = b - b.mean(dim=0) - b.mean(dim=1, keepdim=True) + b.mean()
    return (a * b).mean() / ((a * a).mean() * (b * b).mean()).sqrt()


def naive(x: torch.Tensor, y: torch.Tensor) -> None:
    differentiated(naive_value, x, y)


def differentiated(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> None:
    function(x.clone().requires_grad_(), y).backward()


def products(x: torch.Tensor, _y: torch.Tensor) -> None:
    n, size = len(x), min(_BLOCK, len(x))
    block, weights, sums = torch.empty(size, size), torch.ones(size, size), torch.empty(size, x.shape[1])
    cuts = [x[start : start + size] for start in range(0, n - size + 1, size)]
    for place, left in enumerate(cuts):
        for right in cuts[place:]:
            torch.mm(left, right.T, out=block)
            torch.mm(weights, right, out=sums)
            if right is not left:
                torch.mm(weights.T, left, out=sums)


WORKERS = {"kept": kept, "naive": naive, "products": products}


def errors(width: int) -> str:
    from vflbench.numerics.distance_correlation import distance_correlation

    x, y = data(4096, width)
    values, gradients = [], []
    for function, points in ((distance_correlation, x), (naive_value, x.double())):
        leaf = points.clone().requires_grad_()
        value = function(leaf, y)
        value.backward()
        values.append(value.item())
        gradients.append(leaf.grad.double())
    difference = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    return (
        f"at 4,096 rows, relative error of the value {abs(values[0] / values[1] - 1):.1e}, of the gradient {difference:.1e}"
    )
