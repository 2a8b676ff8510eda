"""The label party's table in a folder of its own, as the data set of a run."""

from pathlib import Path

import torch

from vflbench.data.base import Dataset
from vflbench.data.party_table import read_label_table
from vflbench.data.rows import TrainTest
from vflbench.options import options


@options
class WrittenTable(Dataset):
    """Rows that were split and encoded before: labels and the label party's own columns, from `write_party_tables`."""

    folder: str

    def load(self, rng: torch.Generator) -> TrainTest:
        """Nothing is drawn. Raises UserError for a folder that is damaged."""
        return read_label_table(Path(self.folder))
