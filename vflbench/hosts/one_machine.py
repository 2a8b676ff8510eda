"""A run whose other parties are processes on this machine: started and watched here, and none of them is left."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from vflbench.cli.build import Started, record
from vflbench.cli.sweep import JobOutcome, Status
from vflbench.data.party_files import WrittenTable, write_party_tables
from vflbench.data.table import LABEL_PARTY
from vflbench.engines.nvflare import engine as flare
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.serialize import at_once
from vflbench.protocols.split import Split
from vflbench.run.experiment import Experiment

PARTIES = "parties"
"""The folder of a run in which each party keeps what it goes on from, in a folder of its own."""

_PARTY_SITE = "vflbench.hosts.sites.PartySite"


def record_with_remote_parties(started: Started, experiment: Experiment, folder: Path, *, in_sweep: bool) -> JobOutcome:
    """As `record`, with the other parties in processes of their own. Raises UserError, also for a party that fails."""
    engine = experiment.engine
    assert isinstance(engine, flare.NvFlare)
    engine.require_installed()
    if not isinstance(experiment.protocol, Split):
        problem = "only protocol=split has parties that can live elsewhere; engine=local runs this one"
        raise UserError(problem, key="protocol", value=started.choices.get("protocol"))
    if engine.mode == "provisioned":
        from vflbench.hosts.run import at_hosts

        remote = at_hosts(started, experiment, engine, in_sweep=in_sweep)
    else:
        remote = simulated(started, experiment, engine, Path(os.path.abspath(folder), PARTIES))
    with remote as connected:
        outcome = record(started, connected, folder, in_sweep=in_sweep)
        if outcome.status is Status.DONE and connected.settings.checkpoint == "resume":
            at_once(lambda channel: channel.call("forget", {}), list(connected.engine.channels().values()))
    kept = Path(folder, PARTIES)
    if not any(path.is_file() for path in kept.rglob("*")):  # the run is complete, and nobody goes on from there
        shutil.rmtree(kept, ignore_errors=True)
    return outcome


@contextmanager
def simulated(started: Started, experiment: Experiment, engine: flare.NvFlare, kept: Path) -> Iterator[Experiment]:
    """The experiment as the label party has it, which this process is from now on. kept: where parties keep checkpoints."""
    with workspace(engine.workspace) as root, flare.listening() as (listener, address):
        tables = write_party_tables(experiment.dataset.load(Generators(experiment.settings.seed)["data"]), root / "tables")
        written = WrittenTable(folder=os.fspath(tables.pop(LABEL_PARTY)))
        sites = {f"party-{number}": party for number, party in enumerate(tables, 1)}
        settings = {
            site: {"party": party, "table": os.fspath(tables[party]), "checkpoints": os.fspath(kept / party)}
            for site, party in sites.items()
        }
        server = {"socket": address, "timeout": engine.timeout}
        flare.write_job(root / "job", {"started": vars(started)}, settings, server, _PARTY_SITE, engine.start_timeout)
        with (
            simulator(engine, root, sites) as (problem, lost),
            flare.connected(listener, sites, engine, problem, lost) as channels,
        ):
            yield replace(experiment, engine=flare.Connected(channels), dataset=written)


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
    engine: flare.NvFlare, root: Path, sites: Mapping[str, str]
) -> Iterator[tuple[Callable[[], str], Callable[[str], str]]]:
    """FLARE's simulator at work on the job in `root`. Yields why the run can't begin, and why a site can't answer."""
    import psutil

    from vflbench.engines.nvflare.components import MARK, kill_marked, marked

    place, mark = root / "sites", secrets.token_hex(16)
    (place / "local").mkdir(parents=True)
    allowed = {"format_version": 2, "class_allow_list": [flare.CONTROLLER, flare.RELAY, flare.EXECUTOR, _PARTY_SITE]}
    (place / "local" / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
    code = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    # INFO would be two lines for each call
    words = [str(root / "job"), "-w", str(place), "-c", ",".join(sites), "-t", str(len(sites)), "-l", "WARNING"]
    with open(root / "console.txt", "wb") as console:  # FLARE empties its own folder first
        process = subprocess.Popen(  # nosec B603  # FLARE's own command, no shell
            [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", *words],
            env={**os.environ, **flare.environment(engine.max_message_mib), MARK: mark, "PYTHONPATH": code},
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
            return f"FLARE's server ended before all parties were ready (exit code {status}); {kept}; {flare.AGAIN}"
        return next((f"party {sites[site]}: {why}; {flare.AGAIN}" for site in sites if (why := lost(site))), "")

    try:
        yield problem, lost
    finally:
        kill_marked(mark)
        process.wait()
