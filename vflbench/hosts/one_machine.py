"""A run whose parties are processes on this machine: started and watched here, and none of them is left."""

import json
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from vflbench.cli.build import Started
from vflbench.cli.sweep import JobOutcome, Status
from vflbench.data.party_table import write_party_tables
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare.engine import NvFlare
from vflbench.engines.nvflare.job import CLIENT_CLASSES, SERVER_CLASSES, Job, write_job
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.plain_files import written_whole
from vflbench.protocols.split import Split
from vflbench.run.experiment import Experiment
from vflbench.run.interruption import Interrupted


@dataclass
class Stopping:
    """What Ctrl-C and SIGTERM ask for: the first is passed on by a file, the second ends the run at once."""

    file: Path
    count: int = 0
    number: int = 0

    def note(self, number: int, _: FrameType | None) -> None:
        self.count, self.number = self.count + 1, number
        if self.count == 1:
            temporary = self.file.with_suffix(".new")
            temporary.write_text(str(number), encoding="ascii")
            temporary.replace(self.file)
            if sys.stderr is not None and sys.stderr.isatty():
                os.write(2, b"\nstopping: the current batch is finished and saved first; Ctrl-C again stops at once\n")

    @classmethod
    @contextmanager
    def watched(cls, file: Path) -> Iterator["Stopping"]:
        stopping = cls(file)
        if threading.current_thread() is not threading.main_thread():
            yield stopping
            return
        before: dict[signal.Signals, Any] = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stopping.note)
            yield stopping
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Places:
    """The folders and files of a run that is started here and takes place in other processes."""

    def __init__(self, root: Path):
        self.root, self.job, self.sites, self.tables = root, root / "job", root / "sites", root / "tables"
        self.outcome, self.stop = root / "outcome.json", root / "stop"
        self.problem, self.console = root / "problem", root / "console"


@contextmanager
def workspace(name: str | None) -> Iterator[Path]:
    """A new private folder, deleted at the end unless the user named it."""
    if name is None:
        with tempfile.TemporaryDirectory(prefix="vflbench-nvflare-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    root = Path(name).absolute()
    try:
        root.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise UserError("it is there already; name a new folder", key="engine.workspace", value=root) from error
    except OSError as error:
        raise UserError(f"{error.strerror}", key="engine.workspace", value=root) from error
    yield root


@dataclass(frozen=True)
class Outcome:
    """status: of a `JobOutcome`, or "error" or "interrupted". reason: one paragraph. code: with which a command ends."""

    status: str
    test_auc: float = math.nan
    reason: str = ""
    code: int = 1

    def taken(self) -> JobOutcome:
        """As if the run had been in this process. Raises UserError or Interrupted where it ended so."""
        if self.status == "interrupted":
            raise Interrupted(self.reason, self.code)
        if self.status == "error":
            raise UserError(self.reason)
        return JobOutcome(Status(self.status), self.test_auc, self.reason)


def outcome_of_error(error: BaseException) -> Outcome:
    """Of a run that ended early."""
    from vflbench.cli.mistakes import describe

    if isinstance(error, Interrupted):
        return Outcome("interrupted", reason=error.message, code=error.exit_code)
    text = describe(error) if isinstance(error, Exception) else None
    return Outcome("error", reason=text or f"the label party's process failed ({type(error).__name__}: {error})")


def leave_outcome(path: Path, outcome: Outcome) -> None:
    with written_whole(path, "w", private=True, encoding="utf-8") as file:
        json.dump(asdict(outcome), file)


def read_outcome(path: Path) -> Outcome | None:
    """None where there is none yet."""
    if not path.exists():
        return None
    return Outcome(**json.loads(path.read_text(encoding="utf-8")))


PARTIES = "parties"
"""The folder of a run in which each party keeps what it goes on from, in a folder of its own."""

AGAIN = "the same command goes on from what was saved last"
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
        from vflbench.hosts.run import record_at_parties

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


def run_processes(engine: NvFlare, places: Places, sites: list[str]) -> Outcome:
    """Start the processes and wait for what becomes of the job; none of them is left, whatever happens."""
    from vflbench.engines.nvflare.processes import MARK, kill_marked, named

    mark = secrets.token_hex(16)
    environment = {
        **os.environ,
        MARK: mark,
        "NVFLARE_STREAMING_MAX_BLOB_SIZE": str((engine.max_message_mib << 20) + (1 << 20)),
        "NVFLARE_DATUM_DIR": os.path.join(os.devnull, "none"),  # a message can't leave a file at its receiver
    }
    local = places.sites / "local"
    local.mkdir(parents=True)
    allowed = {"format_version": 2, "class_allow_list": [*SERVER_CLASSES, *CLIENT_CLASSES]}
    (local / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
    spec = {
        "job": os.fspath(places.job),
        "workspace": os.fspath(places.sites),
        "sites": sites,
        "parents": [named(os.getpid())],
        "problem": os.fspath(places.problem),
        "imports": ["vflbench.hosts.sites", "vflbench.models.layers"],
    }
    file = places.root / "start.json"
    file.write_text(json.dumps(spec), encoding="utf-8")
    command = [sys.executable, "-m", "vflbench.engines.nvflare.simulation", os.fspath(file)]
    try:
        with Stopping.watched(places.stop) as stopping:
            process = subprocess.Popen(  # nosec B603  # our own module, no shell
                command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
            )
            return _wait(process, engine, places, stopping)
    finally:
        kill_marked(mark)


def _wait(process: subprocess.Popen[bytes], engine: NvFlare, places: Places, stopping: Stopping) -> Outcome:
    while True:
        ended = process.poll() is not None
        outcome = read_outcome(places.outcome)  # after the look at the process, which leaves it before it ends
        if outcome is not None:
            return outcome
        if ended:
            kept = f"its log is in {places.sites}" if engine.workspace else "engine.workspace=FOLDER keeps its log"
            why = (
                places.problem.read_text(encoding="utf-8") if places.problem.exists() else f"exit code {process.returncode}"
            )
            problem = f"the label party's process ended before the run did ({why}); {kept}; {AGAIN}"
            return Outcome("error", reason=f"engine: {problem}")
        if stopping.count > 1:
            raise Interrupted("stopped at once; the same command goes on from what was saved before", 128 + stopping.number)
        time.sleep(_LOOK_SECONDS)
