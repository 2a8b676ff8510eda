"""Stand-in."""

from pathlib import Path

from torch import Tensor

from vflbench.data.table import LABEL_PARTY, Features
from vflbench.generators import Generators
from vflbench.run.experiment import Experiment


def write_tables(experiment: Experiment, folder: Path) -> list[str]:
    data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
    return [p for p in data.train.columns if p != LABEL_PARTY]


class Table:
    def __init__(self, experiment, party: str):
        data = experiment.dataset.load(Generators(experiment.settings.seed)["data"])
        self._rows, self._party, self.columns = data.aligned(), party, data.train.columns[party]
        self._count = len(data.train.role)

    def __len__(self) -> int:
        return self._count

    def lookup(self, ids: Tensor) -> Features:
        return self._rows.features(self._party, ids)
