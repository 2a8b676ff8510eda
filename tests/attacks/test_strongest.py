"""attack=strongest: a named set, of attacks without labels and with 100 known rows, in the last epoch."""

from omegaconf import OmegaConf

from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.files import config_folder
from vflbench.messages.facts import Gradients, LocalModel
from vflbench.messages.threat import Level, Role


def test_the_set_has_attacks_on_both_messages_at_each_passive_level():
    node = OmegaConf.to_container(OmegaConf.load(config_folder() / "attack" / "strongest.yaml"))
    assert node["audit"] == {"epochs": "last"}
    attacks = {name: component(options, f"attack.{name}", Attack) for name, options in node["attack"].items()}
    for level in (Level.MESSAGES, Level.LABELS):
        known = [attack.threat.knows for attack in attacks.values() if attack.threat.level is level]
        assert {Gradients, LocalModel} <= frozenset().union(*known), level
    assert {attack.threat.level for attack in attacks.values()} == {Level.MESSAGES, Level.LABELS}
    assert {attack.threat.known_rows for attack in attacks.values()} == {0, 100}
    assert {attack.threat.role for attack in attacks.values()} == {Role.NON_LABEL}
