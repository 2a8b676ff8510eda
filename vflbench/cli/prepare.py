"""`vflbench prepare dataset=...`."""

import sys
from collections.abc import Sequence

from omegaconf import DictConfig

from vflbench.cli.errors import fail, wants_traceback
from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.cli.train import hand_over_to_hydra
from vflbench.errors import UserError

USAGE = """vflbench prepare: read a data set once, for all later runs; train does so by itself if needed.

  vflbench prepare dataset=criteo dataset.path='day_*.gz'
  vflbench prepare dataset=csv dataset.path=my.csv dataset.label=clicked

Takes the options of `vflbench train`. Only dataset.* matters, and of these only the options that determine how the text is
read: path, members, rows, bad_rows, max_bad_fraction; hour of avazu; label, positive, types and delimiter of csv. The result
is kept in VFLBENCH_CACHE, or by default in the platform's folder for caches.
"""


def prepare(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line as for `train`; then only the dataset is built."""
    named, words = split_plugins(arguments)
    if any(word in ("-h", "--help") for word in words):
        print(USAGE)
        return
    if any(word in ("-m", "--multirun") for word in words):
        raise UserError("one data set at a time is prepared", key="-m")
    use_plugins(named)
    sys.argv = ["vflbench prepare", *words, "hydra.run.dir=."]  # nothing is written but the cache
    hand_over_to_hydra(prepare_one)


def prepare_one(config: DictConfig) -> None:
    """Put the dataset into the cache, and print a line on it."""
    from vflbench.cli.build import build_dataset
    from vflbench.cli.mistakes import describe
    from vflbench.data.file_dataset import FileDataset

    try:
        dataset = build_dataset(config)
        if not isinstance(dataset, FileDataset):
            name = type(dataset).__name__
            raise UserError(f"{name} is read from no file, so there is nothing to prepare", key="dataset")
        print(dataset.prepare().line())
    except Exception as error:
        text = describe(error)
        if text is None or wants_traceback():
            raise
        fail(text)
