"""Which attacks a run has by default."""

import yaml
from builders import experiment

from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.places import config_folder
from vflbench.run.setup import MANY_CLASSES, TWO_CLASSES


def test_the_default_attacks_are_replaced_for_more_than_two_classes():
    default = experiment(attacks={"norm": Norm(), "spectral": Spectral()})
    assert default.for_classes(2) is default
    assert default.for_classes(10).attacks == MANY_CLASSES
    for chosen in ({}, {"norm": Norm()}, {"norm": Norm(), "spectral": Spectral(component=1, score="abs")}):
        assert experiment(attacks=chosen).for_classes(10).attacks == chosen


def test_they_are_those_of_the_config():
    nodes = yaml.safe_load((config_folder() / "train.yaml").read_text())["defaults"]
    assert next(node["attack"] for node in nodes if isinstance(node, dict) and "attack" in node) == [*TWO_CLASSES]
    for name, attack in TWO_CLASSES.items():
        (node,) = yaml.safe_load((config_folder() / "attack" / f"{name}.yaml").read_text()).values()
        assert type(attack)(**{key: value for key, value in node.items() if key != "_target_"}) == attack
