"""What configs compute. Importing this module registers its functions with OmegaConf, in workers of sweeps too."""

from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import Container, DictConfig, OmegaConf

from vflbench.cli.plugins import recorded_folders
from vflbench.cli.run_folder import run_name
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results import provenance
from vflbench.run.provenance import origin_of

_LONGEST = 60  # characters of joined names, which become part of a folder's name


def names(group: str, _root_: DictConfig) -> str:
    """`${names:attack}`: the names chosen in a keyed group, such as norm+spectral, or none; of a set, the set's name."""
    chosen = list(_root_.get(group) or {})
    joined = "+".join(chosen) or "none"
    if len(joined) <= _LONGEST:
        return joined
    sets = (file.stem for file in sorted((config_folder() / group).glob("*.yaml")) if _keys(file, group) == chosen)
    return next(sets, f"{chosen[0]}+{len(chosen) - 1}_others")


def chosen(group: str) -> str:
    """`${chosen:dataset}`: what was chosen in a group, as part of a folder's name: mine/ctr is mine_ctr."""
    choice = str(HydraConfig.get().runtime.choices.get(group))
    return "".join(sign if sign.isalnum() or sign in "-.+" else "_" for sign in choice)


@cache
def _keys(file: Path, group: str) -> list[str]:
    """The names of a config's entries. A set stands under the name of its group, beside options outside it."""
    node: Any = OmegaConf.load(file)
    return list(map(str, node.get(group, node)))


def refuse_environment(*_: Any) -> str:
    """`${oc.env:NAME}`: a config could carry a secret into results that are shared, however it spells this."""
    raise UserError("options don't read environment variables; on the command line, the shell puts $NAME in", key="oc.env")


def digest(_root_: DictConfig) -> str:
    """`${digest:}`: 8 hexadecimal digits that identify all that can change a result: options, code, plug-ins, data files.

    A mandatory value that is missing counts as `???`. The run itself reports that it is missing.
    """
    if _Within.digest:
        raise UserError("an option can't depend on the digest of all options", key="digest")
    _Within.digest = True
    try:
        if "name" in _root_ and not OmegaConf.is_missing(_root_, "name"):
            run_name(_root_["name"])  # here, as Hydra makes the folder right afterwards
        options = {str(key): _resolved(_root_, key) for key in provenance.essential(dict.fromkeys(_root_))}
        return provenance.digest(options, origin_of(options, recorded_folders(_root_)))
    finally:
        _Within.digest = False


class _Within:
    """Whether a digest is being computed."""

    digest = False


def difference(minuend: int, subtrahend: int) -> int:
    """`${difference:8,${model.bottom_layers}}`: how many of 8 layers are left above the cut."""
    return minuend - subtrahend


def plain(config: Container, *, throw_on_missing: bool = False) -> Any:
    """A config as dicts, lists and values, with everything computed."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=throw_on_missing)


def _resolved(root: DictConfig, key: Any) -> Any:
    if OmegaConf.is_missing(root, key):
        return "???"
    value = root[key]
    return plain(value) if OmegaConf.is_config(value) else value


OmegaConf.register_new_resolver("oc.env", refuse_environment, replace=True)
OmegaConf.register_new_resolver("names", names, replace=True)
OmegaConf.register_new_resolver("chosen", chosen, replace=True)
OmegaConf.register_new_resolver("difference", difference, replace=True)
OmegaConf.register_new_resolver("digest", digest, replace=True)
