"""What a party without labels does in a process of NVIDIA FLARE: it answers the label party's calls.

FLARE builds these from a job's config. A site makes everything from run.json of the job, by the checks of `build`, and from
what it holds itself: a table of its own, or what its kit says.
"""

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nvflare.collab import collab

import vflbench.cli.config  # noqa: F401  # what configs compute
from vflbench import __version__
from vflbench.cli.build import Started, build
from vflbench.data.party_files import PartyFiles, PartySource, PartyTable, read_party_table, write_party_tables
from vflbench.engines.components import asked
from vflbench.engines.nvflare import MIB, MORE, SERVER, NvFlare
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.kit import Kit, read_kit, shared
from vflbench.hosts.party import PartyProcess
from vflbench.messages.serialize import Content, decode, encode
from vflbench.run.experiment import Experiment
from vflbench.run.provenance import import_from

_log = logging.getLogger("vflbench")
_MOST_PATIENCE_MS = 60_000
_LOCAL_VALUES = {"name": "run", "logger": {}, "overwrite": False, "log_every": 100}
"""What a party that writes no results puts in the place of the label party's own options."""


class PartySite:
    """A party in a process of this machine. All that it publishes is `call`."""

    def __init__(self) -> None:
        self._process: PartyProcess | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="vflbench_party")
        self._answer: Future[bytes] | None = None

    @collab.publish
    def call(self, method: str, payload: bytes, patience_ms: int = _MOST_PATIENCE_MS) -> bytes:
        """Answer the label party, and nobody else. What takes longer than `patience_ms` goes on, and is asked for by further
        calls of `MORE`: no answer at all means that this process hangs.
        """
        try:
            if collab.caller != SERVER:
                raise UserError("only the label party is answered", key="engine")
            if type(method) is not str or type(payload) is not bytes or type(patience_ms) is not int:
                raise UserError("a call has a name, bytes and a number, and nothing else", key="engine")
            if self._process is None:
                self._process = self.process(**asked(collab.fl_ctx))
            if method != MORE:
                self._answer = self._worker.submit(self._answered, self._process, method, payload)
            if self._answer is None:
                raise UserError("there is no more", key="engine")
            done, _ = wait([self._answer], min(max(patience_ms, 0), _MOST_PATIENCE_MS) / 1000)
            return self._answer.result() if done else encode({"pending": True})
        except Exception as error:
            return _refusal(error)

    def _answered(self, process: PartyProcess, method: str, payload: bytes) -> bytes:
        """In a thread that does this alone, one call after the other."""
        try:
            engine = process.experiment.engine
            most = engine.max_message_mib if isinstance(engine, NvFlare) else 1024
            return encode({"content": self.handle(process, method, decode(payload, most * MIB))})
        except Exception as error:
            return _refusal(error)

    def handle(self, process: PartyProcess, method: str, content: Content) -> Content:
        """What the party answers."""
        return process.handle(method, content)

    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> PartyProcess:
        """The party with its own rows; its experiment is built by the checks of this site's own vflbench."""
        started = Started(**run["started"])
        import_from([Path(folder) for folder in started.plugins])
        experiment = build(started.options)
        return PartyProcess(
            site["party"], experiment, lambda: read_party_table(Path(site["table"])), Path(site["checkpoints"])
        )


def _refusal(error: Exception) -> bytes:
    """A fault is named, and no more said of it than its kind, as its words may hold values of rows."""
    if isinstance(error, UserError):
        _log.warning("refused: %s", error)
        return encode({"refused": str(error)})
    _log.error("a call failed", exc_info=error)
    return encode({"refused": f"it failed with {type(error).__name__}; its own log says why"})


class PartyAtHost(PartySite):
    """A party on its own host: it says itself what it brings, and refuses what it has not agreed to.

    Where it has a file of its own, it gives identifiers before the run, and is told which rows all parties share.
    """

    _file: PartySource | None = None
    _table: PartyTable | None = None

    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> PartyProcess:
        """Raises UserError for a run of another version, for another party, or of an experiment that was not agreed to."""
        kit = read_kit(Path(collab.fl_ctx.get_engine().get_workspace().get_root_dir()))
        if run.get("version") != __version__:
            problem = f"it has vflbench {__version__} and the label party {run.get('version')}; install the same at both"
            raise UserError(problem)
        if site.get("party") != kit.party:
            raise UserError(f"its folder is that of party {kit.party}")
        if not isinstance(run.get("config"), Mapping) or not isinstance(run["config"].get("dataset"), Mapping):
            raise UserError("the label party says no experiment")
        kit.refuse_other(run["config"])
        config = shared(run["config"])  # whatever the sender says of files, those of a party are named by its kit alone
        experiment = build({**config, **_LOCAL_VALUES, "dataset": kit.dataset(config["dataset"])})
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        if kit.has_file:
            if not isinstance(experiment.dataset, PartyFiles):
                raise UserError("it has a file of its own (party.yaml: data), and the experiment a data set for all")
            self._file = experiment.dataset.party_source(kit.party)
        kept = Path(kit.output) / digest[:16]  # the same when the experiment is begun again
        return PartyProcess(kit.party, experiment, lambda: self.table(kit, experiment), kept, kit.secret())

    def handle(self, process: PartyProcess, method: str, content: Content) -> Content:
        if self._file is not None and method == "ids":
            return {"ids": self._file.ids}
        if self._file is not None and method == "align":
            self._table = self._file.table(content["positions"], content["role"])
            return {}
        return super().handle(process, method, content)

    def table(self, kit: Kit, experiment: Experiment) -> PartyTable:
        """This party's columns: of its own file, or of a data set that all have, without the other columns."""
        if self._table is not None:
            return self._table
        if self._file is not None:
            raise UserError("the label party has a data set for all, and this party a file of its own (party.yaml: data)")
        with tempfile.TemporaryDirectory() as place:
            data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
            written = write_party_tables(data, Path(place) / "tables")
            if kit.party not in written:
                raise UserError(f"the data have no columns of party {kit.party}; their parties are {', '.join(written)}")
            return read_party_table(written[kit.party])
