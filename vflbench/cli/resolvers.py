"""What the configs can compute: importing this module teaches it to OmegaConf, in worker processes too."""

from typing import Any

from omegaconf import Container, OmegaConf

import vflbench.results.identity


def names(group: str, _root_: Any) -> str:
    """`${names:attack}`: the names chosen in a keyed group, as norm+spectral, or none."""
    return "+".join(_root_.get(group) or {}) or "none"


def digest(_root_: Any) -> str:
    """`${digest:}`: 8 hexadecimal digits that stand for everything chosen that can change a result.

    A mandatory value that was not given counts as `???`: the run itself says that it is missing.
    """
    essential = vflbench.results.identity.essential({key: _root_._get_node(key) for key in _root_})
    return vflbench.results.identity.digest({key: _resolved(_root_, key) for key in essential})


def _resolved(root: Any, key: Any) -> Any:
    node = root._get_node(key)
    if isinstance(node, Container) and not node._is_none() and not node._is_missing() and not node._is_interpolation():
        return OmegaConf.to_container(node, resolve=True)
    return "???" if OmegaConf.is_missing(root, key) else root[key]


OmegaConf.register_new_resolver("names", names, replace=True)
OmegaConf.register_new_resolver("digest", digest, replace=True)
