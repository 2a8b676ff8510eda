"""While Hydra composes: the rules of `trust` and `shared_files`, in this process and in the workers of a sweep."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig

import vflbench.cli.resolvers  # noqa: F401  (configs need it, in workers too)
from vflbench.cli.hydra_internals import Rules, guarded_composition
from vflbench.cli.hydra_shortcuts import shortcuts
from vflbench.cli.plugins import PROVIDER, searched
from vflbench.cli.shared_files import check_file, is_ours
from vflbench.cli.trust import check_composed, check_shared, check_words

RULES = Rules(words=check_words, file=check_file, is_ours=is_ours, shared=check_shared, composed=check_composed)


@contextmanager
def guarded() -> Iterator[None]:
    """While entered, Hydra refuses what the trust boundary doesn't allow. May be entered again."""
    if searched:
        Plugins.instance().register(PluginConfigs)
    with guarded_composition(RULES), shortcuts():
        yield


class PluginConfigs(SearchPathPlugin):
    """Lets Hydra search the plug-in folders for configs, after vflbench's own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in searched:
            search_path.append(provider=PROVIDER, path=f"file://{folder}")


class GuardedLoader:
    """Hydra's config loader, for a launcher: workers get it pickled, and compose under the same rules."""

    def __init__(self, loader: Any):
        self.loader = loader

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """As Hydra's own."""
        with guarded():
            return self.loader.load_sweep_config(master_config, sweep_overrides)

    def __getattr__(self, name: str) -> Any:
        if name == "loader" or name.startswith("__"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.loader, name)
