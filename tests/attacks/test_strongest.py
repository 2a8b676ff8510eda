"""attack=strongest: a named set, of attacks without labels and with 100 known rows, in the last epoch."""

from support.builders import attack_nodes

from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.messages.facts import Gradients, LocalModel
from vflbench.messages.threat import Level, Role


def test_the_set_has_attacks_on_both_messages_at_each_passive_level():
    node = attack_nodes()["strongest"]
    assert node["audit"] == {"epochs": "last"}
    threats = [component(options, f"attack.{name}", Attack).threat for name, options in node["attack"].items()]
    for level in (Level.MESSAGES, Level.LABELS):
        known = [threat.knows for threat in threats if threat.level is level]
        assert {Gradients, LocalModel} <= frozenset().union(*known), level
    levels = {(threat.role, threat.level, threat.known_rows) for threat in threats}
    assert levels == {(Role.NON_LABEL, Level.MESSAGES, 0), (Role.NON_LABEL, Level.LABELS, 100)}
