"""Label DP in the YAML shape of MindSpore Federated."""

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
    for words in (["seed=1", "--privacy", file], [f"--privacy={file}", "seed=1"]):
        assert with_privacy(words) == ["defense=label_dp", "defense.label_dp.eps=1.0", "seed=1"], words
    whole = written(tmp_path, {"role": "leader", "model": {"train_net": {}}, "privacy": {"label_dp": {"eps": 0}}})
    assert with_privacy(["--privacy", whole])[1] == "defense.label_dp.eps=0.0"
    assert with_privacy(["defense=max_norm"]) == ["defense=max_norm"]
    ours = command("train", "seed=3", "--cfg", "job", "--privacy", file, cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert yaml.safe_load(ours.stdout)["defense"]["label_dp"]["eps"] == 0


@pytest.mark.parametrize(
    ("content", "others", "problem"),
    [
        ({"label_dp": {"eps": 1.0}}, [], SHAPE),
        ({"privacy": {"label_dp": 1.0}}, [], SHAPE),
        ({"privacy": {"label_dp": {"eps": "1"}}}, [], SHAPE),
        ({"privacy": {"label_dp": {"eps": 1.0, "delta": 0.1}}}, [], SHAPE),
        ({"privacy": {"label_dp": {"eps": 1.0}, "gdp": {}}}, [], SHAPE),
        ("privacy: [", [], "can.t be read"),
        (None, ["--privacy"], "followed by a YAML file"),
        (None, ["defense=max_norm"], "defense=max_norm; give one of them"),
        (None, ["--privacy", "none.yaml"], "none.yaml; give one of them"),
    ],
)
def test_another_shape_and_what_does_not_go_with_it_are_errors(tmp_path, content, others, problem):
    file = written(tmp_path, content or {"privacy": {"label_dp": {"eps": 1.0}}})
    with pytest.raises(UserError, match=problem):
        with_privacy(["--privacy", file, *others])
