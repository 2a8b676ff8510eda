"""`vflbench parties run PROJECT`: a run of `vflbench train` with the connected parties of a project."""

import contextlib
import io
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from vflbench import __version__
from vflbench.cli.build import Started
from vflbench.cli.sweep import JobOutcome
from vflbench.engines.nvflare.engine import NvFlare
from vflbench.engines.nvflare.job import Job, write_job
from vflbench.engines.nvflare.kit import LABEL_PARTY, LABEL_PARTY_SITE, PARTY_SITE, SUBMITTER, Kit, read_kit, shared
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.commands import need_flare, split_words
from vflbench.hosts.one_machine import AGAIN, Outcome, Places, Stopping, read_outcome
from vflbench.hosts.project import ADMIN
from vflbench.run.experiment import Experiment
from vflbench.run.interruption import Interrupted

_LOCAL_VALUES = {"name": "run", "logger": {}, "overwrite": False, "log_every": 100}
"""What a party that writes no results puts in the place of the label party's own options."""


def write_parties_job(
    places: Places, started: Started, experiment: Experiment, parties: Sequence[str], folder: Path
) -> None:
    """Write it to `places.job`. parties: names of those that take part. folder: of the results."""
    from vflbench.engines.nvflare.processes import named

    if started.plugins:
        problem = "the classes of plug-ins are not at the other parties: runs there take what vflbench has"
        raise UserError(problem, key="--plugins", value=started.plugins[0])
    engine = experiment.engine
    assert isinstance(engine, NvFlare)
    server = {
        "parties": {party: party for party in parties},
        "table": os.fspath(places.tables / LABEL_PARTY),
        "folder": os.getcwd(),
        "outcome": os.fspath(places.outcome),
        "stop": os.fspath(places.stop),
        "problem": os.fspath(places.problem),
        "console": os.fspath(places.console),
        "started": vars(started),
        "output": os.path.abspath(folder),
        "in_sweep": False,
        "begun_by": named(os.getpid()),
    }
    job = Job(
        name="vflbench",
        run={"version": __version__, "config": shared(started.options)},
        parties={party: {"party": party} for party in parties},
        server=server,
        start_timeout=engine.start_timeout,
        timeout=engine.timeout,
        label_party_site=LABEL_PARTY_SITE,
        party_site=PARTY_SITE,
    )
    write_job(job, places.job)


def started_at_party(config: Mapping[str, Any], kit: Kit) -> Started:
    """The experiment of a job as a party builds it, with its own options of `dataset`."""
    dataset = config.get("dataset")
    dataset = kit.dataset(dataset) if isinstance(dataset, Mapping) else dataset
    return Started({**config, **_LOCAL_VALUES, "dataset": dataset}, [], {}, [], {})


def tables_of_label_party(kit: Kit, experiment: Experiment, folder: Path) -> list[str]:
    """The names of the other parties. Where all read one data set, what the label party holds is written to `folder`."""
    if kit.has_own_file:
        return list(kit.others)
    from vflbench.data.party_table import write_party_tables

    data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
    written = write_party_tables(data, folder)
    parties = [party for party in written if party != LABEL_PARTY]
    for party in parties:
        shutil.rmtree(written[party])
    return parties


LATE = 12.0
"""Seconds without a sign of life after which a party counts as not connected."""

_SERVER_ENDED = f"engine: the server of the project has ended; start it again, and {AGAIN}"
_LOOK_SECONDS = 0.25
_ASK_SECONDS = 2.0  # between two questions to the server
_SILENCE = 20.0  # seconds that the server may be silent while a run is under way
_ENDING = 40.0  # seconds that FLARE may take to end a job whose run is over
_UNDER_WAY = ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING")


class Server:
    """A session of FLARE's: Server.reached() makes it."""

    def __init__(self, session: Any):
        self._session = session

    @classmethod
    @contextmanager
    def reached(cls, kit: Path, patience: float) -> Iterator[Self]:
        """Raises UserError where nobody answers, or the server is not of this project. patience: seconds."""
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        logging.getLogger().addHandler(logging.NullHandler())  # else FLARE's warnings go to the terminal
        try:
            with silence():
                session = new_secure_session(ADMIN, str(kit), timeout=min(patience, 15.0), auto_login_max_tries=3)
        except Exception as error:
            problem = "the server doesn't answer; start it first: vflbench parties start PROJECT/label"
            raise UserError(f"{problem} ({type(error).__name__}: {error})", key="vflbench parties run") from error
        try:
            yield cls(session)
        finally:
            with suppress(Exception), silence():
                session.close()

    def connected(self) -> set[str]:
        """The parties that gave a sign of life lately."""
        clients = self._session.get_system_info().client_info
        return {client.name for client in clients if time.time() - client.last_connect_time < LATE}

    def wait_for(self, parties: Sequence[str], patience: float) -> None:
        """Return when all of them are connected. Raises UserError naming those that are not, after `patience` seconds."""
        deadline, shown = time.monotonic() + patience, ""
        while absent := [party for party in parties if party not in self.connected()]:
            names = ", ".join(absent)
            if time.monotonic() > deadline:
                raise missing(absent, patience)
            if names != shown:
                print(f"waiting for {names}", file=sys.stderr, flush=True)
                shown = names
            time.sleep(_LOOK_SECONDS)

    def run(self, places: Places, stopping: Stopping, parties: Sequence[str], patience: float) -> Outcome:
        """Submit the job in `places`, show what its label party prints, and return what became of it."""
        job = str(self._session.submit_job(str(places.job)))
        self._begin(job, stopping, parties, patience)
        console = _Console(places.console)
        try:
            outcome = self._outcome(job, places, stopping, console)
        finally:
            console.show()
            self._end(job)
        return outcome

    def _begin(self, job: str, stopping: Stopping, parties: Sequence[str], patience: float) -> None:
        """Return when the job is at all its sites. Raises UserError naming who is missing, after `patience` seconds."""
        deadline = time.monotonic() + patience
        while self._status(job)[0] in ("", *_UNDER_WAY[:-1]):
            if stopping.count:
                self._forget(job)
                raise Interrupted("stopped before the run began", 128 + stopping.number)
            if time.monotonic() > deadline:
                self._forget(job)
                raise missing(sorted(set(parties) - self.connected()) or parties, patience)
            time.sleep(_LOOK_SECONDS)

    def _forget(self, job: str) -> None:
        """Take back a job that has not begun."""
        for command in (self._session.abort_job, self._session.delete_job):
            with suppress(Exception), silence():
                command(job)

    def _outcome(self, job: str, places: Places, stopping: Stopping, console: "_Console") -> Outcome:
        heard = asked = time.monotonic()
        while True:
            console.show()
            if (outcome := read_outcome(places.outcome)) is not None:
                gone = outcome.status == "error" and not self._status(job)[0]
                return Outcome("error", reason=_SERVER_ENDED) if gone else outcome
            if stopping.count > 1:
                raise Interrupted(f"stopped at once; {AGAIN}", 128 + stopping.number)
            now = time.monotonic()
            if now - asked > _ASK_SECONDS:
                asked = now
                status, why = self._status(job)
                heard = now if status else heard
                if status and status not in _UNDER_WAY:
                    return read_outcome(places.outcome) or _ended(status, why)
                if now - heard > _SILENCE:
                    return Outcome("error", reason=_SERVER_ENDED)
            time.sleep(_LOOK_SECONDS)

    def _status(self, job: str) -> tuple[str, list[str]]:
        """What the server says of a job, and of each site; "" where it says nothing."""
        try:
            with silence():
                meta = self._session.get_job_meta(job)
        except Exception:
            return "", []
        return str(meta.get("status") or ""), [str(line) for line in meta.get("job_deploy_detail") or []]

    def _end(self, job: str) -> None:
        """Return when the parties are free for the next run, or FLARE takes too long."""
        deadline = time.monotonic() + _ENDING
        aborted = False
        while time.monotonic() < deadline:
            status, _ = self._status(job)
            if status and status not in _UNDER_WAY:
                return
            if not aborted and time.monotonic() > deadline - _ENDING + 15:
                aborted = True
                with suppress(Exception), silence():
                    self._session.abort_job(job)
            time.sleep(_LOOK_SECONDS)


def missing(parties: Sequence[str], patience: float) -> UserError:
    """The error that names parties which are not connected."""
    hosts = "its host" if len(parties) == 1 else "each of their hosts"
    problem = f"not connected after {patience:g} s; on {hosts}: vflbench parties start FOLDER"
    return UserError(problem, key=f"party {', '.join(parties)}")


def _ended(status: str, sites: Sequence[str]) -> Outcome:
    """A job that ended without a result."""
    wrong = "; ".join(line for line in sites if not line.endswith(": OK")) or f"FLARE says {status}"
    problem = f"the run did not take place, or ended early: {wrong}; log.txt in the folder of each party says why"
    return Outcome("error", reason=f"engine: {problem}")


class _Console:
    """A file that the label party's process prints to, shown as it grows."""

    def __init__(self, file: Path):
        self._file, self._place = file, 0

    def show(self) -> None:
        """Print what is new."""
        with suppress(FileNotFoundError), open(self._file, encoding="utf-8", errors="replace") as opened:
            opened.seek(self._place)
            if text := opened.read():
                self._place = opened.tell()
                sys.stdout.write(text)
                sys.stdout.flush()


@contextmanager
def silence() -> Iterator[None]:
    """FLARE prints that it connects."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


_project: list[tuple[Path, float]] = []
"""The project of this process, and how many seconds its parties may take to connect. Not an option of the run: the same
experiment has the same results folder in another project.
"""


def run(words: Sequence[str]) -> None:
    """The command."""
    from vflbench.cli.command_line import train

    path, options, overrides = split_words(words, "run", "project", ("timeout",))
    need_flare()
    folder = Path(os.path.abspath(path))
    for part in (LABEL_PARTY, SUBMITTER):
        if not (folder / part / "startup").is_dir():
            problem = f"it has no folder {part}, which the label party needs to begin a run"
            raise UserError(problem, key="project", value=path, see="vflbench parties --help")
    _project[:] = [(folder, _seconds(options.get("timeout", "60")))]
    train([*overrides, "engine=nvflare", "engine.mode=provisioned"])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= 86_400:
        raise UserError("it must be a number of seconds from 1 to 86400", key="timeout", value=text)
    return seconds


def record_at_parties(started: Started, experiment: Experiment, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """Submit the run, and wait for what comes of it. Raises UserError, also for a party that is missing or fails."""
    from vflbench.hosts.one_machine import Places, Stopping

    if not _project or in_sweep:
        problem = "such a run is begun by `vflbench parties run PROJECT`, one at a time"
        raise UserError(problem, key="engine.mode", value="provisioned", see="vflbench parties --help")
    project, patience = _project[0]
    kit = read_kit(project / LABEL_PARTY)
    try:
        kit.refuse_other(started.resolved)
    except UserError as error:
        raise UserError(error.problem, key=f"party {kit.party}", see=error.see) from error
    with _working_folder(kit) as work, Server.reached(project / SUBMITTER, patience) as server:
        places = Places(work)
        parties = tables_of_label_party(kit, experiment, places.tables)
        server.wait_for(parties, patience)
        write_parties_job(places, started, experiment, parties, folder)
        with Stopping.watched(places.stop) as stopping:
            return server.run(places, stopping, parties, patience).taken()


@contextmanager
def _working_folder(kit: Kit) -> Iterator[Path]:
    """A private folder of the label party that its server can read, deleted at the end."""
    root = kit.folder / "work" / secrets.token_hex(8)
    root.mkdir(mode=0o700, parents=True)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
