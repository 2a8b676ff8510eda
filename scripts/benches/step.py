"""Training steps of one network, vflbench beside what others run, and how near they are to the matrix products alone.

    python scripts/bench.py step                                                  # 8,192 rows x 10M ids
    python scripts/bench.py step --batch-size 512 --ids 20000 --only adam,matmuls  # a round of the default run
    python scripts/bench.py step --ids 1000000,33700000 --only adam,lazy-torch,lazy-numba,usual,matmuls

The network, in all of them: 26 embeddings of 4 beside 13 numbers -> 8 ReLU layers of 128 -> logit; logistic loss, Adam with
the step size 5e-4, batches of --batch-size shuffled rows. The table, the same for all, lies in memory: --rows rows of --ids
ids, Zipf within each column. Ours, split after 5 layers, is Split's session.round on its own shuffled batches, with the
settings of a run (tune and set_threads of run.settings, threads that sleep while they wait) and its auditor in the loop.
As in a run, nine tenths of the rows are trained on, and more than 2^18 rows are looked up and encoded batch by batch:

    adam        optimizer adam, on every row of the tables
    lazy-torch  optimizer lazy_adam, kernel torch
    lazy-numba  ... and kernel numba
    bf16        ... and precision bf16
    wide        lazy-numba with the linear part, one weight an id, whose output crosses the cut too
    wide-adam   adam with the linear part

The alternatives are a researcher's usual code, and FuxiCTR's, with its loader, loop and clipping of gradients, in an
interpreter of its own (--peer PYTHON, where `pip install fuxictr "polars<2"` was done):

    usual          26 nn.Embedding, nn.Sequential, torch.optim.Adam on everything, TensorDataset and DataLoader(shuffle=True)
    fuxictr        WideDeep of its model zoo, Adam on everything, as it comes: the peer of wide-adam, and what wide replaces
    fuxictr-tuned  the same with a run's settings of malloc, denormals and oneDNN

The limit, of float32 and of bf16, is tuned as a run is:

    matmuls     the 26 matrix products of a step (forward, by weight, by input) into buffers that were made before

Each runs in a fresh process, in turns, for --rounds rounds, after --warm-up steps; a step is timed whole, with its batch.
Printed is the median of the rounds' median steps, and their range. One thread a core, or OMP_NUM_THREADS of them. Memory is
the peak of the process that trains, with the table.

First, vflbench's network is held against the researcher's: parameters, and the losses of 5 steps from the same weights.
"""

import argparse
import ctypes
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benches.lines import Cost, Line, command, peak_memory

NUMERIC, DIM, WIDTH, BOTTOM, TOP = 13, 4, 128, 5, 3
LR, BETAS, EPS = 5e-4, (0.9, 0.999), 1e-8
NOT_INSTALLED = 3  # exit code of a worker
MALLOC = ((-3, 32 << 20), (-1, 2**31 - 1), (-2, 64 << 20))  # as _MALLOC of vflbench.run.settings
OURS = ("adam", "lazy-torch", "lazy-numba", "bf16", "wide", "wide-adam")
WITHIN = {(8192, 10_000_000): {"lazy-numba": 1.4, "bf16": 1.6}, (512, 20_000): {"adam": 1.6}}
"""Goals, by rows of a batch and ids."""


def arguments(parser: argparse.ArgumentParser) -> None:
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    parser.add_argument("--ids", type=numbers, default=[10_000_000], metavar="N,N,...")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table in memory (default: 1000000)")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each alternative, a round (default: 20)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before, in each round (default: 3)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON", help="the interpreter that has fuxictr")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(WORKERS)}")
    for word in ("--worker", "--folder", "--table-ids"):
        parser.add_argument(word, help=argparse.SUPPRESS)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.ids, options.rows, options.batch_size, options.steps, options.rounds = [20_000], 5000, 512, 2, 1
        options.only = options.only or "lazy-torch,usual,matmuls,matmuls-bf16"
    names = options.only.split(",") if options.only else list(WORKERS)
    for name in names:
        if name not in WORKERS:
            raise SystemExit(f"there is no alternative {name}; there are {', '.join(WORKERS)}")
    with tempfile.TemporaryDirectory(prefix="bench_step_") as folder:
        tables = Bench(options, Path(folder))
        tables.check()
        for ids in options.ids:
            yield from tables.compare(ids, names)


class Bench:
    """Tables in a folder, and the alternatives on them."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder

    def check(self) -> None:
        self._run("check", self._table(200_000, 100_000))

    def compare(self, ids: int, names: list[str]) -> Iterator[Line]:
        """Each of ours on a table of so many ids, beside each alternative."""
        rounds, missing = self._rounds(names, self._table(self.options.rows, ids))
        costs = {name: sorted(of, key=lambda cost: cost.cpu)[len(of) // 2] for name, of in rounds.items()}
        spans = {name: sorted(1e3 * cost.wall for cost in of) for name, of in rounds.items()}
        goals = WITHIN.get((self.options.batch_size, ids), {})
        for ours in (name for name in OURS if name in costs):
            limit = "matmuls-bf16" if ours == "bf16" else "matmuls"
            others = [name for name in names if name in WORKERS and name not in OURS and not name.startswith("matmuls")]
            for other in [one for one in others if one.startswith("fuxictr") == ours.startswith("wide")] or [""]:
                yield Line(
                    f"{ours}, {self.options.batch_size:,} rows, {ids:,} ids",
                    costs[ours],
                    other,
                    costs.get(other),
                    limit,
                    costs.get(limit),
                    within=goals.get(ours),
                    note=missing.get(other, missing.get(limit))
                    or "; ".join(f"{n} {spans[n][0]:.3g} to {spans[n][-1]:.3g} ms" for n in (ours, other) if n in spans),
                )
        for name in missing.keys() & set(OURS):
            yield Line(name, Cost(math.nan), note=missing[name])

    def _rounds(self, names: list[str], folder: Path) -> tuple[dict[str, list[Cost]], dict[str, str]]:
        """Of a step in each round, in turns; and why one has none, such as that it isn't installed."""
        costs: dict[str, list[Cost]] = {name: [] for name in names}
        missing: dict[str, str] = {}
        for turn in range(self.options.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if name in missing:
                    continue
                try:
                    figures = self._run(name, folder)
                except RuntimeError as error:
                    missing[name] = f"{name}: {error}"
                    continue
                medians = (statistics.median(figures[key]) / 1e3 for key in ("ms", "cpu_ms"))
                costs[name].append(Cost(*medians, figures["peak"]))
        return {name: of for name, of in costs.items() if name not in missing}, missing

    def _table(self, rows: int, ids: int) -> Path:
        """A folder with the table; the one before is removed."""
        folder = self.folder / f"{rows}_{ids}"
        if not folder.exists():
            for old in self.folder.iterdir():
                shutil.rmtree(old)
            folder.mkdir()
            words = ["--worker", "table", "--folder", str(folder), "--rows", str(rows), "--table-ids", str(ids)]
            subprocess.run(command("step", *words), check=True, stdout=subprocess.DEVNULL)
        return folder

    def _run(self, name: str, folder: Path) -> dict[str, Any]:
        """One alternative in a process of its own. Returns its figures; raises RuntimeError if it has none."""
        options = self.options
        sizes = {"steps": options.steps, "warm-up": options.warm_up, "batch-size": options.batch_size}
        words = [f"--{word}={value}" for word, value in {"worker": name, "folder": folder, **sizes}.items()]
        python = options.peer if name.startswith("fuxictr") else sys.executable
        done = subprocess.run(
            [python, *command("step", *words)[1:]],
            capture_output=True,
            text=True,
            timeout=1800,
            env=os.environ | ({} if name in ("usual", "fuxictr") else {"OMP_WAIT_POLICY": "PASSIVE"}),
            check=False,
        )
        last = (done.stdout.strip().splitlines() or [""])[-1]
        if done.returncode == 0 and last.startswith("{"):
            return json.loads(last)
        said = last if done.returncode == NOT_INSTALLED else (done.stderr.strip().splitlines() or [done.returncode])[-1]
        raise RuntimeError(str(said)[:300])


# What the fresh processes do; nothing above imports more than the standard library.


def work(options: argparse.Namespace) -> None:
    try:
        figures = {"table": make_table, "check": check, **WORKERS}[options.worker](options)
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        print(f"not installed: pip install {name.replace('_', '-')}" if name else f"can't be imported: {error}")
        sys.exit(NOT_INSTALLED)
    print(json.dumps(figures), flush=True)


def make_table(options: argparse.Namespace) -> dict[str, Any]:
    """Random rows. Ids are permuted, since a vocabulary's order has nothing to do with how frequent a value is."""
    import numpy as np
    from make_criteo import cardinalities, zipf

    rows, sizes = options.rows, cardinalities(int(options.table_ids))
    draw = np.random.default_rng(0)
    columns = [draw.permutation(size).astype(np.int32)[zipf(draw, size, rows)] for size in sizes]
    folder = Path(options.folder)
    np.save(folder / "categorical.npy", np.stack(columns, axis=1))
    np.save(folder / "numeric.npy", draw.random((rows, NUMERIC), dtype=np.float32) ** 3)
    np.save(folder / "labels.npy", (draw.random(rows) < 0.256).astype(np.int64))
    (folder / "sizes.json").write_text(json.dumps(sizes))
    return {}


def read_table(options: argparse.Namespace) -> tuple[Any, Any, Any, list[int]]:
    """numeric (n, 13) float32, categorical (n, 26) int32, labels (n,) int64, and the 26 sizes."""
    import numpy as np

    folder = Path(options.folder)
    arrays = [np.load(folder / f"{name}.npy") for name in ("numeric", "categorical", "labels")]
    return *arrays, json.loads((folder / "sizes.json").read_text())


def timed(batches: Iterator, step: Callable[[Any], object], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of whole steps after the warm-up, by the clock and of the processor, and the peak of memory in MB."""
    stamps = [(time.perf_counter(), time.process_time())]
    for _ in range(options.warm_up + options.steps):
        step(next(batches))
        stamps.append((time.perf_counter(), time.process_time()))
    times = zip(*stamps[options.warm_up :], strict=True)
    wall, cpu = ([1e3 * (after - before) for before, after in pairwise(one)] for one in times)
    return {"ms": wall, "cpu_ms": cpu, "peak": peak_memory()}


def endless(epoch: Callable[[], Any]) -> Iterator:
    """Full batches, epoch after epoch."""
    while True:
        yield from epoch()


def use_all_cores() -> None:
    """One thread a core, unless the environment says how many."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def as_a_run(options: argparse.Namespace) -> None:
    """The settings of `vflbench train`."""
    from vflbench.run.settings import set_threads, tune

    tune()
    set_threads(options.batch_size, WIDTH)


def built(options: argparse.Namespace, optimizer: Any, precision: str = "float32", *, wide: bool = False) -> Any:
    """A run on the table, as `vflbench train` builds it: with its default attacks, of which none is made within a step."""
    import numpy as np

    from vflbench.data.base import Dataset
    from vflbench.data.table import RawTable
    from vflbench.engines.base import Local
    from vflbench.generators import Generators
    from vflbench.models.networks import WideDeep
    from vflbench.options import NonNegativeInt
    from vflbench.options import options as with_options
    from vflbench.protocols.split import Split
    from vflbench.run.settings import Audit, Settings
    from vflbench.run.setup import TWO_CLASSES, Experiment, build_run

    numeric, categorical, labels, sizes = read_table(options)
    names = tuple(f"I{i}" for i in range(1, NUMERIC + 1)), tuple(f"C{i}" for i in range(1, len(sizes) + 1))
    raw = RawTable(names[0] + names[1], *names, tuple(sizes), numeric.astype(np.float64), categorical, labels)

    @with_options
    class Table(Dataset):
        min_count: NonNegativeInt = 0

        def read(self, rng: Any) -> tuple[RawTable, dict[str, Any]]:
            return raw, {}

    experiment = Experiment(
        dataset=Table(),
        model=WideDeep(bottom_layers=BOTTOM, top_layers=TOP, width=WIDTH, embedding_dim=DIM, wide=wide),
        protocol=Split(),
        engine=Local(),
        optimizer=optimizer,
        defenses={},
        attacks=TWO_CLASSES,
        settings=Settings(batch_size=options.batch_size, precision=precision, audit=Audit()),
    )
    generators = Generators(0)
    return build_run(experiment, experiment.dataset.load(generators["data"]), generators, Path(options.folder))


def adam_optimizer(kernel: str = "") -> Any:
    """Adam on every row of the tables; with a kernel, lazy Adam."""
    from vflbench.models.lazy_adam import LazyAdam
    from vflbench.models.optimizers import Adam

    if kernel == "numba":
        import numba  # noqa: F401  (so that a missing package is noticed)
    return LazyAdam(lr=LR, kernel=kernel) if kernel else Adam(lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS)


def ours(options: argparse.Namespace, kernel: str = "", **how: Any) -> dict[str, Any]:
    as_a_run(options)
    run = built(options, adam_optimizer(kernel), **how)

    def epoch() -> Iterator[tuple[int, Any]]:
        batches = run.session.batches(run.data.train, options.batch_size, run.generators["batches"], 0)
        run.auditor.begin_epoch(0, len(batches), last=False)
        return enumerate(batches)

    def step(batch: tuple[int, Any]) -> None:
        run.auditor.see(run.session.round(batch[1], step=batch[0], watch=run.auditor.wants(batch[0])))

    return timed(endless(epoch), step, options)


def usual_network(sizes: list[int]) -> Any:
    """What a researcher writes: a module of 26 embeddings and a Sequential, as torch initialises them."""
    import torch
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(nn.Embedding(size, DIM) for size in sizes)
            widths, layers = [NUMERIC + DIM * len(sizes), *[WIDTH] * (BOTTOM + TOP)], []
            for inputs, outputs in pairwise(widths):
                layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            self.mlp = nn.Sequential(*layers, nn.Linear(WIDTH, 1))

        def forward(self, numeric: torch.Tensor, categorical: torch.Tensor) -> torch.Tensor:
            vectors = [table(categorical[:, j]) for j, table in enumerate(self.embeddings)]
            return self.mlp(torch.cat([numeric, *vectors], dim=1)).squeeze(1)

    return Network()


def usual_step(network: Any) -> Callable[[Any], float]:
    import torch
    from torch.nn import functional as F

    optimizer = torch.optim.Adam(network.parameters(), lr=LR)

    def step(batch: Any) -> float:
        numeric, categorical, labels = batch
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(network(numeric, categorical), labels.float())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def usual(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    use_all_cores()
    *arrays, sizes = read_table(options)
    dataset = TensorDataset(*map(torch.from_numpy, arrays))
    loader = DataLoader(dataset, batch_size=options.batch_size, shuffle=True, drop_last=True)
    return timed(endless(lambda: loader), usual_step(usual_network(sizes)), options)


def fuxictr(options: argparse.Namespace, *, tuned: bool = False) -> dict[str, Any]:
    import logging

    import numpy as np
    import torch
    from fuxictr.features import FeatureMap
    from fuxictr.pytorch.dataloaders import RankDataLoader
    from fuxictr.pytorch.layers import FeatureEmbedding, LogisticRegression, MLP_Block
    from fuxictr.pytorch.models import BaseModel

    logging.disable()
    use_all_cores()
    if tuned:  # as vflbench.run.settings.tune, which this interpreter doesn't have
        for option in MALLOC:
            ctypes.CDLL(None).mallopt(*option)
        torch.set_flush_denormal(True)
        torch.set_float32_matmul_precision("medium")
    numeric, categorical, labels, sizes = read_table(options)
    features = FeatureMap("criteo", options.folder)
    features.labels = ["label"]
    features.features = {f"I{j}": {"source": "", "type": "numeric", "embedding_dim": 1} for j in range(NUMERIC)}
    features.features |= {f"C{j}": {"source": "", "type": "categorical", "vocab_size": n} for j, n in enumerate(sizes)}
    features.num_fields = features.get_num_fields()
    features.set_column_index()

    class WideDeep(BaseModel):
        def __init__(self) -> None:
            super().__init__(features, model_id="WideDeep", gpu=-1, verbose=0, model_root=options.folder, metrics=["AUC"])
            self.embedding_layer, self.lr_layer = FeatureEmbedding(features, DIM), LogisticRegression(features)
            self.dnn = MLP_Block(NUMERIC + DIM * len(sizes), [WIDTH] * (BOTTOM + TOP), "relu", output_dim=1)
            self.compile("adam", "binary_crossentropy", LR)
            self.reset_parameters()

        def forward(self, inputs: Any) -> dict[str, torch.Tensor]:
            x = self.get_inputs(inputs)
            logits = self.lr_layer(x) + self.dnn(self.embedding_layer(x, flatten_emb=True))
            return {"y_pred": self.output_activation(logits)}

    file, arrays = Path(options.folder) / "fuxictr.npz", [*numeric.T, *categorical.T, labels]
    np.savez(file, **dict(zip([*features.features, "label"], arrays, strict=True)))
    loader, _ = RankDataLoader(features, "train", train_data=str(file), batch_size=options.batch_size, shuffle=True)
    model = WideDeep()
    model._max_gradient_norm = 10.0  # as fit() sets it
    model.train()
    return timed(endless(lambda: loader), lambda batch: model.train_step(batch).item(), options)


def matmuls(dtype: str) -> Callable[[argparse.Namespace], dict[str, Any]]:
    """x W forward; x^T g and g W^T backward, of the 8 layers and the logit, into buffers that were made before."""

    def run(options: argparse.Namespace) -> dict[str, Any]:
        import torch

        as_a_run(options)
        widths, n, of = [NUMERIC + DIM * 26, *[WIDTH] * (BOTTOM + TOP), 1], options.batch_size, getattr(torch, dtype)
        xs = [torch.rand(n, width).to(of) for width in widths]
        gs = [torch.rand(n, width).to(of) for width in widths]
        weights = [torch.rand(inputs, outputs).to(of) for inputs, outputs in pairwise(widths)]
        gradients = [torch.empty_like(weight) for weight in weights]

        def step(_: object) -> None:
            for i, weight in enumerate(weights):
                torch.mm(xs[i], weight, out=xs[i + 1])
            for i, weight in reversed(list(enumerate(weights))):
                torch.mm(xs[i].T, gs[i + 1], out=gradients[i])
                torch.mm(gs[i + 1], weight.T, out=gs[i])

        return timed(endless(lambda: [None]), step, options)

    return run


def check(options: argparse.Namespace) -> dict[str, Any]:
    """Losses of 5 steps, vflbench's session against the researcher's network with the same weights and batches."""
    import torch

    use_all_cores()
    run = built(options, adam_optimizer())
    session = run.session
    sizes = read_table(options)[-1]
    network = usual_network(sizes)
    bottom, top = session.parties[0].bottom, session.label_party.top
    theirs = [module for module in network.mlp if isinstance(module, torch.nn.Linear)]
    linear = [module for part in (bottom, top) for module in part.modules() if isinstance(module, torch.nn.Linear)]
    with torch.no_grad():
        pieces = bottom.embedding.table.split(sizes)
        for embedding, piece in zip(network.embeddings, pieces, strict=True):
            embedding.weight.copy_(piece)
        for layer, source in zip(theirs, linear, strict=True):
            layer.weight.copy_(source.weight)
            layer.bias.copy_(source.bias)
    step = usual_step(network)
    batches = iter(session.batches(run.data.train, options.batch_size, run.generators["batches"], 0))
    losses, differences = [], []
    for _ in range(5):
        ids = next(batches)
        block, labels = session.rows.parties["a"](ids), session.rows.labels(ids)
        mine = session.round(ids).training.loss
        losses.append(mine)
        differences.append(abs(step((block.numeric, block.categorical, labels)) - mine) / mine)
    usual_size, size = (sum(p.numel() for module in of for p in module.parameters()) for of in ([network], [bottom, top]))
    if usual_size != size or max(differences) > 1e-4:
        raise SystemExit(f"the networks differ: losses by {differences}, parameters: {usual_size} and {size}")
    text = f"5 losses, {losses[0]:.6f} to {losses[-1]:.6f}, differ by {max(differences):.1e} at most"
    return {"text": f"{size:,} parameters both; {text}"}


WORKERS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "adam": ours,
    "lazy-torch": partial(ours, kernel="torch"),
    "lazy-numba": partial(ours, kernel="numba"),
    "bf16": partial(ours, kernel="numba", precision="bf16"),
    "wide": partial(ours, kernel="numba", wide=True),
    "wide-adam": partial(ours, wide=True),
    "usual": usual,
    "fuxictr": fuxictr,
    "fuxictr-tuned": partial(fuxictr, tuned=True),
    "matmuls": matmuls("float32"),
    "matmuls-bf16": matmuls("bfloat16"),
}
