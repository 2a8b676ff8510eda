"""What the sites of a provisioned project do in a run: as those on one machine, with what each party's kit says."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from vflbench import __version__
from vflbench.cli.build import Started, build
from vflbench.data.base import Dataset
from vflbench.data.own_file import LabelFile, OwnFile
from vflbench.data.party_files import PartyFiles
from vflbench.data.party_table import PartyTable, read_party_table, write_party_tables
from vflbench.data.rows import TrainTest
from vflbench.engines.nvflare.collab_channel import CollabChannel
from vflbench.engines.nvflare.components import workspace_of
from vflbench.engines.nvflare.kit import Kit, read_kit, shared
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.flare_outcome import Outcome
from vflbench.hosts.flare_sites import LabelPartySite, PartySite
from vflbench.hosts.parties_job import started_at_party
from vflbench.hosts.party_process import PartyProcess
from vflbench.messages.channel import PartyError
from vflbench.messages.envelope import Content
from vflbench.messages.packed_texts import packed_texts, unpacked_texts
from vflbench.options import options
from vflbench.run.experiment import Experiment


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
    try:
        return unpacked_texts(reply.get("ids"))
    except ValueError as error:
        raise PartyError(party, f"it sends no identifiers ({error})") from error


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
            return {"ids": packed_texts(self._file.ids())}
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
