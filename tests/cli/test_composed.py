import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli.composed import Composed
from vflbench.places import config_folder

MARVELL = ["defense=marvell", "defense.marvell.sumkl=0.16", "seed=0", "name=a"]


class Counting:
    def __init__(self, loader):
        self.loader, self.calls = loader, 0

    def load_sweep_config(self, master, overrides):
        self.calls += 1
        return self.loader.load_sweep_config(master, overrides)


@pytest.mark.parametrize(
    ("first", "second", "copied"),
    [
        (MARVELL, ["defense=marvell", "defense.marvell.sumkl=4e-2", "seed=3", "name='b c'"], True),
        (["seed=0", "audit.batches=3"], ["seed=1", "audit.batches=all"], True),
        (["defense=none", "seed=0"], ["defense=max_norm", "seed=0"], False),
        (["defense=none"], ["defense=[max_norm,dcor]"], False),
        (["+more=1"], ["+more=2"], False),
        (["dataset.parties=2"], ["dataset.parties={a: [I*], label: [C*]}"], False),
        (["name=a"], ["name='${seed}'"], False),
        (["experiment=forward_figure7", "seed=1"], ["experiment=published", "seed=2"], False),
    ],
)
def test_a_copy_is_what_hydra_would_compose_to_the_last_value(first, second, copied):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("train", [], run_mode=RunMode.MULTIRUN)
        counting = Counting(loader)
        composed = Composed(counting)
        composed.load_sweep_config(master, first)
        assert composed.load_sweep_config(master, second) == loader.load_sweep_config(master, second)
        assert counting.calls == (1 if copied else 2)
        assert composed.take(master, first) == loader.load_sweep_config(master, first)


def test_a_value_that_is_refused_is_refused_in_hydras_words():
    from hydra.errors import ConfigCompositionException

    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("train", [], run_mode=RunMode.MULTIRUN)
        composed = Composed(loader)
        composed.load_sweep_config(master, ["seed=0"])
        with pytest.raises(ConfigCompositionException, match="Could not override 'sed'"):
            composed.load_sweep_config(master, ["sed=1"])
