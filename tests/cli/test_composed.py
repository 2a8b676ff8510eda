import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli.composed import Composed
from vflbench.places import config_folder

MARVELL = ["defense=marvell", "defense.marvell.sumkl=0.16", "seed=0", "device=a"]
PAIRS = [
    (MARVELL, ["defense=marvell", "defense.marvell.sumkl=4e-2", "seed=3", "device='b c'"], True),
    (["seed=0", "audit.batches=3"], ["seed=1", "audit.batches=all"], True),
    (["dataset=csv", "dataset.path=a"], ["dataset=csv", "dataset.path=b"], True),  # of which the first has no value
    (["defense=none", "seed=0"], ["defense=max_norm", "seed=0"], False),
    (["defense=none"], ["defense=[max_norm,dcor]"], False),
    (["+more=1"], ["+more=2"], False),
    (["dataset.parties=2"], ["dataset.parties={a: [I*], label: [C*]}"], False),
    (["device=a"], ["device='${seed}'"], False),
    (["name=a"], ["name=b"], False),  # which must be looked at: it is part of a path
    (["experiment=forward_figure7", "seed=1"], ["experiment=published", "seed=2"], False),
]


class Counting:
    def __init__(self, loader):
        self.loader, self.calls = loader, 0

    def load_sweep_config(self, master, overrides):
        self.calls += 1
        return self.loader.load_sweep_config(master, overrides)


@pytest.fixture(scope="module")
def loader():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


@pytest.fixture(scope="module")
def master(loader):
    return loader.load_configuration("train", [], run_mode=RunMode.MULTIRUN)


@pytest.mark.slow
def test_a_copy_is_what_hydra_would_compose_to_the_last_value(loader, master):
    for first, second, copied in PAIRS:
        counting = Counting(loader)
        composed = Composed(counting)
        kept = composed.load_sweep_config(master, first)
        derived = composed.load_sweep_config(master, second)
        assert counting.calls == (1 if copied else 2), second
        assert not copied or derived == loader.load_sweep_config(master, second), second
        assert composed.take(master, first) is kept, first


@pytest.mark.slow
def test_of_interleaved_choices_each_is_composed_once(loader, master):
    counting = Counting(loader)
    composed = Composed(counting)
    for seed in range(3):
        for defense in ("none", "max_norm"):
            words = [f"seed={seed}", f"defense={defense}"]
            composed.load_sweep_config(master, words)
            assert composed.take(master, words) == composed.take(master, words)  # the second is made anew
    assert composed.take(master, words) == loader.load_sweep_config(master, words)
    assert counting.calls == 2


def test_a_value_that_is_refused_is_refused_in_hydras_words(loader, master):
    composed = Composed(loader)
    composed.load_sweep_config(master, ["seed=0"])
    with pytest.raises(ConfigCompositionException, match="Could not override 'sed'"):
        composed.load_sweep_config(master, ["sed=1"])


def test_the_first_config_is_shown_once_and_changing_it_changes_nothing(loader, master):
    shown = []
    composed = Composed(loader, lambda config: shown.append(config.seed) or config.update(seed=9))
    for seed in (4, 5):
        assert composed.load_sweep_config(master, [f"seed={seed}"]).seed == seed
    assert shown == [4]
