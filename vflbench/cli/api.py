"""`vflbench.train`: a run from Python, as `vflbench train` makes it."""

import os
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write

from vflbench.cli.config import check_folder, current_config, use_plugins
from vflbench.cli.privacy_file import with_privacy
from vflbench.cli.sweep import JobOutcome
from vflbench.cli.train import run_and_report
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.folder import remove_if_empty


def train(*overrides: str, plugins: Sequence[str | Path] = ()) -> Path:
    """Train and attack as `vflbench train OVERRIDES` does, and return the run's folder.

        folder = vflbench.train("dataset.rows=20000", "attack=[norm,spectral]", "defense=marvell")
        table = vflbench.load(folder)

    overrides: as on the command line, without -m. plugins: folders of code and configs of your own. A run that was finished
    before is not computed again. Raises UserError for what the command line refuses, and for a run that counts as failed.
    """
    use_plugins([str(folder) for folder in plugins])
    try:
        folder, outcome = _train(with_privacy(overrides))
    except Exception as error:
        from vflbench.cli.mistakes import describe  # late: it imports all that can be chosen

        text = describe(error)
        if text is None or isinstance(error, UserError):
            raise
        raise UserError(text) from error
    if outcome.reason:
        raise UserError(f"{outcome.reason}; the results are in {folder}, marked as failed")
    return folder


def _train(overrides: Sequence[str]) -> tuple[Path, JobOutcome]:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("train", overrides=list(overrides), return_hydra_config=True)
        with current_config(config):
            typed = config.hydra.run.dir
        folder = Path(os.path.abspath(typed))
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.runtime.output_dir = str(folder)
            config.hydra.mode = RunMode.RUN
        check_folder(typed, folder)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with current_config(config):
                options = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
                return folder, run_and_report(options, in_sweep=False)
        finally:
            remove_if_empty(folder)
