import copy
import importlib.util
import os
import re
import sys

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import MISSING, OmegaConf

import vflbench.cli.config  # noqa: F401
from vflbench.cli.build import build
from vflbench.cli.components import build_loggers, component, locate
from vflbench.cli.config import use_plugins
from vflbench.defenses.base import Defense
from vflbench.defenses.max_norm import MaxNorm
from vflbench.errors import UserError
from vflbench.files import config_folder
from vflbench.models.base import CutModel, Model

WRONG = [
    ("epochs", 0, "epochs=0: it must be a whole number from 1 to 1,000,000, or 'auto'"),
    ("audit.batches", "some", "audit.batches=some: it must be a whole number from 1 to 1,000,000,000, or 'all' or 'auto'"),
    ("dataset.split", "sorted", "dataset.split=sorted.*'random' or 'chronological'"),
    ("dataset.test_fraction", 1, "dataset.test_fraction=1: it must be a number from 1e-9 to 0.999999999"),
    ("dataset.rows", MISSING, "dataset.rows: it must be given, as dataset.rows=VALUE"),
    ("model.depth", 3, "model.depth=3: there is no such option; WideDeep has .*bottom_layers"),
    ("attack.norm.k", 1, "attack.norm.k=1: there is no such option"),
    ("model._partial_", True, "model._partial_=True: there is no such option"),
    ("dataset.parties", "x", "dataset.parties=x: it must be a number of non-label parties, "),
    ("dataset.parties", {"a": "I1"}, "party a must have a list of column names"),
    ("dataset.parties", {"_target_": "os.mkdir", "path": "made"}, "dataset.parties"),  # data, and no call
    ("optimizer.weight_decay", 1e-300, "optimizer.weight_decay=1e-300: it must be a number from 1e-12 to 10000, or 0"),
    ("device", "x\0\x1b[31m" * 1000, r"device=x\\x00\\x1b\[31mx.{100,250} \.\.\. .*: it must be 'auto', 'cpu' or 'cuda'"),
]


@pytest.fixture(scope="module")
def composed():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield lambda *overrides: compose("train", [*overrides, "name=test"])


def test_lists_of_attacks_and_defenses_keep_their_order(composed):
    experiment = build(composed("attack=[spectral,norm]", "defense=[max_norm,none]"))
    assert list(experiment.attacks) == ["spectral", "norm"]
    assert [type(d) for d in experiment.defenses.values()] == [MaxNorm]


def refusal(function, *arguments) -> str:
    try:
        function(*arguments)
    except UserError as error:
        return str(error)
    return "it is accepted"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_logger_without_its_package_is_named_as_it_was_typed(name, monkeypatch):
    node = OmegaConf.load(config_folder() / "logger" / f"{name}.yaml")
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None if module == name else found(module))
    said = refusal(build_loggers, {"logger": OmegaConf.to_container(node)})
    assert re.match(rf"logger={name}: it needs the package {name}: pip install .*\[{name}\]'", said)


def test_wrong_options_are_refused_by_key_value_and_what_is_allowed(composed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = composed()
    OmegaConf.set_struct(plain, False)
    for key, value, message in WRONG:
        config = copy.deepcopy(plain)
        OmegaConf.update(config, key, value, merge=False)
        assert re.search(message, refusal(build, config)), f"{key}={value}: {refusal(build, config)}"
    assert refusal(build, composed("dataset=criteo")) == "dataset.path: it must be given, as dataset.path=FILE"
    assert os.listdir(tmp_path) == []


def test_only_subclasses_of_the_groups_base_class_are_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dangerous = ("os.system", "os.mkdir", "builtins.eval")
    for target in (*dangerous, "vflbench.models.base.Model", "vflbench.attacks.norm.Norm", "nowhere.X", "x", ""):
        node = {"_target_": target, "path": "made", "command": "touch made"}
        assert refusal(component, node, "model", Model).startswith(f"model._target_={target}: "), target
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("key", ["model.bottom", "model.top"])
def test_classes_that_are_options_are_found_and_checked_before_anything_is_called(composed, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = {"model.bottom": "torch.nn:Identity", "model.top": "torch.nn.Linear"}
    model = build(composed("model=torch", *(f"{key}={path}" for key, path in pair.items()))).model
    assert (model.bottom.__name__, model.top.__name__) == ("Identity", "Linear")
    for path, problem in {
        "os:mkdir": "os is not imported: classes are imported from vflbench itself and the folders given as --plugins DIR",
        "torch.optim:Adam": "torch is not imported",
        "torch.nn:Module": "it must be a subclass",
        "torch.nn:Linea": "there is no such class in module torch.nn; ",
        "Linear": r"there is no such class \(it is written MODULE:CLASS or MODULE.CLASS\)",
        "nowhere:X": r"there is no such class \(no module nowhere\)",
    }.items():
        words = [f"{name}={given}" for name, given in {**pair, key: path}.items()]
        assert re.match(f"{key}={path}: {problem}", refusal(build, composed("model=torch", *words))), path
    assert refusal(build, composed("model=torch")) == "model.bottom: it must be given, as model.bottom=MODULE:CLASS"
    words = [f"{name}={path}" for name, path in pair.items()]
    refused = refusal(build, composed("model=torch", *words, "+model.top_options.wide=3"))
    assert refused.startswith("model.top_options={'wide': 3}: got an unexpected keyword argument 'wide'; torch.nn.")
    assert os.listdir(tmp_path) == []


def test_a_class_that_lacks_a_part_or_an_option_is_refused():
    text = refusal(locate, "vflbench.models.base.Model", "model._target_", CutModel)
    assert text == "model._target_=vflbench.models.base.Model: it lacks bottom"
    chain = {"_target_": "vflbench.defenses.chain.Chain"}
    assert refusal(component, chain, "defense.chain", Defense).startswith("defense.chain.defenses: it must be given")


MINE = """from vflbench.defenses.base import LabelDefense

class Mine(LabelDefense):
    def __init__(self, k=1):
        self.k = k
"""


def test_the_faults_of_a_users_module_are_told_from_its_absence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    mine, elsewhere, ran = tmp_path / "mine", tmp_path / "elsewhere", tmp_path / "ran"
    for file, text in {
        mine / "my_defense.py": MINE,
        mine / "my_mistake.py": "class Mine(:\n",
        mine / "my_import.py": "import nowhere_to_be_found\n",
        mine / "my_folder/below/defense.py": "from my_defense import Mine\n",  # no __init__
        mine / "my_package/empty": "",
        mine / "my_other/empty": "",
        elsewhere / "my_link.py": "",
        elsewhere / "evil.py": f"open({str(ran)!r}, 'w')\n",
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (mine / "my_link.py").symlink_to(elsewhere / "my_link.py")
    (mine / "my_package" / "__init__.py").symlink_to(elsewhere / "evil.py")
    (mine / "my_other" / "below").symlink_to(elsewhere)
    use_plugins([str(mine)])
    assert component({"_target_": "my_defense.Mine", "k": 5}, "defense.mine", Defense).k == 5
    assert component({"_target_": "my_folder.below.defense.Mine"}, "defense.mine", Defense).k == 1
    for target, message in {
        "my_mistake.Mine": r"can't be imported: SyntaxError: .*my_mistake.py, line 1",
        "my_import.Mine": "can't be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        "my_defense.Yours": "there is no such class in module my_defense; .*--plugins DIR",
        "my_link.X": "my_link is not imported",
        "my_package.X": "my_package is not imported",
        "my_other.below.evil.X": "my_other is not imported",
        "nowhere.inside.X": r"there is no such class \(no module nowhere\); .*--plugins DIR",
    }.items():
        text = refusal(locate, target, "defense.mine._target_", Defense)
        assert re.match(f"defense.mine._target_={target}: {message}", text), text
    use_plugins([])
    assert not ran.exists()
