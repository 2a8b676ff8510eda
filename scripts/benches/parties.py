"""K non-label parties in one process: a training step, beside the parties one by one and beside its matrix products.

    python scripts/bench.py parties --parties 1,8,16 --rows 512 --rounds 7

The columns of a table like Criteo's, 13 numbers and 26 categories of --ids ids, are dealt to K parties in turn. Each has 5
ReLU layers of 128, the label party 3; embeddings of 4, optimizer lazy_adam, no defense, nothing watched. Ours is a step with
`protocol.together=auto`, one by one is `never`: up to 512 rows of 128 the layers of all parties are computed in one pass if
that changes no bit, above both are the same. The limit: the products of all layers (forward, by weight, by input) into
buffers made before. They are 5 K + 2.9 times one of 128 x 128, 8 parties have 5.4 and 16 have 10.5 times one party's; the
note has how many times one party's step a step takes.

Each number of parties has a process of its own, in which all three take --steps steps in turns, --rounds times; the quietest
round counts. One thread, as in a run of 512 rows; the machine is tuned as for a run.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from string import ascii_lowercase

from benches.lines import Cost, Line, command, in_turns, timed

NUMERIC, CATEGORICAL, DIM, WIDTH, BOTTOM, TOP = 13, 26, 4, 128, 5, 3


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parties", default="1,2,4,8,16", metavar="K,K,...", help="at most 26 each")
    parser.add_argument("--rows", default="512,8192", metavar="N,N,...", help="of a batch")
    parser.add_argument("--ids", type=int, default=260_000)
    parser.add_argument(
        "--steps", type=int, default=0, help="a round; by default as many as make some 20,000 rows of parties"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", help=argparse.SUPPRESS)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    words = {"ids": 2_600 if options.quick else options.ids, "rounds": 1 if options.quick else options.rounds}
    for rows in [16] if options.quick else map(int, options.rows.split(",")):
        of_one = None
        for count in [1, 3] if options.quick else map(int, options.parties.split(",")):
            steps = 1 if options.quick else options.steps or max(2, 20_000 // (rows * count))
            ours, apart, least = measure(count, rows, steps, words)
            of_one = ours if count == 1 else of_one
            note = "" if of_one is None or count == 1 else f"{ours.cpu / of_one.cpu:.3g} times one party's"
            what = f"{rows:,} rows, {count} {'party' if count == 1 else 'parties'}"
            yield Line(what, ours, "one by one", apart, "matrix products", least, note=note)


def measure(count: int, rows: int, steps: int, words: dict[str, int]) -> list[Cost]:
    """Of a step: together, one by one, and the products alone."""
    given = {**words, "parties": count, "rows": rows, "steps": steps, "worker": "steps"}
    call = command("parties", *(f"--{name}={value}" for name, value in given.items()))
    done = subprocess.run(call, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [Cost(**cost) for cost in json.loads(done.stdout.splitlines()[-1])]


def work(options: argparse.Namespace) -> None:
    from vflbench.run.machine import tune

    tune()
    count, rows = int(options.parties), int(options.rows)
    calls: dict[str, Callable[[], object]] = {mode: stepper(count, rows, options.ids, mode) for mode in ("auto", "never")}
    calls["products"] = products(count, rows)
    for call in calls.values():
        call()  # so that libraries are loaded, loops compiled, and what one pass gives is tried

    def turn(call: Callable[[], object]) -> Callable[[], Cost]:
        return lambda: timed(lambda: [call() for _ in range(options.steps)]).per(options.steps)

    costs = in_turns({name: turn(call) for name, call in calls.items()}, options.rounds)
    print(json.dumps([asdict(cost) for cost in costs.values()]))


def stepper(count: int, rows: int, ids: int, mode: str) -> Callable[[], object]:
    """Takes a step with the next batch. mode: of protocol.together."""
    import torch

    from vflbench.data.aligned import AlignedRows
    from vflbench.data.table import Columns, Features, VerticalTable
    from vflbench.defenses.chain import Chain
    from vflbench.generators import Generators
    from vflbench.messages.wire import Wire
    from vflbench.models.optimizers.lazy_adam import LazyAdam
    from vflbench.models.wide_deep import WideDeep
    from vflbench.protocols.base import Seating
    from vflbench.protocols.split import Split

    held, rng, size = 4 * rows, torch.Generator().manual_seed(0), max(2, ids // CATEGORICAL)
    numbers = torch.rand(held, NUMERIC, generator=rng)
    categories = (torch.rand(held, CATEGORICAL, generator=rng) ** 3 * size).int().clamp(max=size - 1)
    features = {}
    for k, name in enumerate(ascii_lowercase[:count]):
        own = tuple(f"I{j}" for j in dealt(NUMERIC, k, count)), tuple(f"C{j}" for j in dealt(CATEGORICAL, k, count))
        of_party = numbers[:, k::count].contiguous(), categories[:, k::count].contiguous()
        features[name] = Features(Columns(*own, (size,) * len(own[1])), *of_party)
    table = VerticalTable(torch.arange(held), features, (torch.rand(held, generator=rng) < 0.256).long(), 2)
    seating = Seating(
        table=table,
        rows=AlignedRows.of(table),
        model=WideDeep(bottom_layers=BOTTOM, top_layers=TOP, width=WIDTH, embedding_dim=DIM),
        optimizer=LazyAdam(),
        wire=Wire(),
        defense=lambda: Chain({}),
        generators=Generators(0),
        device=torch.device("cpu"),
    )
    session, order = Split(together=mode).start(seating), torch.Generator().manual_seed(1)

    def batches() -> Iterator[torch.Tensor]:
        while True:
            yield from session.batches(table, rows, order, 0)

    coming = batches()
    return lambda: session.round(next(coming))


def dealt(columns: int, party: int, count: int) -> range:
    return range(party, columns, count)


def products(count: int, rows: int) -> Callable[[], object]:
    """x W forward; x^T g and g W^T back, of the layers of all parties and of the top."""
    import torch

    first = [len(dealt(NUMERIC, k, count)) + DIM * len(dealt(CATEGORICAL, k, count)) for k in range(count)]
    stacks = [[width, *[WIDTH] * BOTTOM] for width in first] + [[WIDTH * count, *[WIDTH] * TOP, 1]]
    layers = []
    for widths in stacks:
        xs, gs = ([torch.rand(rows, width) for width in widths] for _ in range(2))
        for i, (inputs, outputs) in enumerate(pairwise(widths)):
            weight = torch.rand(inputs, outputs)
            layers.append((weight, torch.empty_like(weight), xs[i], xs[i + 1], gs[i], gs[i + 1]))

    def step() -> None:
        for weight, _, x, out, _, _ in layers:
            torch.mm(x, weight, out=out)
        for weight, gradient, x, _, below, g in reversed(layers):
            torch.mm(x.T, g, out=gradient)
            torch.mm(g, weight.T, out=below)

    return step
