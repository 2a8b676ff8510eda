"""What the configs can compute: importing this module teaches it to OmegaConf, in worker processes too."""

from typing import Any

from omegaconf import OmegaConf


def names(group: str, _root_: Any) -> str:
    """`${names:attack}`: the names chosen in a keyed group, as norm+spectral, or none."""
    return "+".join(_root_.get(group) or {}) or "none"


OmegaConf.register_new_resolver("names", names, replace=True)
