"""Small tables, parties and runs that several tests need."""

import csv
import functools
import json
import os
import signal

import torch
import yaml

from vflbench.attacks.base import Attack
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.cli.components import component
from vflbench.data.rows import AlignedRows
from vflbench.data.synthetic import Synthetic
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import Chain
from vflbench.engines.base import Local
from vflbench.files import config_folder
from vflbench.generators import Generators
from vflbench.messages.wire import Wire
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.options import options
from vflbench.protocols.parties import ProtocolSetup
from vflbench.protocols.split import Split
from vflbench.results.recorder import Recorder
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.experiment import Experiment, run_experiment
from vflbench.run.settings import Audit, Settings


class TappedWire(Wire):
    """Shows each message to `tap`, and delivers what that returns; None for the message as it is."""

    def __init__(self, tap):
        super().__init__()
        self.tap = tap

    def send(self, message):
        sent = super().send(message)
        return self.tap(sent) or sent


def table(rng, rows=64, parties=("a",), classes=2, numeric=2, sizes=(5, 7)):
    """Numeric columns I1, I2, ..., and categorical ones C1, ... of these sizes at each party; random labels."""
    columns = Columns(tuple(f"I{j + 1}" for j in range(numeric)), tuple(f"C{j + 1}" for j in range(len(sizes))), sizes)
    features = {
        party: Features(
            columns,
            torch.rand(rows, numeric, generator=rng),
            torch.cat([torch.empty(rows, 0), *(torch.randint(size, (rows, 1), generator=rng) for size in sizes)], 1).int(),
        )
        for party in parties
    }
    return VerticalTable(torch.arange(rows), features, torch.randint(classes, (rows,), generator=rng), classes)


def setup_of(rows, /, *, defenses=(), new_defense=None, seed=0, **options):
    """What a protocol needs to build parties that own the rows of this table. options: of `ProtocolSetup`."""
    new_defense = new_defense or (lambda: Chain({type(defense).__name__: defense for defense in defenses}))
    usual = {"rows": options.pop("rows", None) or AlignedRows.of(rows), "wire": Wire(), "defense": new_defense}
    usual |= {"model": WideDeep(bottom_layers=2, top_layers=1, width=8), "optimizer": Adam()}
    usual |= {"generators": Generators(seed), "device": torch.device("cpu")}
    return ProtocolSetup(table=rows, **usual | {name: value for name, value in options.items() if value is not None})


def session(rows, /, *, protocol=None, **options):
    """Parties of split learning that own the rows of this table. options: of `setup_of`."""
    return (protocol or Split()).start(setup_of(rows, **options))


def weights(split_session):
    """Copies of all parameters of all parties."""
    networks = [*(party.bottom for party in split_session.parties), split_session.label_party.network]
    return [parameter.detach().clone() for network in networks for parameter in network.parameters()]


def whole_network(split, batch):
    """Activations of all parties and the logits, of the same networks called as one, with no message in between."""
    bottoms = {party.name: party.bottom for party in split.parties}
    if split.label_party.bottom is not None:
        bottoms["label"] = split.label_party.bottom
    outs = {name: bottom(batch.features[name].numeric, batch.features[name].categorical) for name, bottom in bottoms.items()}
    deep = [outs[name][bottom.cut] for name, bottom in bottoms.items()]
    return outs, split.label_party.top(deep, [out["wide"] for out in outs.values() if "wide" in out])[1]


def experiment(**changes):
    """A run of seconds on 3,000 synthetic rows."""
    parts = {"dataset": Synthetic(rows=3000, vocabulary=300), "protocol": Split(), "engine": Local()}
    parts |= {"model": WideDeep(bottom_layers=2, top_layers=1, width=16), "optimizer": Adam(lr=1e-3)}
    parts |= {"defenses": {}, "attacks": {"norm": Norm(), "spectral": Spectral()}}
    return Experiment(**parts | {"settings": Settings(epochs=2, batch_size=128, audit=Audit(batches=5))} | changes)


def defenses(*names):
    """New ones of these choices, with the options of their files in configs/defense."""
    files = [config_folder() / "defense" / f"{name}.yaml" for name in names]
    nodes = {key: node for file in files for key, node in yaml.safe_load(file.read_text()).items()}
    return {key: component(node, key, Defense) for key, node in nodes.items()}


@functools.cache
def attack_nodes():
    """Choice -> what its file in configs/attack holds."""
    files = sorted((config_folder() / "attack").glob("*.yaml"))
    return {path.stem: yaml.safe_load(path.read_text()) or {} for path in files}


def every_attack(*names):
    """An attack of each choice in configs/attack that is no set, with its options but fewer steps; or of these names."""
    return {
        choice: component({**nodes[choice], **({"steps": 300} if choice == "model_completion" else {})}, choice, Attack)
        for choice, nodes in attack_nodes().items()
        if list(nodes) == [choice] and (not names or choice in names)
    }


def rows_of(folder):
    """The rows of metrics.csv."""
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def figures(folder):
    """The lines of metrics.csv other than times."""
    return [line for line in (folder / "metrics.csv").read_text().splitlines() if "seconds," not in line]


def run_in(folder, **changes):
    """The summary of a run of `experiment(**changes)` in that folder."""
    parts = experiment(**changes)
    recorder = Recorder(folder, "", {}, quiet=True, overwrite=parts.settings.overwrite)
    checkpoint = Checkpoint(folder, parts.settings.checkpoint, fresh=parts.settings.overwrite)
    summary = run_experiment(parts, recorder, checkpoint)
    recorder.finish(summary)
    checkpoint.finish()
    return summary.written()


def results(folder):
    """Lines of metrics.csv and figures of summary.json, times aside: what must not depend on where a run was stopped."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"], summary["cpu_seconds"]
    return figures(folder), summary


class CrashError(BaseException):
    """Stands for a process that is gone: nothing more is written."""


def crash():
    raise CrashError


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


@options
class Stop(Local):
    """Calls `trip` when the message of number `at` crosses."""

    at: int = -1
    trip: object = ctrl_c

    def wire(self):
        return TappedWire(self.carried)

    def carried(self, message):
        self.crossed = getattr(self, "crossed", -1) + 1
        if self.crossed == self.at:
            self.trip()
