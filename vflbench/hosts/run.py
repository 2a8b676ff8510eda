"""Runs whose other parties are processes of their own: on this machine, or on the hosts of a project."""

import contextlib
import io
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from vflbench import __version__
from vflbench.cli.build import Started, build, record
from vflbench.cli.command_line import train_command
from vflbench.cli.sweep import JobOutcome, Status
from vflbench.data.base import Dataset
from vflbench.data.party_files import WrittenTable, write_party_tables
from vflbench.data.rows import TrainTest
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare import (
    AGAIN,
    CONTROLLER,
    EXECUTOR,
    PARTY,
    PARTY_AT_HOST,
    RELAY,
    Connected,
    NvFlare,
    SocketChannel,
    connected,
    environment,
    listening,
    write_job,
)
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.commands import ADMIN, number_option, split_words
from vflbench.hosts.kit import SUBMITTER, read_kit, shared
from vflbench.messages.serialize import at_once
from vflbench.options import options
from vflbench.protocols.split import Split
from vflbench.run.experiment import Experiment

PARTIES = "parties"
"""The folder of a run in which each party keeps what it goes on from, in a folder of its own."""


def record_with_remote_parties(started: Started, experiment: Experiment, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """As `record`, with the other parties in processes of their own. Raises UserError, also for a party that fails."""
    engine = experiment.engine
    assert isinstance(engine, NvFlare)
    engine.require_installed()
    if not isinstance(experiment.protocol, Split):
        problem = "only protocol=split has parties that can live elsewhere; engine=local runs this one"
        raise UserError(problem, key="protocol", value=started.choices.get("protocol"))
    if engine.mode == "provisioned":
        remote = at_hosts(started, experiment, engine, in_sweep=in_sweep)
    else:
        remote = simulated(started, experiment, engine, Path(os.path.abspath(folder), PARTIES))
    with remote as local:
        outcome = record(started, local, folder, in_sweep=in_sweep)
        if outcome.status is Status.DONE and local.settings.checkpoint == "resume":
            at_once(lambda channel: channel.call("forget", {}), list(local.engine.channels().values()))
    kept = Path(folder, PARTIES)
    if not any(path.is_file() for path in kept.rglob("*")):  # the run is complete, and nobody goes on from there
        shutil.rmtree(kept, ignore_errors=True)
    return outcome


@contextmanager
def simulated(started: Started, experiment: Experiment, engine: NvFlare, kept: Path) -> Iterator[Experiment]:
    """The experiment as the label party has it, which this process is from now on. kept: where parties keep checkpoints."""
    with workspace(engine.workspace) as root, listening() as (listener, address):
        tables = write_party_tables(experiment.dataset.load(Generators(experiment.settings.seed)["data"]), root / "tables")
        written = WrittenTable(folder=os.fspath(tables.pop(LABEL_PARTY)))
        sites = {f"party-{number}": party for number, party in enumerate(tables, 1)}
        settings = {
            site: {"party": party, "table": os.fspath(tables[party]), "checkpoints": os.fspath(kept / party)}
            for site, party in sites.items()
        }
        server = {"socket": address, "timeout": engine.timeout}
        write_job(root / "job", {"started": vars(started)}, settings, server, PARTY, engine.start_timeout)
        with (
            simulator(engine, root, sites) as (problem, lost),
            connected(listener, sites, engine, problem, lost) as channels,
        ):
            yield replace(experiment, engine=Connected(channels), dataset=written)


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
    except OSError as error:
        raise UserError(f"{error.strerror}; name a new folder", key="engine.workspace", value=root) from error
    yield root


@contextmanager
def simulator(
    engine: NvFlare, root: Path, sites: Mapping[str, str]
) -> Iterator[tuple[Callable[[], str], Callable[[str], str]]]:
    """FLARE's simulator at work on the job in `root`. Yields why the run can't begin, and why a site can't answer."""
    import psutil

    from vflbench.engines.components import MARK, kill_marked, marked

    place, mark = root / "sites", secrets.token_hex(16)
    (place / "local").mkdir(parents=True)
    allowed = {"format_version": 2, "class_allow_list": [CONTROLLER, RELAY, EXECUTOR, PARTY]}
    (place / "local" / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
    code = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    # INFO would be two lines for each call
    words = [str(root / "job"), "-w", str(place), "-c", ",".join(sites), "-t", str(len(sites)), "-l", "WARNING"]
    with open(root / "console.txt", "wb") as console:  # FLARE empties its own folder first
        process = subprocess.Popen(  # nosec B603  # FLARE's own command, no shell
            [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", *words],
            env={**os.environ, **environment(engine.max_message_mib), MARK: mark, "PYTHONPATH": code},
            stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
        )  # fmt: skip
    workers: dict[str, psutil.Process] = {}

    def lost(site: str) -> str:
        for one in marked(mark) if site not in workers else ():
            with suppress(psutil.Error):
                words = one.cmdline()
                workers.update({name: one for name in sites if "--client" in words and name in words})
        with suppress(psutil.NoSuchProcess):
            if site not in workers or workers[site].status() != psutil.STATUS_ZOMBIE:
                return ""
        return "its process has ended"

    def problem() -> str:
        if process.poll() is not None:
            kept = f"its log is in {place}" if engine.workspace else "engine.workspace=FOLDER keeps its log"
            status = process.returncode
            return f"FLARE's server ended before all parties were ready (exit code {status}); {kept}; {AGAIN}"
        return next((f"party {sites[site]}: {why}; {AGAIN}" for site in sites if (why := lost(site))), "")

    try:
        yield problem, lost
    finally:
        kill_marked(mark)
        process.wait()


LATE = 12.0
"""Seconds without a sign of life after which a party counts as not connected."""

_LOOK_SECONDS = 0.25
_UNDER_WAY = ("SUBMITTED", "APPROVED", "DISPATCHED", "RUNNING")
silence = partial(contextlib.redirect_stdout, io.StringIO())
"""While entered, FLARE doesn't print that it connects."""

_project: list[tuple[Path, int]] = []
"""The project of this process, and how many seconds its parties may take to connect. Not an option of the run: the same
experiment has the same results folder in another project.
"""


def run(words: Sequence[str]) -> None:
    """The command."""
    path, given, overrides = split_words(words, "project", ("timeout",))
    NvFlare().require_installed()
    folder = Path(os.path.abspath(path))
    for part in (LABEL_PARTY, SUBMITTER):
        if not (folder / part / "startup").is_dir():
            problem = f"it has no folder {part}, which the label party needs to begin a run"
            raise UserError(problem, key="project", value=path, see="vflbench parties --help")
    _project[:] = [(folder, number_option(given, "timeout", 60, 86_400))]
    train_command([*overrides, "engine=nvflare", "engine.mode=provisioned"])


@contextmanager
def at_hosts(started: Started, experiment: Experiment, engine: NvFlare, *, in_sweep: bool) -> Iterator[Experiment]:
    """The experiment as the label party has it. Raises UserError, also for a party that is missing."""
    if not _project or in_sweep:
        problem = "such a run is begun by `vflbench parties run PROJECT`, one at a time"
        raise UserError(problem, key="engine.mode", value="provisioned", see="vflbench parties --help")
    if started.plugins:
        problem = "the classes of plug-ins are not at the other parties: runs there take what vflbench has"
        raise UserError(problem, key="--plugins", value=started.plugins[0])
    project, patience = _project[0]
    kit = read_kit(project / LABEL_PARTY)
    try:
        kit.refuse_other(started.resolved)
    except UserError as error:
        raise UserError(error.problem, key=f"party {kit.party}", see=error.see) from error
    local = replace(build({**started.options, "dataset": kit.dataset(started.options["dataset"])}), secret=kit.secret())
    with (
        tempfile.TemporaryDirectory(prefix="vflbench-run-") as work,
        listening() as (listener, address),
        session(project / SUBMITTER, patience) as flare,
    ):
        if kit.has_file:
            parties = kit.others
        else:  # all read one data set, and each drops what is not its own
            rng = Generators(experiment.settings.seed)["data"]
            tables = write_party_tables(experiment.dataset.load(rng), Path(work) / "tables")
            local, parties = replace(local, dataset=WrittenTable(folder=str(tables.pop(LABEL_PARTY)))), list(tables)
        wait_for(flare, parties, patience)
        settings, server = {party: {"party": party} for party in parties}, {"socket": address, "timeout": engine.timeout}
        run, deadline = {"version": __version__, "config": shared(started.options)}, time.monotonic() + patience
        folder = write_job(Path(work) / "job", run, settings, server, PARTY_AT_HOST, engine.start_timeout)

        def refused() -> str:  # who has just left counts as connected for some seconds
            if not (why := ended(flare, job)):
                refuse_absent(flare, parties, deadline, patience)
            return why

        with (
            submitted(flare, folder) as job,
            connected(listener, {one: one for one in parties}, engine, refused, lambda _: "") as channels,
        ):
            if kit.has_file:
                local = replace(local, dataset=AlignedWithOthers(source=local.dataset, channels=channels))
            yield replace(local, engine=Connected(channels))


@contextmanager
def session(kit: Path, patience: float) -> Iterator[Any]:
    """A session with the server. Raises UserError where nobody answers, or the server is not of this project."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    logging.getLogger().addHandler(logging.NullHandler())  # else FLARE's warnings go to the terminal
    try:
        with silence():
            made = new_secure_session(ADMIN, str(kit), timeout=min(patience, 15.0), auto_login_max_tries=3)
    except Exception as error:
        problem = "the server doesn't answer; start it first: vflbench parties start PROJECT/label"
        raise UserError(f"{problem} ({type(error).__name__}: {error})", key="vflbench parties run") from error
    try:
        yield made
    finally:
        with suppress(Exception), silence():
            made.close()


def wait_for(flare: Any, parties: Sequence[str], patience: float) -> None:
    """Return when all of them are connected. Raises UserError naming those that are not, after `patience` seconds."""
    deadline, shown = time.monotonic() + patience, ""
    while names := refuse_absent(flare, parties, deadline, patience):
        print(f"waiting for {names}\n" if names != shown else "", end="", file=sys.stderr, flush=True)
        shown = names
        time.sleep(_LOOK_SECONDS)


def refuse_absent(flare: Any, parties: Sequence[str], deadline: float, patience: float) -> str:
    """The names of those that are not connected. Raises UserError with them after the deadline."""
    clients = flare.get_system_info().client_info
    there = {client.name for client in clients if time.time() - client.last_connect_time < LATE}
    absent = ", ".join(party for party in parties if party not in there)
    if absent and time.monotonic() > deadline:
        problem = f"not connected after {patience:g} s; on the host of each: vflbench parties start FOLDER"
        raise UserError(problem, key=f"party {absent}")
    return absent


@contextmanager
def submitted(flare: Any, folder: Path) -> Iterator[str]:
    """The id of the job in this folder. If it fails before it has begun everywhere, it is taken back."""
    job = str(flare.submit_job(str(folder)))
    try:
        yield job
    except BaseException:
        with suppress(Exception), silence():
            flare.abort_job(job)
        raise


def ended(flare: Any, job: str) -> str:
    """Why a job that has ended did so; empty as long as it is under way."""
    try:
        with silence():
            meta: Mapping[str, Any] = flare.get_job_meta(job)
    except Exception:
        return "the server of the project has ended; start it again"
    status = str(meta.get("status") or "")
    if status in ("", *_UNDER_WAY):
        return ""
    wrong = [str(line) for line in meta.get("job_deploy_detail") or [] if not str(line).endswith(": OK")]
    return f"the run did not take place ({'; '.join(wrong) or status}); log.txt in the folder of each party says why"


@options
class AlignedWithOthers(Dataset):
    """The label party's own file, aligned with those of the others. Identifiers come here, positions go."""

    source: Any
    channels: dict[str, SocketChannel]

    def load(self, rng: Any) -> TrainTest:
        file = self.source.party_source(LABEL_PARTY)
        ids: dict[str, Any] = {party: channel.call("ids", {}).get("ids") for party, channel in self.channels.items()}
        alignment = file.align(ids, rng)
        for party, channel in self.channels.items():
            channel.call("align", {"positions": alignment.positions[party], "role": alignment.role})
        return file.rows(alignment)
