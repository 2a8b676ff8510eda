"""Every experiment states its source and its cost, and its published values can be read."""

import json
import math

import pytest

from vflbench.cli.help import listing
from vflbench.places import config_folder
from vflbench.report.published import read_experiment, read_experiments


@pytest.fixture(scope="module")
def experiments():
    return read_experiments()


def test_every_experiment_states_what_it_shows_its_source_and_its_cost(experiments):
    for name, experiment in experiments.items():
        assert experiment.does, name
        assert experiment.source, name
        assert experiment.minutes > 0, f"{name}: # Cost: N minutes: ..."
        assert all(value.number is None or math.isfinite(value.number) for value in experiment.values), name


def test_what_is_published_has_its_experiment_and_its_data(experiments):
    beside = json.loads((config_folder() / "experiment" / "published_values.json").read_text())
    assert {name for name, e in experiments.items() if e.data} == {*beside} & {*experiments}
    assert experiments["bytedance_sumkl"].values[0].number == 0.04


def test_yaml_and_json_are_read_as_one(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "# @package _global_\n# Shows this. And that.\n# Source: somebody, 2022.\n# Cost: 1.5 minutes: 6 runs.\n"
        "defaults:\n  - override /dataset: mnist\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 0,1\n"
    )
    (tmp_path / "published_values.json").write_text(
        '{"mine": {"data": "MNIST", "reproduce": ["dataset.path={data}/x"], "values": [{"what": "a", "number": null}]}}'
    )
    mine = read_experiment(file)
    assert (mine.does, mine.source, mine.minutes) == ("Shows this. And that.", "somebody, 2022.", 1.5)
    assert (mine.dataset, mine.is_sweep, dict(mine.sweep)) == ("mnist", True, {"seed": "0,1"})
    assert (mine.reproduce, mine.values[0].number) == (["dataset.path={data}/x"], None)


def test_the_list_of_experiments_has_source_and_cost(experiments):
    text = " ".join(listing([config_folder()], "experiments").split())
    for name, experiment in experiments.items():
        assert f"({experiment.source}) [{experiment.cost}]" in text, name
