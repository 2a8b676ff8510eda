"""Launchers of sweeps that come with extras of their own."""

from importlib.util import find_spec

from vflbench.errors import UserError
from vflbench.places import pip_install

_EXTRAS = {
    "joblib": ("joblib", "hydra_plugins.hydra_joblib_launcher"),
    "submitit_local": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
    "submitit_slurm": ("slurm", "hydra_plugins.hydra_submitit_launcher"),
}
"""Launcher -> its extra, and the package without which it can't begin."""


def require_launcher(name: str) -> None:
    """Raise UserError for a launcher whose extra is not installed."""
    extra, package = _EXTRAS.get(name, ("", ""))
    if extra and not _is_installed(package):
        raise UserError(f"it needs an extra: {pip_install(extra)}", key="hydra/launcher", value=name)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
