"""Label DP in the YAML shape of MindSpore Federated."""

import re

import pytest
import yaml
from support.warm_command import command

from vflbench.cli.command_line import with_privacy
from vflbench.errors import UserError

SHAPE = "the shape is privacy: {label_dp: {eps: 1.0}}"


def written(folder, content):
    file = folder / "privacy.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(file)


def test_the_documented_yaml_is_label_dp_with_its_eps(tmp_path):
    file = written(tmp_path, "privacy:\n  label_dp:\n    eps: 1.0\n")
    expected = ["defense=label_dp", "defense.label_dp.eps=1.0", "seed=1"]
    for words in (["seed=1", "--privacy", file], [f"--privacy={file}", "seed=1"], ["privacy.label_dp.eps=1.0", "seed=1"]):
        assert with_privacy(words) == expected, words
    assert with_privacy(["+privacy.label_dp.eps=0.5,1"])[1] == "defense.label_dp.eps=0.5,1"
    whole = written(tmp_path, {"role": "leader", "model": {"train_net": {}}, "privacy": {"label_dp": {"eps": 0}}})
    assert with_privacy(["--privacy", whole])[1] == "defense.label_dp.eps=0.0"
    assert with_privacy(["defense=max_norm"]) == ["defense=max_norm"]


def test_the_config_by_the_file_is_that_by_the_options(tmp_path):
    file = written(tmp_path, {"privacy": {"label_dp": {"eps": 0}}})
    ours = command("train", "seed=3", "--cfg", "job", "--privacy", file, cwd=tmp_path)
    theirs = command("train", "seed=3", "defense=label_dp", "defense.label_dp.eps=0.0", "--cfg", "job", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == theirs.stdout
    assert yaml.safe_load(ours.stdout)["defense"]["label_dp"]["eps"] == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"label_dp": {"eps": 1.0}}, SHAPE),
        ({"privacy": {"label_dp": 1.0}}, SHAPE),
        ({"privacy": {"label_dp": {"eps": 1.0, "delta": 0.1}}}, SHAPE),
        ({"privacy": {"label_dp": {"eps": -1}}}, r"privacy\.label_dp\.eps=-1: it must be a finite number, 0 or more"),
        ({"privacy": {"label_dp": {"eps": 1.0}, "gdp": {}}}, SHAPE),
        ("privacy: [", "can.t be read"),
    ],
)
def test_another_shape_is_an_error(tmp_path, content, problem):
    with pytest.raises(UserError, match=problem):
        with_privacy(["--privacy", written(tmp_path, content)])


def test_what_does_not_go_with_the_file_is_an_error(tmp_path):
    file = written(tmp_path, {"privacy": {"label_dp": {"eps": 1.0}}})
    wrong = [
        (["--privacy"], "followed by a YAML file"),
        (["--privacy", str(tmp_path / "none.yaml")], "no such file"),
        (["--privacy", file, "defense=max_norm"], "defense=max_norm"),
        (["--privacy", file, "privacy.label_dp.eps=2"], "give one of them"),
        (["privacy.eps=2"], re.escape("privacy: {label_dp: {eps: 1.0}}")),
        (["+privacy={label_dp:{eps:1}}"], "in a file"),
    ]
    for words, problem in wrong:
        with pytest.raises(UserError, match=problem):
            with_privacy(words)
