"""Label DP in the YAML shape of MindSpore Federated."""

import pytest
import yaml
from support.warm_command import command

from vflbench.cli.command_line import with_privacy
from vflbench.errors import UserError


def written(folder, content):
    (folder / "privacy.yaml").write_text(content)
    return str(folder / "privacy.yaml")


def test_the_documented_yaml_is_label_dp_with_its_eps(tmp_path):
    file = written(tmp_path, "privacy:\n  label_dp:\n    eps: 1.0\n")
    for words in (["seed=1", "--privacy", file], [f"--privacy={file}", "seed=1"]):
        assert with_privacy(words) == ["defense=label_dp", "defense.label_dp.eps=1.0", "seed=1"], words
    whole = written(tmp_path, "role: leader\nmodel: {train_net: {}}\nprivacy: {label_dp: {eps: 0}}\n")
    assert with_privacy(["--privacy", whole])[1] == "defense.label_dp.eps=0.0"
    assert with_privacy(["defense=max_norm"]) == ["defense=max_norm"]
    ours = command("train", "seed=3", "--cfg", "job", "--privacy", file, cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert yaml.safe_load(ours.stdout)["defense"]["label_dp"]["eps"] == 0


WRONG = [
    "label_dp: {eps: 1.0}",
    "privacy: {label_dp: 1.0}",
    "privacy: {label_dp: {eps: '1'}}",
    "privacy: {label_dp: {eps: 1.0, delta: 0.1}}",
    "privacy: {label_dp: {eps: 1.0}, gdp: {}}",
]


def test_another_shape_and_what_does_not_go_with_it_are_errors(tmp_path):
    for content, problem in {
        **dict.fromkeys(WRONG, "the shape is privacy: {label_dp"),
        "privacy: [": "can.t be read",
    }.items():
        with pytest.raises(UserError, match=problem):
            with_privacy(["--privacy", written(tmp_path, content)])
    file = written(tmp_path, "privacy: {label_dp: {eps: 1.0}}")
    given = {"--privacy": "followed by a YAML file"}
    given |= {words: f"{words.split()[-1]}; give one of them" for words in ("defense=max_norm", "--privacy none.yaml")}
    for words, problem in given.items():
        with pytest.raises(UserError, match=problem):
            with_privacy(["--privacy", file, *words.split()])
