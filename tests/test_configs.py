"""Every choice builds, and every file has its partners: one name, four places."""

import inspect
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import vflbench.cli.resolvers  # noqa: F401
from vflbench.attacks.base import Attack
from vflbench.cli.build import KEYED, SETTINGS, SINGLE, build, build_loggers, locate
from vflbench.cli.catalog import config_folder
from vflbench.defenses.base import Defense
from vflbench.results.loggers.base import Logger
from vflbench.run.settings import Audit, Settings

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = config_folder()
OPTIONAL = {"tensorboard": "tensorboard", "mlflow": "mlflow"}  # loggers that stand on an extra
CHOICES = [(group, file.stem) for group in (*SINGLE, *KEYED) for file in sorted((CONFIGS / group).glob("*.yaml"))]
REQUIRED = {
    ("dataset", "criteo"): ["dataset.path=x"],
    ("dataset", "avazu"): ["dataset.path=x"],
    ("dataset", "image_folder"): ["dataset.path=x"],
    ("dataset", "csv"): ["dataset.path=x", "dataset.label=y"],
    ("dataset", "binary"): ["dataset.path=x"],
}


IN_A_LIST = {("defense", "binomial"): "[quantize,binomial]"}  # it needs what another leaves


def composed(*overrides):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", [*overrides, "name=test"])


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_builds(group, name):
    if group == "logger" and name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    config = composed(f"{group}={IN_A_LIST.get((group, name), name)}", *REQUIRED.get((group, name), []))
    build(config)
    assert list(build_loggers(config)) == ([name] if group == "logger" and name != "csv" else [])


@pytest.mark.parametrize("name", [file.stem for file in sorted((CONFIGS / "experiment").glob("*.yaml"))])
def test_every_experiment_builds(name):
    build(composed(f"experiment={name}"))


def test_the_published_experiment_has_the_published_settings():
    experiment = build(composed("experiment=published", "dataset=criteo", "dataset.path=x"))
    assert (experiment.settings.batch_size, experiment.optimizer.lr) == (8192, 1e-4)
    assert type(experiment.optimizer).__name__ == "Adam"
    assert (experiment.dataset.min_count, experiment.dataset.numeric_transform, experiment.dataset.fit_on) == (
        1,
        "none",
        "all",
    )
    assert (experiment.model.embedding_dim, experiment.model.bottom_layers, experiment.model.width) == (4, 5, 128)


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_yaml_shows_every_option_with_the_default_of_the_class(group, name):
    node = OmegaConf.load(CONFIGS / group / f"{name}.yaml")
    node = node.get(name) if group in KEYED else node.get(group, node)  # a choice that brings others has a key of its own
    if not node:
        assert name in ("none", "csv")  # csv: always written, by the recorder
        return
    cls = locate(node["_target_"], group, {**SINGLE, **KEYED}[group])
    parameters = inspect.signature(cls).parameters
    assert set(node) - {"_target_"} == set(parameters)
    for option, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty:
            assert OmegaConf.is_missing(node, option)
        else:
            assert node[option] == parameter.default, option


def test_settings_in_yaml_are_the_defaults_of_the_classes():
    node = OmegaConf.load(CONFIGS / "train.yaml")
    settings = Settings(audit=Audit())
    assert {key: node[key] for key in SETTINGS} == {key: getattr(settings, key) for key in SETTINGS}
    assert dict(node["audit"]) == vars(Audit())
    assert vars(Audit()) == {"batches": "auto", "train_rows": 100_000, "canaries": "auto", "dcor": False}


@pytest.mark.parametrize(
    ("group", "room", "base"),
    [("attack", "attacks", Attack), ("defense", "defenses", Defense), ("logger", "loggers", Logger)],
)
def test_one_name_four_places(group, room, base):
    names = {file.stem for file in (CONFIGS / group).glob("*.yaml")} - {"none", "csv"}
    modules = {file.stem for file in (ROOT / "vflbench" / room).glob("*.py")} - {"__init__", "base"}
    tests = {file.stem.removeprefix("test_") for file in (ROOT / "tests" / room).glob("test_*.py")} - {"base"}
    assert names == modules == tests
    for name in names:
        node = OmegaConf.load(CONFIGS / group / f"{name}.yaml")
        assert list(node) == [name]
        expected = f"vflbench.{room}.{name}.{''.join(word.capitalize() for word in name.split('_'))}"
        assert node[name]["_target_"] == expected
        assert "Source: " in inspect.getdoc(locate(expected, name, base))
