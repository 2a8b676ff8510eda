"""The job of a run with parties on hosts of their own: what crosses is the experiment, without anybody's paths."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench import __version__
from vflbench.cli.build import Started
from vflbench.engines.nvflare.engine import NvFlare
from vflbench.engines.nvflare.job import Job, write_job
from vflbench.engines.nvflare.kit import LABEL_PARTY, LABEL_PARTY_SITE, PARTY_SITE, Kit, shared
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.hosts.flare_places import Places
from vflbench.run.experiment import Experiment

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
        "terminal": False,
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
