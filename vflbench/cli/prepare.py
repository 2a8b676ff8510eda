"""`vflbench prepare dataset=...`."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from vflbench.cli.command_line import hand_over_to_hydra, hydra_words, with_quoted_marks
from vflbench.cli.components import build_dataset
from vflbench.cli.config import split_flag, use_plugins
from vflbench.cli.main import fail_with
from vflbench.errors import UserError

_USAGE = """vflbench prepare: read a data set once, for all later runs; train does so if
needed.

  vflbench prepare dataset=criteo dataset.path='day_*.gz'
  vflbench prepare dataset=csv dataset.path=my.csv dataset.label=clicked

For a table of your own (csv, parquet) it prints what each column is taken for,
and which class is positive. If a column is taken for the wrong type, set
dataset.types:

  vflbench prepare dataset=csv dataset.path=my.csv dataset.label=clicked \\
    'dataset.types={zip: categorical, note: ignore, since: date}'

The command takes the options of `vflbench train`. Of these, only dataset.*
matters, and only the options that determine how the text is read. The result is
kept in VFLBENCH_CACHE, or by default in the platform's folder for caches;
`vflbench prepare --clear` deletes all that is kept there.
"""


def prepare(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line as for `train`; then only the dataset is built."""
    named, words = split_flag(arguments)
    if any(word in ("-h", "--help") for word in words):
        print(_USAGE)
        return
    if any(word in ("-m", "--multirun") for word in words):
        raise UserError("one data set at a time is prepared", key="-m")
    if words == ["--clear"]:
        from vflbench.data.file_dataset import cache_folder, clear  # late: it imports what reads tables

        print(f"deleted: {clear() / 1e6:,.1f} MB of prepared tables in {cache_folder()}")
        return
    hydra_words(words, "vflbench prepare")  # refuses unknown flags
    use_plugins(named)
    sys.argv = ["vflbench prepare", *with_quoted_marks(words), "hydra.run.dir=."]  # nothing is written but the cache
    hand_over_to_hydra("vflbench.cli.prepare:prepare_one")


def prepare_one(config: DictConfig) -> None:
    """Put the dataset into the cache, and print a line on it and, of one's own table, what each column is taken for."""
    try:
        from vflbench.data.file_dataset import FileDataset  # late, as above

        dataset = build_dataset(config)
        if not isinstance(dataset, FileDataset):
            name = type(dataset).__name__
            raise UserError(f"{name} is read from no file, so there is nothing to prepare", key="dataset")
        print("\n".join(dataset.described()))
    except Exception as error:
        fail_with(error)  # here: Hydra would add lines of its own
