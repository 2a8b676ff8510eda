"""`vflbench parties run PROJECT`: a run of `vflbench train` with the connected parties of a project."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vflbench.engines.nvflare.kit import LABEL_PARTY, SUBMITTER, Kit, read_kit
from vflbench.errors import UserError
from vflbench.hosts.parties import need_flare, split_words

if TYPE_CHECKING:
    from vflbench.cli.build import Started
    from vflbench.cli.sweep import JobOutcome
    from vflbench.run.experiment import Experiment

_project: list[tuple[Path, float]] = []
"""The project of this process, and how many seconds its parties may take to connect. Not an option of the run: the same
experiment has the same results folder in another project.
"""


def run(words: Sequence[str]) -> None:
    """The command."""
    from vflbench.cli.train import command

    path, options, overrides = split_words(words, "run", "project", ("timeout",))
    need_flare()
    folder = Path(os.path.abspath(path))
    for part in (LABEL_PARTY, SUBMITTER):
        if not (folder / part / "startup").is_dir():
            problem = f"it has no folder {part}, which the label party needs to begin a run"
            raise UserError(problem, key="project", value=path, see="vflbench parties --help")
    _project[:] = [(folder, _seconds(options.get("timeout", "60")))]
    command([*overrides, "engine=nvflare", "engine.mode=provisioned"])


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= 86_400:
        raise UserError("it must be a number of seconds from 1 to 86400", key="timeout", value=text)
    return seconds


def record_at_parties(started: "Started", experiment: "Experiment", folder: Path, *, in_sweep: bool) -> "JobOutcome":
    """Submit the run, and wait for what comes of it. Raises UserError, also for a party that is missing or fails."""
    from vflbench.hosts.flare_places import Places
    from vflbench.hosts.parties_job import tables_of_label_party, write_parties_job
    from vflbench.hosts.parties_server import Server
    from vflbench.hosts.stopping import Stopping

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
