"""What an audit of recorded messages costs, beside reading them.

    python scripts/bench_audit.py                              # 1,000 batches of 8192 x 128, 8 GB that are deleted
    python scripts/bench_audit.py --batches 100 --folder big   # written there unless it is there already, and kept

Compared with an audit by norm, cosine and spectral, in turns, each pass in a process of its own that measures itself once
torch is loaded:

    read 1    safetensors.torch.load_file of every file; the covariance torch.cov of its embeddings; the sum of its
              gradients, as the library maps a file and reads nothing of what isn't used
    read 2    the same with the covariance of both

Each with one thread of torch, and with as many as there are cores; the faster of the two counts. The audit has as many
threads as it takes. Printed: the median over turns of wall and CPU seconds, the largest memory, and of each turn the ratio
of the audit to what it is compared with. `--cold` drops the files from the page cache before each pass.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PASSES = ("read 1", "read 1, a thread", "read 2", "read 2, a thread", "audit")


def write(folder: Path, batches: int, rows: int, width: int) -> None:
    """A recording of one party: embeddings with a weak label, gradients of a logistic loss with noise, labels."""
    import torch

    from vflbench.messages.manifest import LABELS, Manifest, PartyLayers
    from vflbench.messages.message_files import write_batch_file, write_manifest, write_rows

    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, Manifest(classes=2, parties={"a": PartyLayers({"cut": width})}, complete=True))
    rng = torch.Generator().manual_seed(0)
    direction, labels = torch.randn(width, generator=rng), []
    for step in range(batches):
        y = (torch.rand(rows, generator=rng) < 0.2).long()
        labels.append(y)
        h = torch.randn(rows, width, generator=rng) + 0.1 * (y[:, None] - 0.2) * direction
        p = torch.randn(rows, 1, generator=rng).sigmoid()
        g = (p - y[:, None]) * direction + 0.3 * torch.randn(rows, width, generator=rng)
        ids = torch.arange(rows) + step * rows
        write_batch_file(folder, "a", step, ids, {"embedding/cut": h, "gradient/cut": g}, epoch=0, step=step)
    write_rows(folder / LABELS, {"id": torch.arange(batches * rows), "label": torch.cat(labels)})


def drop(folder: Path) -> None:
    """From the page cache, as far as the system does it."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(name: str, folder: Path) -> tuple[float, float, int]:
    """Wall and CPU seconds of one pass in this process, and its largest memory in MB."""
    import torch
    from safetensors.torch import load_file

    from vflbench.attacks.cosine import Cosine
    from vflbench.attacks.norm import Norm
    from vflbench.attacks.spectral import Spectral
    from vflbench.run.offline import audit

    if name.endswith("a thread"):
        torch.set_num_threads(1)
    begin, cpu = time.perf_counter(), time.process_time()
    if name == "audit":
        result = audit(folder, {"norm": Norm(), "cosine": Cosine(), "spectral": Spectral()}, probe=False)
        assert {leak.attack for leak in result.findings[-1].leaks} == {"norm", "cosine", "spectral"}
    else:
        for path in sorted((folder / "messages").glob("*.safetensors")):
            for key, values in load_file(path).items():
                if "embedding" in key or (name.startswith("read 2") and "gradient" in key):
                    torch.cov(values.T)
                else:
                    values.sum()
    seconds = time.perf_counter() - begin, time.process_time() - cpu
    return *seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def turn(folder: Path, cold: bool, rotate: int) -> dict[str, tuple[float, float, int]]:
    """Each pass once, beginning with another one in each turn."""
    measured = {}
    for place in range(len(PASSES)):
        name = PASSES[(place + rotate) % len(PASSES)]
        if cold:
            drop(folder)
        command = [sys.executable, __file__, "--folder", str(folder), "--only", name]
        wall, cpu, memory = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-3:]
        measured[name] = float(wall), float(cpu), int(memory)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--only", choices=PASSES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(*measure(options.only, options.folder))
        return
    with tempfile.TemporaryDirectory() as spare:
        folder = options.folder or Path(spare) / "recording"
        if not (folder / "manifest.json").is_file():
            write(folder, options.batches, options.rows, options.width)
        turns = [turn(folder, options.cold, number) for number in range(options.turns)]
        count = len(list((folder / "messages").iterdir()))
    print(f"{count} batches, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.turns} turns")
    print(f"{'':18}{'wall s':>9}{'CPU s':>9}{'MB':>7}   audit / this: wall, CPU (median; each turn)")
    for name in PASSES:
        wall, cpu, memory = (statistics.median(column) for column in zip(*(one[name] for one in turns), strict=True))
        line = f"{name:18}{wall:9.2f}{cpu:9.2f}{memory:7.0f}"
        if name != "audit":
            for part in (0, 1):
                ratios = [one["audit"][part] / one[name][part] for one in turns]
                line += f"   {statistics.median(ratios):.2f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)})"
        print(line)
    for name in ("read 1", "read 2"):
        ratios = [one["audit"][0] / min(one[name][0], one[f"{name}, a thread"][0]) for one in turns]
        print(f"audit / the faster {name}: {statistics.median(ratios):.2f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)})")


if __name__ == "__main__":
    main()
