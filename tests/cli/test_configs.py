"""Every choice builds, and every file has its partners: one name, four places."""

import ast
import copy
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import vflbench.cli.config  # noqa: F401
from vflbench.cli.build import KEYED, SINGLE, build
from vflbench.cli.components import SETTINGS, build_loggers, component, locate
from vflbench.cli.sweep import overrides_of_runs
from vflbench.defenses.base import Defense
from vflbench.files import config_folder
from vflbench.metrics.privacy import Exposure
from vflbench.options import Range
from vflbench.report.published import read_experiments
from vflbench.run.settings import Audit, Settings

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = config_folder()
OPTIONAL = {"tensorboard": "tensorboard", "mlflow": "mlflow"}  # loggers that stand on an extra
BASES = {**SINGLE, **KEYED}
CHOICES = {group: sorted(file.stem for file in (CONFIGS / group).glob("*.yaml")) for group in BASES}
IN_A_LIST = {("defense", "binomial"): "[quantize,binomial]"}  # it needs what another leaves
SETS = {"strongest"}  # of several attacks, each with a config of its own
PRESETS = {("dataset", name) for name in ("adult", "bank", "credit", "drive")}  # values for the options of another choice
EMPTY = {"none", "csv"}  # choices without options; csv: always written, by the recorder
NEEDED = {
    **{("dataset", name): ["dataset.path=x"] for name in ("criteo", "avazu", "image_folder", "binary")},
    **{("dataset", name): ["dataset.path=x", "dataset.label=y"] for name in ("csv", "parquet")},
    **{preset: ["dataset.path=x"] for preset in PRESETS},
    ("model", "torch"): ["model.bottom=torch.nn:Identity", "model.top=torch.nn:LazyLinear"],
}
"""What a choice can't be built without."""


@dataclass(frozen=True)
class Choice:
    """A choice of a group, what its file says, its class, and the key of its options: `optimizer`, or `attack.norm`."""

    group: str
    name: str
    node: Any
    cls: type
    key: str

    def hints(self) -> dict[str, Any]:
        hints = get_type_hints(self.cls, include_extras=True)
        return {field.name: hints[field.name] for field in fields(self.cls)} if is_dataclass(self.cls) else {}


def choices() -> Iterator[Choice]:
    """Of every group, from the configs; none of those without a class of their own."""
    for group, base in BASES.items():
        for name in sorted({*CHOICES[group]} - EMPTY - SETS):
            file: Any = OmegaConf.load(CONFIGS / group / f"{name}.yaml")
            node = file[name] if group in KEYED else file.get(group, file)  # one that brings others has a key of its own
            key = f"{group}.{name}" if group in KEYED else group
            yield Choice(group, name, node, locate(node["_target_"], group, base), key)


EVERY = list(choices())


def composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", [*overrides, "name=test"])


@pytest.mark.slow
def test_every_choice_builds():
    """One choice of each group at a time, so that a dozen configs cover all."""
    installed = [name for name, package in OPTIONAL.items() if find_spec(package) is None]
    names = {group: [name for name in CHOICES[group] if name not in installed] for group in BASES}
    for number in range(max(map(len, names.values()))):
        chosen = {group: all_names[number % len(all_names)] for group, all_names in names.items()}
        overrides = [f"{choice[0]}={IN_A_LIST.get(choice, choice[1])}" for choice in chosen.items()]
        config = composed(*overrides, *(word for choice in chosen.items() for word in NEEDED.get(choice, [])))
        experiment = build(config)
        assert list(build_loggers(config)) == [name for name in [chosen["logger"]] if name not in EMPTY], chosen
        attacks = [name for name in [chosen["attack"]] if name not in EMPTY | SETS]
        assert list(experiment.attacks) == attacks or chosen["attack"] in SETS, chosen


def test_the_published_experiment_has_the_published_settings():
    experiment = build(composed("experiment=published", "dataset=criteo", "dataset.path=x"))
    assert (experiment.settings.epochs, experiment.settings.batch_size, experiment.optimizer.lr) == (3, 8192, 1e-4)
    assert type(experiment.optimizer).__name__ == "Adam"
    dataset = experiment.dataset
    assert (dataset.min_count, dataset.numeric_transform, dataset.fit_on) == (1, "none", "all")
    assert (experiment.model.embedding_dim, experiment.model.bottom_layers, experiment.model.width) == (4, 5, 128)


def test_yaml_shows_every_option_with_the_default_of_the_class():
    for choice in EVERY:
        node, parameters = choice.node, inspect.signature(choice.cls).parameters
        assert set(node) - {"_target_"} == set(parameters), choice
        for option, parameter in parameters.items():
            if (choice.group, choice.name) in PRESETS:
                assert option != "path" or OmegaConf.is_missing(node, option)
            elif parameter.default is inspect.Parameter.empty:
                assert OmegaConf.is_missing(node, option), (choice, option)
            else:
                assert node[option] == parameter.default, (choice, option)


def test_the_options_of_a_named_set_can_be_set():
    """`attack=strongest attack.completion.known=20`: the set shows each option, with the default of the class."""
    alone = composed("attack=[remainder,directions,completion]").attack
    several = composed("attack=strongest").attack
    assert {name: several[name] for name in alone} == alone
    assert several.completion_both == {**alone.completion, "message": "both"}
    assert composed("attack=strongest", "attack.completion.known=20").attack.completion.known == 20


@pytest.mark.slow
def test_defenses_of_the_matrix_promise_the_same():
    """Leak AUC at most 0.68 from all messages of two epochs, each that promises something of a run."""
    promising = set()
    for entry in OmegaConf.load(CONFIGS / "experiment" / "matrix.yaml").hydra.sweeper.runs:
        for name, node in composed(*entry).defense.items():
            guarantee = component(OmegaConf.to_container(node), name, Defense).guarantee()
            if guarantee and name != "marvell" and "," not in entry[0]:  # it promises something of one message
                promising.add(name)
                assert guarantee.leak_auc_after(Exposure(2, 2)) == pytest.approx(0.68, abs=5e-4), entry
    assert promising == {"alibi", "label_dp", "label_gdp", "tpsl"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(file.stem for file in (CONFIGS / "experiment").glob("*.yaml")))
def test_an_experiment_composes_and_has_a_run_for_each_published_value(name):
    experiment = read_experiments(names={name})[name]
    sweeper = (experiment.config.get("hydra") or {}).get("sweeper") or {}
    parser = OverridesParser.create()
    words = NEEDED.get(("dataset", experiment.dataset or "criteo"), [])
    words += [] if experiment.dataset else ["dataset=criteo"]
    of_choices = cache(partial(composed, f"experiment={name}", *words, "seed=0"))
    runs = [
        _with_values(of_choices, run)
        for run in overrides_of_runs(parser, sweeper.get("params") or {}, sweeper.get("runs") or [], [])
        if "seed=0" in run or not any(word.startswith("seed=") for word in run)
    ]
    for run in runs:
        for key, node in OmegaConf.to_container(run.defense).items():
            component(node, key, Defense)
    for options in (value.options for value in experiment.values if value.quantity):
        assert any(_has(run, options) for run in runs), options


def _with_values(of_choices: Callable[..., DictConfig], run: list[str]) -> DictConfig:
    """Composed of its choices of groups, then merged with its values, which takes a tenth of the time."""
    values = [word for word in run if word.partition("=")[0] not in {**SINGLE, **KEYED}]
    config = copy.deepcopy(of_choices(*(word for word in run if word not in values)))
    for override in OverridesParser.create().parse_overrides(values):
        OmegaConf.update(config, override.key_or_group, override.value())
    return config


def _has(run: DictConfig, options: Mapping[str, Any]) -> bool:
    given = {key: OmegaConf.select(run, key) for key in options} | {"defense": "+".join(run.defense) or "none"}
    return all(given[key] == wanted for key, wanted in options.items())


def test_settings_in_yaml_are_the_defaults_of_the_classes():
    node = OmegaConf.load(CONFIGS / "train.yaml")
    settings = Settings(audit=Audit())
    assert {key: node[key] for key in SETTINGS} == {key: getattr(settings, key) for key in SETTINGS}
    assert dict(node["audit"]) == vars(Audit())


def test_one_name_four_places():
    """attack=spectral: configs/attack/spectral.yaml, vflbench/attacks/spectral.py, Spectral, a test of that name.

    An attack or defense may be a folder of modules that names its class. Small defenses, and adversaries, may share a test
    file, whose first lines then name each of them.
    """
    for group, room in {"attack": "attacks", "defense": "defenses", "adversary": "protocols/adversaries"}.items():
        names, package = {*CHOICES[group]} - EMPTY - SETS, f"vflbench.{room.replace('/', '.')}"
        files = [file.read_text() for file in (ROOT / "tests" / room).rglob("*.py")]
        tests, heads = "".join(files), "".join(ast.get_docstring(ast.parse(file)) or "" for file in files)
        for choice in (choice for choice in EVERY if choice.group == group and choice.name in names):
            assert re.search(rf"\b{re.escape(package)}\.{choice.name}\b", tests), choice
            named = (
                list((ROOT / "tests" / room).rglob(f"test_{choice.name}.py"))
                or (ROOT / "tests" / room / choice.name).is_dir()
            )
            assert named or (group != "attack" and f"`{choice.name}`" in heads), choice
            class_name = "".join(word.capitalize() for word in choice.name.split("_"))
            assert choice.node["_target_"] == f"{package}.{choice.name}.{class_name}"
            assert "Source: " in (inspect.getdoc(choice.cls) or ""), choice
        for module in (ROOT / "vflbench" / room).glob("*.py"):
            has_one = re.search(rf"^class \w+\({BASES[group].__name__}\)", module.read_text(), re.MULTILINE)
            assert not has_one or module.stem in {"base", "__init__", *names}, module


def ranges(hint: Any) -> Iterator[tuple[type, Range]]:
    """(int or float, range) of each number that a type hint allows."""
    if get_origin(hint) is Annotated:
        number, *extras = get_args(hint)
        yield from ((number, extra) for extra in extras[-1:] if isinstance(extra, Range) and number in (int, float))
    else:
        for member in get_args(hint):
            yield from ranges(member)


def numeric() -> Iterator[tuple[str, Any, type, Range]]:
    """Key, default, int or float, and its range, of every number of every option."""
    for key, cls in [("", Settings), ("audit.", Audit), *((f"{choice.key}.", choice.cls) for choice in EVERY)]:
        hints = get_type_hints(cls, include_extras=True)
        for field in fields(cls) if is_dataclass(cls) else ():
            yield from ((f"{key}{field.name}", field.default, *pair) for pair in ranges(hints[field.name]))


def test_every_number_has_a_range_with_two_ends_and_its_default_inside():
    of_other_kinds = {"range", "shape", "positive"}  # an interval, sizes of a picture, a class of any type
    for choice in EVERY:
        for name, hint in choice.hints().items():
            plain = re.sub(
                r"Annotated\[(int|float), Range\([^]]*\)\]|Literal\[[^]]*\]", "", str(hint).replace("typing.", "")
            )
            assert name in of_other_kinds or not re.search(r"\b(int|float)\b", plain), f"{choice.key}.{name}: {hint}"
    assert len({key for key, *_ in numeric()}) > 150
    for key, default, number, its_range in numeric():
        assert number(its_range.low) == its_range.low, key
        assert -math.inf < its_range.low < its_range.high < math.inf, key
        assert not isinstance(default, int | float) or default in its_range, key


def test_ranges_are_written_as_people_write_them():
    assert str(Range(1e-8, 1e4)) == "from 1e-8 to 10000"
    assert str(Range(1e-9, 1 - 1e-9, zero=True)) == "from 1e-9 to 0.999999999, or 0"
    assert str(Range(1, 10**9, infinity=True)) == "from 1 to 1,000,000,000, or inf"
    assert 0.0 in Range(1e-9, 1.0, zero=True)
    assert all(value not in Range(1e-9, 1.0) for value in (0.0, math.nan, math.inf, -math.inf, 1.0000001, 1e-300))


def test_no_value_of_the_documentation_or_of_an_experiment_is_out_of_range():
    by_key, checked = {key: its_range for key, _, _, its_range in numeric()}, 0
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *CONFIGS.rglob("*.yaml")]:
        text = re.sub(r"`[^`]*: it must be[^`]*`", "", file.read_text())  # what an error says
        for key, values in re.findall(r"\b([a-z_]+(?:\.[a-z_0-9]+)+)[=:] ?([-+0-9.e,]+)", text):
            for value in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", values) if key in by_key else ():
                checked += 1
                assert float(value) in by_key[key], f"{file.name}: {key}={value} is not {by_key[key]}"
    assert checked > 200, checked
