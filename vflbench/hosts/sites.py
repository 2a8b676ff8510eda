"""What a site of NVIDIA FLARE does in a run of ours: the label party runs the whole of it, the others answer its calls.

FLARE builds these from a job's config, each in the process of its site. A site makes everything from run.json of the job, by
the checks of `build`, and from what it holds itself. Those of a provisioned project (`AtHost`) do the same with what each
party's kit says.
"""

import dataclasses
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from nvflare.collab import collab

import vflbench.cli.config  # noqa: F401  # what configs compute
from vflbench import __version__
from vflbench.cli.build import Started, build, record
from vflbench.cli.sweep import Status
from vflbench.data.base import Dataset
from vflbench.data.party_files import LabelFile, OwnFile, PartyFiles
from vflbench.data.party_table import PartyTable, WrittenTable, read_party_table, write_party_tables
from vflbench.data.rows import TrainTest
from vflbench.engines.nvflare.channel import MIB, CollabChannel
from vflbench.engines.nvflare.components import LabelPartyController, asked, workspace_of
from vflbench.engines.nvflare.engine import Connected
from vflbench.engines.nvflare.job import MORE, SERVER
from vflbench.engines.nvflare.kit import Kit, read_kit, shared
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.one_machine import Outcome, leave_outcome, outcome_of_error
from vflbench.hosts.party import PartyProcess
from vflbench.hosts.run import started_at_party
from vflbench.messages.serialize import Content, decode, encode
from vflbench.messages.wire import PartyError, at_once
from vflbench.options import options
from vflbench.run.experiment import Experiment
from vflbench.run.provenance import import_from

_log = logging.getLogger("vflbench")
_MOST_PATIENCE_MS = 60_000


def built(started: Started) -> Experiment:
    """The experiment, of classes that this site has, also in folders of plug-ins."""
    import_from([Path(folder) for folder in started.plugins])
    return build(started.options)


class LabelPartySite:
    """The server of FLARE: the label party with its labels, and the run that all other parties take part in."""

    @collab.main
    def run(self) -> None:
        """The run from its beginning, or from where it stopped, to its end. What came of it is left in a file."""
        asked_for = asked(collab.fl_ctx)
        run, site = asked_for["run"], asked_for["site"]
        os.chdir(site["folder"])
        with console(site):
            try:
                outcome = self.train(run, site)
            except BaseException as error:  # Ctrl-C reaches a run as an exception too
                _log.exception("the run ended early")
                outcome = outcome_of_error(error)
        leave_outcome(Path(site["outcome"]), outcome)

    def train(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Outcome:
        """Raises UserError, Interrupted, or whatever a run raises."""
        started = Started(**run["started"])
        experiment = self.experiment(started)
        engine = Connected(self.channels(site, experiment.engine), self.stopping(site))
        experiment = dataclasses.replace(experiment, engine=engine, dataset=self.dataset(site, experiment))
        job = record(started, experiment, Path(run["output"]), in_sweep=run["in_sweep"])
        if job.status is Status.DONE and experiment.settings.checkpoint == "resume":
            at_once(lambda channel: channel.call("forget", {}), list(engine.channels().values()))
        return Outcome(status=str(job.status), test_auc=job.test_auc, reason=job.reason)

    def experiment(self, started: Started) -> Experiment:
        """Built by the checks of this site's own vflbench."""
        return built(started)

    def channels(self, site: Mapping[str, Any], engine: Any) -> dict[str, CollabChannel]:
        """Party -> the way to it, in the order of the parties."""
        proxies = {proxy.name: proxy for proxy in collab.clients}
        channels = {
            party: CollabChannel(party, name, proxies[name], engine.timeout, engine.max_message_mib * MIB)
            for name, party in site["parties"].items()
        }
        of_site = {name: channels[party] for name, party in site["parties"].items()}
        LabelPartyController.on_loss.append(lambda name: of_site[name].give_up(LOST))
        return channels

    def stopping(self, site: Mapping[str, Any]) -> Path:
        """The file whose being there asks the run to stop."""
        return Path(site["stop"])

    def dataset(self, site: Mapping[str, Any], experiment: Experiment) -> Dataset:
        """What the label party holds: labels, and its own columns."""
        return WrittenTable(folder=site["table"])


@contextmanager
def console(site: Mapping[str, Any]) -> Iterator[None]:
    """While entered, what is printed goes to the file that whoever started the run shows, if it named one."""
    if site.get("console") is None:
        yield
        return
    with open(site["console"], "w", encoding="utf-8", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        yield


LOST = "its process has ended; the same command goes on from what was saved last"


class PartySite:
    """A client of FLARE: a party without labels. All that it publishes is `call`."""

    def __init__(self) -> None:
        self._asked: Mapping[str, Any] = {}
        self._most = MIB
        self._process: PartyProcess | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="vflbench_party")
        self._answer: Future[bytes] | None = None

    @collab.init
    def begin(self) -> None:
        """Read what the job asks for."""
        self._asked = asked(collab.fl_ctx)

    @collab.publish
    def call(self, method: str, payload: bytes, patience_ms: int = 1000) -> bytes:
        """Answer the label party, and nobody else. What takes longer than `patience_ms` goes on, and is asked for by further
        calls of `MORE`: no answer at all means that this process hangs.
        """
        try:
            if collab.caller != SERVER:
                raise UserError("only the label party is answered", key="engine")
            if type(method) is not str or type(payload) is not bytes or type(patience_ms) is not int:
                raise UserError("a call has a name, bytes and a number, and nothing else", key="engine")
            if self._process is None:
                self._process = self.process(self._asked["run"], self._asked["site"])
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
            return encode({"content": process.handle(method, decode(payload, self._most))})
        except Exception as error:
            return _refusal(error)

    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> PartyProcess:
        """The party with its own rows; its experiment is built by the checks of this site's own vflbench."""
        experiment = built(Started(**run["started"]))
        self._most = getattr(experiment.engine, "max_message_mib", 1024) * MIB
        return PartyProcess(site["party"], experiment, lambda: self.table(experiment, site), Path(site["checkpoints"]))

    def table(self, experiment: Experiment, site: Mapping[str, Any]) -> PartyTable:
        """This party's rows, from its own files."""
        return read_party_table(Path(site["table"]))


def _refusal(error: Exception) -> bytes:
    """A fault is named, and no more said of it than its kind, as its words may hold values of rows."""
    if isinstance(error, UserError):
        _log.warning("refused: %s", error)
        return encode({"refused": str(error)})
    _log.error("a call failed", exc_info=error)
    return encode({"refused": f"it failed with {type(error).__name__}; its own log says why"})


class LabelPartyAtHost(LabelPartySite):
    """The label party on its own host. It ends with the command that began the run."""

    def train(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Outcome:
        from vflbench.engines.nvflare.processes import end_with

        end_with([site["begun_by"]])
        return super().train({name: site[name] for name in ("started", "output", "in_sweep")}, site)

    def experiment(self, started: Started) -> Experiment:
        kit = read_kit(workspace_of(collab.fl_ctx))
        experiment = build({**started.options, "dataset": kit.dataset(started.options["dataset"])})
        return dataclasses.replace(experiment, secret=kit.secret())

    def channels(self, site: Mapping[str, Any], engine: Any) -> dict[str, CollabChannel]:
        self._channels = super().channels(site, engine)
        return self._channels

    def dataset(self, site: Mapping[str, Any], experiment: Experiment) -> Dataset:
        """What the label party holds: of its own file, if it has one, the rows that all parties share."""
        if getattr(experiment.dataset, "party_files", None):
            return AlignedWithOthers(own=experiment.dataset, channels=self._channels)
        return super().dataset(site, experiment)


@options
class AlignedWithOthers(Dataset):
    """The label party's own file, aligned with those of the others. Identifiers come here, positions go."""

    own: Any
    channels: Any

    def load(self, rng: Any) -> TrainTest:
        file = LabelFile(self.own)
        ids = {party: _ids_of(party, channel.call("ids", {})) for party, channel in self.channels.items()}
        alignment = file.align(ids, rng)
        for party, channel in self.channels.items():
            channel.call("align", {"positions": alignment.positions[party], "role": alignment.role})
        return file.rows(alignment)


def _ids_of(party: str, reply: Content) -> list[str]:
    ids = reply.get("ids")
    if type(ids) is not list or not all(type(text) is str for text in ids):
        raise PartyError(party, "it sends no identifiers")
    return ids


class OfOwnFile:
    """A party with a file of its own: before the run it gives identifiers, and is told which rows all parties share."""

    def __init__(self, kit: Kit, process: PartyProcess):
        self.party, self._process = kit.party, process
        dataset = process.experiment.dataset
        if not isinstance(dataset, PartyFiles):
            raise UserError("it has a file of its own (party.yaml: data), and the experiment a data set for all")
        self._file = OwnFile(dataset, kit.party)
        self._table: PartyTable | None = None
        process.table = self._aligned

    def handle(self, method: str, content: Content) -> Content:
        if method == "ids":
            return {"ids": list(self._file.ids())}
        if method == "align":
            self._table = self._file.table(content["positions"], content["role"])
            return {}
        return self._process.handle(method, content)

    def _aligned(self) -> PartyTable:
        if self._table is None:
            raise UserError("the label party has a data set for all, and this party a file of its own (party.yaml: data)")
        return self._table


class PartyAtHost(PartySite):
    """A party without labels on its own host: it says itself what it brings, and refuses what it has not agreed to."""

    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Any:
        kit = read_kit(workspace_of(collab.fl_ctx))
        refuse_other(kit, run, site)
        config = shared(run["config"])  # whatever the sender says of files, those of a party are named by its kit alone
        started = started_at_party(config, kit)
        own = {"party": kit.party, "checkpoints": str(checkpoints_of(kit, config))}
        process = super().process({"started": vars(started)}, own)
        process.secret = kit.secret()
        return OfOwnFile(kit, process) if kit.has_own_file else process

    def table(self, experiment: Experiment, site: Mapping[str, Any]) -> PartyTable:
        """This party's columns: the files of a data set that all have are read, and the other columns left out."""
        with tempfile.TemporaryDirectory() as place:
            data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
            written = write_party_tables(data, Path(place) / "tables")
            if site["party"] not in written:
                raise UserError(f"the data have no columns of party {site['party']}; their parties are {', '.join(written)}")
            return read_party_table(written[site["party"]])


def refuse_other(kit: Kit, run: Mapping[str, Any], site: Mapping[str, Any]) -> None:
    """Raise UserError for a run of another version, for another party, or of an experiment that was not agreed to."""
    if run.get("version") != __version__:
        problem = f"it has vflbench {__version__} and the label party {run.get('version')}; install the same at both"
        raise UserError(problem)
    if site.get("party") != kit.party:
        raise UserError(f"its folder is that of party {kit.party}")
    if not isinstance(run.get("config"), Mapping):
        raise UserError("the label party says no experiment")
    kit.refuse_other(run["config"])


def checkpoints_of(kit: Kit, config: Mapping[str, Any]) -> Path:
    """The party's own folder for one experiment: the same when it is begun again."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    return kit.output / digest[:16]
