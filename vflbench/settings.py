"""Settings of a run that belong to no component."""

from typing import Literal

import torch

from vflbench.errors import UserError
from vflbench.options import Count, NonNegativeInt, options


@options
class Audit:
    """How much of an epoch is looked at.

    batches: attack so many, spread evenly over the epoch, or `all`. train_rows: score at most so many for train AUC.
    """

    batches: Count | Literal["all"] = 20
    train_rows: Count = 100_000


@options
class Settings:
    """What belongs to no component.

    batch_size: rows a step; `auto` takes the largest power of two between 32 and 512 that leaves 100 steps an epoch.
    log_every: steps between lines of train.log.
    checkpoint: at each epoch's end and when stopped, `resume` saves what going on takes, until the run has finished; `keep`
    leaves it there; `none` saves nothing.
    overwrite: compute anew what is there already.
    """

    epochs: Count = 2
    batch_size: Count | Literal["auto"] = "auto"
    seed: NonNegativeInt = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    log_every: Count = 100
    checkpoint: Literal["resume", "keep", "none"] = "resume"
    overwrite: bool = False
    audit: Audit


def choose_device(wanted: str) -> torch.device:
    """auto is cuda where there is one, cpu elsewhere."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "this machine, or its build of torch, has no CUDA device; use cpu or auto", key="device", value="cuda"
        )
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")
