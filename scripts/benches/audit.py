"""What an audit of recorded messages costs, beside reading them.

    python scripts/bench.py audit --batches 1000               # of 8192 x 128: 8 GB that are deleted
    python scripts/bench.py audit --batches 100 --folder big   # written there unless it is there already, and kept

Compared with an audit by norm, cosine and spectral, in turns, each pass in a process of its own that measures itself once
torch is loaded:

    read 1    safetensors.torch.load_file of every file; the covariance torch.cov of its embeddings; the sum of its
              gradients, as the library maps a file and reads nothing of what isn't used
    read 2    the same with the covariance of both

Each with one thread of torch, and with as many as there are cores. The audit has as many threads as it takes. Medians over
turns; the note has the ratio by the clock to the faster of the two.
"""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median as median_of

from benches.lines import Cost, Line, command, cpu_seconds, median, peak_memory

PASSES = ("read 1", "read 1, a thread", "read 2", "read 2, a thread", "audit")


def write(folder: Path, batches: int, rows: int, width: int) -> None:
    """A recording of one party: embeddings with a weak label, gradients of a logistic loss with noise, labels."""
    import torch

    from vflbench.messages.recording_format import LABELS, PartyLayers, RecordingManifest, write_batch_file, write_manifest
    from vflbench.messages.tables import write_rows

    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, RecordingManifest(classes=2, parties={"a": PartyLayers({"cut": width})}, complete=True))
    rng = torch.Generator().manual_seed(0)
    direction, labels = torch.randn(width, generator=rng), []
    for step in range(batches):
        y = (torch.rand(rows, generator=rng) < 0.2).long()
        labels.append(y)
        h = torch.randn(rows, width, generator=rng) + 0.1 * (y[:, None] - 0.2) * direction
        p = torch.randn(rows, 1, generator=rng).sigmoid()
        g = (p - y[:, None]) * direction + 0.3 * torch.randn(rows, width, generator=rng)
        ids = torch.arange(rows) + step * rows
        write_batch_file(folder, "a", ids, {"embedding/cut": h, "gradient/cut": g}, epoch=0, step=step)
    write_rows(folder / LABELS, {"id": torch.arange(batches * rows), "label": torch.cat(labels)})


def one_pass(name: str, folder: Path) -> Cost:
    """What one pass costs in this process, after torch is loaded."""
    import torch
    from safetensors.torch import load_file

    from vflbench.attacks.cosine import Cosine
    from vflbench.attacks.norm import Norm
    from vflbench.attacks.spectral import Spectral
    from vflbench.run.offline import audit_recording

    if name.endswith("a thread"):
        torch.set_num_threads(1)
    begin, cpu = time.perf_counter(), cpu_seconds()
    if name == "audit":
        result = audit_recording(folder, {"norm": Norm(), "cosine": Cosine(), "spectral": Spectral()}, probe=False)
        assert {leak.attack for leak in result.findings[-1].leaks} == {"norm", "cosine", "spectral"}
    else:
        for path in sorted((folder / "messages").glob("*.safetensors")):
            for key, values in load_file(path).items():
                if "embedding" in key or (name.startswith("read 2") and "gradient" in key):
                    torch.cov(values.T)
                else:
                    values.sum()
    return Cost(time.perf_counter() - begin, cpu_seconds() - cpu, peak_memory())


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--worker", choices=PASSES, help=argparse.SUPPRESS)


def work(options: argparse.Namespace) -> None:
    cost = one_pass(options.worker, options.folder)
    print(cost.wall, cost.cpu, cost.memory)


def bench(options: argparse.Namespace) -> Iterator[Line]:
    if options.quick:
        options.batches, options.rows, options.width, options.turns = 2, 50, 4, 1
    with tempfile.TemporaryDirectory() as spare:
        folder = options.folder or Path(spare) / "recording"
        if not (folder / "manifest.json").is_file():
            write(folder, options.batches, options.rows, options.width)

        def run(name: str) -> Cost:
            words = command("audit", "--worker", name, "--folder", str(folder))
            printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            return Cost(*map(float, printed.split()[-3:]))

        turns = [
            {name: run(name) for name in (*PASSES[number:], *PASSES[:number])}
            for number in (place % len(PASSES) for place in range(options.turns))
        ]
        count = len(list((folder / "messages").iterdir()))
    costs = {name: median([turn[name] for turn in turns]) for name in PASSES}
    for name in ("read 1", "read 2"):
        for read in (name, f"{name}, a thread"):
            ratios = [turn["audit"].wall / turn[read].wall for turn in turns]
            note = f"by the clock {median_of(ratios):.2f}"
            yield Line(f"audit of {count} batches", costs["audit"], limit=read, least=costs[read], note=note)
