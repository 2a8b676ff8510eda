import os

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli.build import build, component, locate
from vflbench.cli.catalog import config_folder
from vflbench.defenses.base import Defense
from vflbench.defenses.max_norm import MaxNorm
from vflbench.errors import UserError
from vflbench.messages.wire import Wire


@pytest.fixture
def composed():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield lambda *overrides: compose("train", [*overrides, "name=test"])


def test_defaults_build_the_published_network(composed):
    experiment = build(composed())
    assert (experiment.model.bottom_layers, experiment.model.top_layers, experiment.model.width) == (5, 3, 128)
    assert list(experiment.attacks) == ["norm", "spectral"]
    assert experiment.defenses == {}


def test_lists_of_attacks_and_defenses_keep_their_order(composed):
    experiment = build(composed("attack=[spectral,norm]", "defense=[max_norm,none]"))
    assert list(experiment.attacks) == ["spectral", "norm"]
    assert [type(d) for d in experiment.defenses.values()] == [MaxNorm]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("epochs=0", "epochs=0: it must be greater than or equal to 1"),
        ("epochs=two", "epochs=two: it must be a valid integer"),
        ("epochs=true", "epochs=True"),
        ("audit.batches=some", "audit.batches=some.*'all'"),
        ("model.width=0", "model.width=0"),
        ("model.wide=maybe", "model.wide=maybe"),
        ("dataset.split=sorted", "dataset.split=sorted.*'random' or 'chronological'"),
        ("dataset.test_fraction=1", "dataset.test_fraction=1.*less than 1"),
        ("optimizer.lr=-1", "optimizer.lr=-1.*greater than 0"),
        ("optimizer.lr=nan", "optimizer.lr=nan"),
        ("device=tpu", "device=tpu.*'cuda'"),
        ("+model.depth=3", "model.depth=3: there is no such option; WideDeep has .*bottom_layers"),
        ("+attack.norm.k=1", "attack.norm.k=1: there is no such option"),
        ("+loud=1", "loud: there is no such option"),
        ("attack=norm +attack.other=3", "attack.other=3: it must name a class"),
        ("dataset=criteo", "dataset.path: it must be given, as dataset.path=FILE"),
        ("+wire._partial_=true", "wire._partial_=True: there is no such option"),
        ("audit=3", "audit=3: it must be a mapping"),
        ("dataset.parties=x", "dataset.parties=x: it must be a number of non-label parties, or"),
        ("dataset.parties={a:I1}", "party a must have a list of column names"),
        ("dataset.parties={1:[I1]}", "a party's name must be a word, and 1 is not one"),
        ("dataset.parties=true", "dataset.parties=True: it must be a number"),
        ("wire._target_=.x.Y", "wire._target_=.x.Y: there is no such class"),
    ],
)
def test_wrong_options_are_told_by_key_value_and_what_is_allowed(composed, override, told):
    with pytest.raises(UserError, match=told):
        build(composed(*override.split()))


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "os.mkdir",
        "builtins.eval",
        "vflbench.messages.wire.Wire",
        "vflbench.attacks.norm.Norm",
        "nowhere.X",
        "x",
        "",
    ],
)
def test_only_subclasses_of_the_groups_base_class_are_called(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"wire._target_"):
        component({"_target_": target, "path": "made", "command": "touch made"}, "wire", Wire)
    assert os.listdir(tmp_path) == []


def test_a_target_inside_an_option_is_data_not_a_call(composed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = composed()
    OmegaConf.set_struct(config, False)
    config.dataset.parties = {"_target_": "os.mkdir", "path": "made"}
    with pytest.raises(UserError, match="dataset.parties"):
        build(config)
    assert os.listdir(tmp_path) == []


def test_a_users_own_module_is_found_and_its_faults_are_told(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_defense.py").write_text(
        "from vflbench.defenses.base import Defense\n"
        "class Mine(Defense):\n"
        "    def __init__(self, k=1):\n"
        "        self.k = k\n"
    )
    (tmp_path / "my_mistake.py").write_text("class Mine(:\n")
    assert component({"_target_": "my_defense.Mine", "k": 5}, "defense.mine", Defense).k == 5
    with pytest.raises(UserError, match=r"can't be imported: SyntaxError: .*my_mistake.py, line 1"):
        locate("my_mistake.Mine", "defense.mine._target_", Defense)


def test_a_plain_class_is_checked_by_its_signature():
    with pytest.raises(UserError, match="defense.chain.defenses: it must be given"):
        component({"_target_": "vflbench.defenses.base.Chain"}, "defense.chain", Defense)
