"""Attacks at their posts: what they may see, their answers, and the truth those are held against."""

import copy
from collections.abc import Mapping

from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.table import LABEL_PARTY
from vflbench.generators import Generators
from vflbench.metrics.leakage import LeakTable
from vflbench.protocols.base import Protocol, Session
from vflbench.transcript import Seat, Transcript


class Auditor:
    """Runs every attack on an audited batch, and lets the metrics compare its answer with the truth."""

    def __init__(self, attacks: Mapping[str, Attack], session: Session, generators: Generators, prior: float):
        self.prior = prior
        self._posts = []
        for name, attack in attacks.items():
            for party in session.seats(attack.seat):
                rng = generators[f"attack/{name}/{party}"]
                self._posts.append((name, copy.deepcopy(attack), party, rng, True))
            if attack.seat is Seat.NON_LABEL:
                rng = generators[f"attack/{name}/{LABEL_PARTY}"]
                self._posts.append((name, copy.deepcopy(attack), LABEL_PARTY, rng, False))

    def attack(self, transcript: Transcript, truth: Tensor, leaks: LeakTable) -> None:
        for name, attack, party, rng, visible in self._posts:
            view = transcript.view(party, attack.knows, rng, visible=visible)
            for layer, scores in attack.infer(view).items():
                leaks.add((name, str(attack.scores), party, layer, visible), scores, truth)


def unmet_attacks(attacks: Mapping[str, Attack], protocol: Protocol, classes: int) -> dict[str, str]:
    """Attack -> why it can't run here."""
    reasons = {name: attack.unmet(protocol.offers(attack.seat), classes) for name, attack in attacks.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}
