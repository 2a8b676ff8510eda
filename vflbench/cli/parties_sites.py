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
from vflbench.cli.flare_outcome import Outcome
from vflbench.cli.flare_sites import LabelPartySite, PartySite
from vflbench.cli.parties_job import started_at_party
from vflbench.cli.record import Started
from vflbench.data.party_table import PartyTable, read_party_table, write_party_tables
from vflbench.engines.nvflare.components import workspace_of
from vflbench.engines.nvflare.kit import Kit, read_kit, shared
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.run.experiment import Experiment
from vflbench.run.party_process import PartyProcess


class LabelPartyAtHost(LabelPartySite):
    """The label party on its own host. It ends with the command that began the run."""

    def train(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> Outcome:
        from vflbench.engines.nvflare.processes import end_with

        end_with([site["begun_by"]])
        return super().train({name: site[name] for name in ("started", "output", "in_sweep")}, site)

    def experiment(self, started: Started) -> Experiment:
        return dataclasses.replace(super().experiment(started), secret=read_kit(workspace_of(collab.fl_ctx)).secret())


class PartyAtHost(PartySite):
    """A party without labels on its own host: it says itself what it brings, and refuses what it has not agreed to."""

    def process(self, run: Mapping[str, Any], site: Mapping[str, Any]) -> PartyProcess:
        kit = read_kit(workspace_of(collab.fl_ctx))
        refuse_other(kit, run, site)
        config = shared(run["config"])  # whatever the sender says of files, those of a party are named by its kit alone
        started = started_at_party(config, kit.data)
        own = {"party": kit.party, "checkpoints": str(checkpoints_of(kit, config))}
        process = super().process({"started": started.to_plain()}, own)
        return dataclasses.replace(process, secret=kit.secret())

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
