"""Starts a run whose parties are processes of their own on this machine, watches it, and ends every one of its processes."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vflbench.cli.build import Started
from vflbench.cli.sweep import JobOutcome
from vflbench.data.party_table import write_party_tables
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare.engine import NvFlare
from vflbench.engines.nvflare.job import CLIENT_CLASSES, SERVER_CLASSES, Job, write_job
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.flare_outcome import Outcome, read_outcome
from vflbench.hosts.flare_places import Places, workspace
from vflbench.hosts.stopping import Stopping
from vflbench.protocols.split import Split
from vflbench.run.experiment import Experiment
from vflbench.run.interruption import Interrupted

PARTIES = "parties"
"""The folder of a run in which each party keeps what it goes on from, in a folder of its own."""

_LOOK_SECONDS = 0.05
_SITE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}")
_OF_FLARE = ("server", "client", "localhost", "admin", "relay", "all", "ALL", "job", "sites", "local", "startup")
"""Names that mean something else to FLARE, or are folders of its workspace."""


def record_elsewhere(started: Started, experiment: Experiment, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """As `record`, with the run in the label party's process. Raises UserError, also for a party that fails."""
    engine = experiment.engine
    assert isinstance(engine, NvFlare)
    engine.require_installed()
    if not isinstance(experiment.protocol, Split):
        problem = "only protocol=split has parties that can live elsewhere; engine=local runs this one"
        raise UserError(problem, key="protocol", value=started.choices.get("protocol"))
    if engine.mode == "provisioned":
        from vflbench.hosts.parties_run import record_at_parties

        return record_at_parties(started, experiment, folder, in_sweep=in_sweep)
    with workspace(engine.workspace) as root:
        places = Places(root)
        sites = site_names(_write_tables(experiment, places.tables))
        write_job(_job(started, engine, places, sites, folder, in_sweep=in_sweep), places.job)
        outcome = run_processes(engine, places, list(sites)).taken()
    kept = Path(folder, PARTIES)
    if not any(path.is_file() for path in kept.rglob("*")):  # the run is complete, and nobody goes on from there
        shutil.rmtree(kept, ignore_errors=True)
    return outcome


def site_names(parties: Sequence[str]) -> dict[str, str]:
    """Site of FLARE -> party. A site has the party's name, where FLARE can take it."""
    return {
        party if _SITE.fullmatch(party) and party not in _OF_FLARE else f"party-{number}": party
        for number, party in enumerate(parties, 1)
    }


def _write_tables(experiment: Experiment, folder: Path) -> list[str]:
    """A table for each party; each process reads its own. Returns the non-label parties, in order. What was read is left in
    this process, which is none of theirs, and forgotten.
    """
    data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
    write_party_tables(data, folder)
    return [party for party in data.train.columns if party != LABEL_PARTY]


def _job(started: Started, engine: NvFlare, places: Places, sites: dict[str, str], folder: Path, *, in_sweep: bool) -> Job:
    own = os.path.abspath(folder)
    server = {
        "parties": sites,
        "table": os.fspath(places.tables / LABEL_PARTY),
        "folder": os.getcwd(),
        "outcome": os.fspath(places.outcome),
        "stop": os.fspath(places.stop),
        "problem": os.fspath(places.problem),
        "console": None if engine.mode == "simulator" else os.fspath(places.console),
        "terminal": sys.stdout.isatty(),
    }
    return Job(
        name="vflbench",
        run={"started": vars(started), "output": own, "in_sweep": in_sweep},
        parties={
            site: {
                "party": party,
                "table": os.fspath(places.tables / party),
                "checkpoints": os.path.join(own, PARTIES, party),
            }
            for site, party in sites.items()
        },
        server=server,
        start_timeout=engine.start_timeout,
        timeout=engine.timeout,
    )


def run_processes(engine: NvFlare, places: Places, sites: list[str], classes: Sequence[str] = ()) -> Outcome:
    """Start the processes and wait for what becomes of the job; none of them is left, whatever happens. classes: what a site
    may build of the job beside those of a run.
    """
    from vflbench.engines.nvflare.processes import MARK, kill_marked, named

    mark = secrets.token_hex(16)
    environment = {
        **os.environ,
        MARK: mark,
        "NVFLARE_STREAMING_MAX_BLOB_SIZE": str((engine.max_message_mib << 20) + (1 << 20)),
        "NVFLARE_DATUM_DIR": os.path.join(os.devnull, "none"),  # a message can't leave a file at its receiver
    }
    parents = [named(os.getpid())]
    with ExitStack() as stack:
        stack.callback(kill_marked, mark)
        stopping = stack.enter_context(Stopping.watched(places.stop))
        process = stack.enter_context(_started(engine, places, sites, classes, parents, environment))
        return _wait(process, engine, places, stopping)


_MODULES = {
    "simulator": "vflbench.engines.nvflare.simulation",
    "poc": "vflbench.engines.nvflare.proof_of_concept",
}


@contextmanager
def _started(
    engine: NvFlare,
    places: Places,
    sites: list[str],
    classes: Sequence[str],
    parents: list[list[float]],
    environment: dict[str, str],
) -> Iterator[subprocess.Popen[bytes]]:
    """The process from which all others are started. What FLARE prints there goes to a file."""
    local = places.sites / "local"
    local.mkdir(parents=True)
    allowed = {"format_version": 2, "class_allow_list": [*SERVER_CLASSES, *CLIENT_CLASSES, *classes]}
    (local / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
    spec = {
        "job": os.fspath(places.job),
        "workspace": os.fspath(places.sites),
        "sites": sites,
        "parents": parents,
        "port": engine.port,
        "start_timeout": engine.start_timeout,
        "classes": list(classes),
        "problem": os.fspath(places.problem),
        "imports": ["vflbench.hosts.flare_sites", "vflbench.models.layers"],
    }
    file = places.root / "start.json"
    file.write_text(json.dumps(spec), encoding="utf-8")
    command = [sys.executable, "-m", _MODULES[engine.mode], os.fspath(file)]
    with open(places.root / "printed.txt", "wb") as printed:
        shown = None if engine.mode == "simulator" else printed
        yield subprocess.Popen(  # nosec B603  # our own module, no shell
            command, env=environment, stdin=subprocess.DEVNULL, stdout=shown, stderr=shown, start_new_session=True
        )


def _wait(process: subprocess.Popen[bytes], engine: NvFlare, places: Places, stopping: "Stopping") -> Outcome:
    printed = 0
    while True:
        ended = process.poll() is not None
        outcome = read_outcome(places.outcome)  # after the look at the process, which leaves it before it ends
        printed = _show(places.console, printed)
        if outcome is not None:
            return outcome
        if ended:
            kept = f"its log is in {places.sites}" if engine.workspace else "engine.workspace=FOLDER keeps its log"
            why = (
                places.problem.read_text(encoding="utf-8") if places.problem.exists() else f"exit code {process.returncode}"
            )
            problem = f"the label party's process ended before the run did ({why}); {kept}; {_AGAIN}"
            return Outcome("error", reason=f"engine: {problem}")
        if stopping.count > 1:
            raise Interrupted("stopped at once; the same command goes on from what was saved before", 128 + stopping.number)
        time.sleep(_LOOK_SECONDS)


def _show(console: Path, printed: int) -> int:
    """Print what the label party's process has printed since. Returns how many bytes that makes."""
    if not console.exists():
        return printed
    with console.open("rb") as file:
        file.seek(printed)
        more = file.read()
    if more:
        sys.stdout.write(more.decode("utf-8", "replace"))
        sys.stdout.flush()
    return printed + len(more)


_AGAIN = "the same command goes on from what was saved last"
