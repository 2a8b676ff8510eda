"""The options of `hydra/launcher=fork`."""

from typing import Literal

from vflbench.options import Cores, options


@options
class ForkOptions:
    """What stands under hydra.launcher; configs/hydra/launcher/fork.yaml explains each."""

    n_jobs: Cores | None = None
    start: Literal["auto", "spawn"] = "auto"
