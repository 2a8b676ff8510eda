"""What a process of a sweep is given to do: a run, in a fork, or one after the other."""

import pickle  # nosec  (of the sweep's own objects)
from typing import Any

from omegaconf import DictConfig

from vflbench.cli.hydra_internals import returned_value, run_composed
from vflbench.cli.train import train_one
from vflbench.cli.workers import stoppable


def perform(payload: bytes) -> bytes:
    """What the run of a config returns, pickled; or the exception that it ended with."""
    config = pickle.loads(payload)  # nosec  (what our own sweep made)
    try:
        result: Any = compute(config)
    except Exception as error:
        result = error
    try:
        return pickle.dumps(result)
    except Exception:  # an error that holds what can't be pickled
        return pickle.dumps(RuntimeError(f"{type(result).__name__}: {result}"))


def compute(config: DictConfig) -> Any:
    """One run, as Hydra's own launchers do it."""
    with stoppable():
        return returned_value(run_composed(config, train_one))


def renew_random_state() -> None:
    """In a fork: what a process of its own would begin with. Python's own generator renews itself."""
    import numpy

    numpy.random.set_state(numpy.random.RandomState().get_state())
