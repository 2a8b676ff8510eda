"""What Hydra does again and again is done once, with the same results."""

import io
from contextlib import nullcontext

import hydra
import omegaconf
import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.types import RunMode
from omegaconf import OmegaConf

import vflbench.cli.resolvers  # noqa: F401
from vflbench.cli.hydra_shortcuts import shortcuts
from vflbench.places import config_folder

CHANGED = f"hydra-core {hydra.__version__} or omegaconf {omegaconf.__version__} changed; adapt cli/hydra_shortcuts.py"


MORE = [
    (["seed=1,2"], True),
    (["seed=1,2"], False),  # needs -m
    (["attack=nrom"], True),
    (["experiment=matrix"], False),  # is a sweep by itself
    (["model=???"], False),
    (["model=???"], True),
]


@pytest.fixture(scope="module")
def loader():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


def composed(loader, words, multirun):
    """What Hydra gets when it asks what kind of command it is, and then composes it; errors as text."""
    seen = []
    mode, words = RunMode.MULTIRUN if multirun else RunMode.RUN, list(words)
    try:
        config = loader.load_configuration("train", words, RunMode.MULTIRUN, validate_sweep_overrides=False)
        seen.append(config.hydra.mode)
    except Exception as error:
        seen.append(f"{type(error).__name__}: {error}")
    if seen[0] is not RunMode.MULTIRUN:
        words.append(f"hydra.mode={mode.name}")
    try:
        config = loader.load_configuration("train", words, seen[0] if isinstance(seen[0], RunMode) else mode)
        seen.append(OmegaConf.to_yaml(config))
    except Exception as error:
        seen.append(f"{type(error).__name__}: {error}")
    return seen


@pytest.mark.parametrize(
    ("words", "multirun"),
    [
        (["seed=3", "attack=kmeans"], False),
        (["model.depth=3"], False),
        *(pytest.param(words, multirun, marks=pytest.mark.slow) for words, multirun in MORE),
    ],
)
def test_a_command_is_composed_once_as_hydra_composes_it_twice(loader, words, multirun):
    with shortcuts():
        ours = composed(loader, words, multirun)
    assert ours == composed(loader, words, multirun), CHANGED


def test_groups_are_listed_as_hydra_lists_them(loader):
    answers = []
    for context in (nullcontext(), shortcuts()):
        with context:
            answers.append(
                [
                    loader.get_group_options(group, kind)
                    for group in ("", "attack", "defense", "hydra")
                    for kind in (ObjectType.CONFIG, ObjectType.GROUP)
                ]
            )
    assert answers[0] == answers[1], CHANGED
    with shortcuts():
        loader.get_group_options("attack").clear()
        assert loader.get_group_options("attack") == answers[0][2]


def same(one, other):
    """Equal in values, types and order."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.mark.slow
def test_libyaml_reads_our_configs_as_omegaconf_does():
    for file in sorted(config_folder().rglob("*.yaml")):
        slow = OmegaConf.to_container(OmegaConf.load(file))
        with shortcuts():
            assert same(OmegaConf.to_container(OmegaConf.load(file)), slow), file


def test_what_is_wrong_in_yaml_is_told_in_the_same_words(tmp_path, monkeypatch):
    """Of ours as of a file of others, which libyaml doesn't read."""
    file = tmp_path / "torn.yaml"
    for text in ("a: [1, 2\n", "a: 1\na: 2\n", "a: 1e-3\nb: 2020-01-01\nc: 0o7\n", "a: !!python/name:os.system\n"):
        file.write_text(text)
        answers = []
        for context, is_ours in ((nullcontext(), False), (shortcuts(), False), (shortcuts(), True)):
            monkeypatch.setattr("vflbench.cli.hydra_shortcuts.is_ours", lambda _, is_ours=is_ours: is_ours)
            with context:
                try:
                    answers.append(repr(OmegaConf.load(file)))
                except yaml.YAMLError as error:
                    answers.append(str(error))
        assert len(set(answers)) == 1, (CHANGED, answers)


def test_a_text_is_read_as_before():
    with shortcuts():
        assert OmegaConf.load(io.StringIO("a: 1e-3")) == {"a": 0.001}
        assert OmegaConf.create("a: 1e-3") == {"a": 0.001}
