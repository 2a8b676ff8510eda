"""What it costs that parties live in processes of their own: seconds and bytes of a training step, by engine.

    python scripts/bench.py engine --rows 8192 --parties 1 --steps 5 --defenses none     # all cases take some minutes

Each step is one round of split learning with the default network: embeddings up, gradients down, everybody learns. Every
engine makes the same steps from the same tables, in one go of this script:

    local       all parties in one process
    simulator   engine=nvflare: a process for each party, over TCP of this machine
    poc         engine=nvflare engine.mode=poc: FLARE's server and clients, over TCP with mutual TLS
    gloo        no model: the tensors of such a step, float32, sent and answered by torch.distributed between processes

A step costs its median by the clock, and the CPU seconds of all processes; local's and gloo's together are the limit. The
note has the bytes of a step as runs count them, and as FLARE hands them to its sockets at the label party's process, frames
and acknowledgements included; and what a step takes beyond the limit by the clock, beside local's.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection
from torch import multiprocessing as mp

from benches.lines import Cost, Line
from vflbench.cli import elsewhere
from vflbench.cli.build import build
from vflbench.cli.resolvers import plain
from vflbench.data.party_table import read_label_table, read_party_table, write_party_tables
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare.engine import Connected, NvFlare
from vflbench.engines.nvflare.job import Job, write_job
from vflbench.engines.nvflare.processes import MARK, marked
from vflbench.generators import Generators
from vflbench.hosts.flare_outcome import Outcome
from vflbench.hosts.flare_places import Places, workspace
from vflbench.hosts.flare_sites import LabelPartySite, PartySite
from vflbench.hosts.party_process import PartyProcess
from vflbench.places import config_folder
from vflbench.run.experiment import Experiment
from vflbench.run.machine import set_threads, tune
from vflbench.run.setup import seat

WARM = 2
WIDTH = 128
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    rows: int
    parties: int
    defense: str

    @property
    def key(self) -> str:
        return f"{self.rows}/{self.parties}/{self.defense}"


@dataclass(frozen=True)
class Figures:
    """Of a step: median seconds, bytes as a run counts them, bytes in FLARE's sockets, CPU seconds of all processes."""

    seconds: float
    counted: float
    sent: float
    cpu: float


def options(case: Case) -> dict[str, Any]:
    """The resolved options of a run of this case."""
    from hydra import compose, initialize_config_dir

    words = [f"dataset.rows={2 * case.rows}", f"dataset.parties={case.parties}", f"batch_size={case.rows}", "seed=0"]
    words += ["attack=norm", "audit.probe=false", f"model.width={WIDTH}", "name=bench", f"defense={case.defense}"]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        return dict(plain(compose("train", words)))


class Sockets:
    """Counts what FLARE hands to its sockets in this process, and takes from them."""

    def __init__(self) -> None:
        self.bytes = 0
        send, frame = SocketConnection.send_frame, SocketConnection.process_frame

        def sending(connection: Any, data: Any) -> Any:
            self.bytes += len(data)
            return send(connection, data)

        def taking(connection: Any, data: Any) -> Any:
            self.bytes += len(data)
            return frame(connection, data)

        SocketConnection.send_frame, SocketConnection.process_frame = sending, taking


def measure(
    case: Case,
    experiment: Experiment,
    data: Any,
    channels: Mapping[str, Any],
    steps: int,
    sockets: Sockets | None,
    processes: list[psutil.Process],
) -> Figures:
    """Make the steps of this case. channels: to parties elsewhere; none where all are here."""
    tune()
    set_threads(case.rows, WIDTH)
    experiment = replace(experiment, engine=Connected(channels)) if channels else experiment
    with tempfile.TemporaryDirectory() as folder:
        session = seat(experiment, data, Generators(0), case.rows, 1, Path(folder)).session
        ids = data.train.sample(case.rows).ids
        seconds = []
        for step in range(WARM + steps):
            if step == WARM:
                session.wire.take_traffic()
                before, cpu = sockets.bytes if sockets else 0, cpu_seconds(processes)
            start = time.perf_counter()
            session.round(ids, epoch=0, step=step)
            seconds.append(time.perf_counter() - start)
        counted = sum(traffic.bytes for traffic in session.wire.take_traffic().values())
        sent = sockets.bytes - before if sockets else 0
        used = cpu_seconds(processes) - cpu
    return Figures(statistics.median(seconds[WARM:]), counted / steps, sent / steps, used / steps)


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


class BenchLabelParty(LabelPartySite):
    """The label party's site, which measures and doesn't run."""

    def train(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Outcome:
        sockets, figures = Sockets(), {}
        links = self.channels(site, NvFlare())
        processes = [psutil.Process(), *marked(os.environ[MARK])]
        for described in run["cases"]:
            case = Case(**described)
            data = read_label_table(Path(run["tables"]) / str(case.rows) / str(case.parties) / LABEL_PARTY)
            experiment = build(run["options"][case.key])
            names = list(links)[: case.parties]
            for name in names:
                links[name].call("case", {"key": case.key})
            chosen = {name: links[name] for name in names}
            figures[case.key] = asdict(measure(case, experiment, data, chosen, run["steps"], sockets, processes))
        Path(site["figures"]).write_text(json.dumps(figures), encoding="utf-8")
        return Outcome("done")


class Switching:
    """A party that is seated anew for each case."""

    def __init__(self, run: Mapping[str, Any], party: str):
        self.run, self.party = run, party

    def handle(self, method: str, content: Mapping[str, Any]) -> Any:
        if method != "case":
            return self.process.handle(method, content)
        rows, parties, _ = content["key"].split("/")
        folder = Path(self.run["tables"]) / rows / parties / self.party
        experiment = build(self.run["options"][content["key"]])
        self.process = PartyProcess(self.party, experiment, lambda: read_party_table(folder), folder / "kept")
        return {}


class BenchParty(PartySite):
    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Any:
        self._most = 1024 * MIB
        return Switching(run, site["party"])


def apart(mode: str, cases: list[Case], made: dict[str, dict[str, Any]], tables: Path, steps: int) -> dict[str, Figures]:
    """All cases, with one start of the processes."""
    engine = NvFlare(mode=mode, timeout=300.0)
    most = max(case.parties for case in cases)
    folders = (tables / str(cases[0].rows) / str(most)).iterdir()
    names = sorted(path.name for path in folders if path.name != LABEL_PARTY)
    classes = [f"benches.engine.{name.__name__}" for name in (BenchLabelParty, BenchParty)]
    with workspace(os.environ.get("BENCH_WORKSPACE")) as root:
        places = Places(root)
        sites = elsewhere.site_names(names)
        figures = root / "figures.json"
        server = {"parties": sites, "folder": os.getcwd(), "figures": str(figures), "console": None}
        server |= {"outcome": str(places.outcome), "stop": str(places.stop), "problem": str(places.problem)}
        run = {"cases": [asdict(case) for case in cases], "tables": str(tables), "steps": steps, "options": made}
        job = Job("bench", run, {site: {"party": party} for site, party in sites.items()}, server)
        job = Job(**{**vars(job), "label_party_site": classes[0], "party_site": classes[1]})
        write_job(job, places.job)
        elsewhere.run_processes(engine, places, list(sites), classes).taken()
        return {key: Figures(**values) for key, values in json.loads(figures.read_text()).items()}


def at_home(cases: list[Case], made: dict[str, dict[str, Any]], steps: int) -> dict[str, Figures]:
    """All cases in this process."""
    figures = {}
    for case in cases:
        experiment = build(made[case.key])
        data = experiment.dataset.load(Generators(0)["data"])
        figures[case.key] = measure(case, experiment, data, {}, steps, None, [psutil.Process()])
    return figures


def gloo(cases: list[Case], steps: int) -> dict[str, Figures]:
    """Tensors of the same sizes between the label party (rank 0) and the others, without any model."""
    figures = {}
    for rows, parties in sorted({(case.rows, case.parties) for case in cases}):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_exchange, (parties, rows, steps, folder), nprocs=parties + 1)
            seconds, cpu = json.loads((Path(folder) / "figures").read_text())
        carried = 2 * parties * rows * WIDTH * 4
        figures[f"{rows}/{parties}"] = Figures(seconds, carried, carried, cpu)
    return figures


def _exchange(rank: int, parties: int, rows: int, steps: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=parties + 1)
    block = [torch.randn(rows, WIDTH) for _ in range(parties)]
    seconds = []
    for step in range(WARM + steps):
        if step == WARM:
            dist.barrier()
            began = time.process_time()
        start = time.perf_counter()
        if rank == 0:
            for waiting in [dist.irecv(block[peer], peer + 1) for peer in range(parties)]:
                waiting.wait()
            for waiting in [dist.isend(block[peer], peer + 1) for peer in range(parties)]:
                waiting.wait()
        else:
            dist.send(block[0], 0)
            dist.recv(block[0], 0)
        seconds.append(time.perf_counter() - start)
    cpu = torch.tensor([time.process_time() - began], dtype=torch.float64)
    dist.reduce(cpu, 0)
    if rank == 0:
        (Path(folder) / "figures").write_text(json.dumps([statistics.median(seconds[WARM:]), float(cpu) / steps]))
    dist.destroy_process_group()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 8192])
    parser.add_argument("--parties", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--defenses", nargs="+", default=["none", "top_k", "quantize"])
    parser.add_argument("--engines", nargs="+", default=["simulator", "poc"])
    parser.add_argument("--steps", type=int, default=10)


def bench(given: argparse.Namespace) -> Iterator[Line]:
    if given.quick:
        given.rows, given.parties, given.defenses, given.engines, given.steps = [64], [1], ["none"], ["simulator"], 2
    cases = [Case(*case) for case in itertools.product(given.rows, given.parties, given.defenses)]
    made = {case.key: options(case) for case in cases}
    here = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        for case in cases:
            place = tables / str(case.rows) / str(case.parties)
            if not place.exists():
                write_party_tables(build(made[case.key]).dataset.load(Generators(0)["data"]), place)
        figures = {"local": at_home(cases, made, given.steps)}
        for mode in given.engines:
            figures[mode] = apart(mode, cases, made, tables, given.steps)
        bare = gloo(cases, given.steps)
    for case, mode in itertools.product(cases, given.engines):
        yield line(case, mode, figures[mode][case.key], figures["local"][case.key], bare[f"{case.rows}/{case.parties}"])


def line(case: Case, mode: str, own: Figures, home: Figures, bare: Figures) -> Line:
    over = (own.seconds - home.seconds - bare.seconds) / home.seconds
    sent = f"{own.counted / MIB:.3f} MiB counted, {own.sent / MIB:.3f} sent"
    return Line(
        f"{mode}, {case.rows} rows, {case.parties} parties, {case.defense}",
        Cost(own.seconds, own.cpu),
        limit="local, and the bare tensors by gloo",
        least=Cost(home.seconds + bare.seconds, home.cpu + bare.cpu),
        note=f"{sent}; overhead {over:.2f} of local's step by the clock",
    )
