"""Attacks at their posts: what they may see, their answers, and the truth those are held against."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.table import LABEL_PARTY, VerticalTable
from vflbench.generators import Generators
from vflbench.metrics.leakage import LeakTable
from vflbench.protocols.base import Protocol, Session
from vflbench.state import restore_state, state_of
from vflbench.transcript import Seat, Transcript
from vflbench.wire import Kind


class Auditor:
    """Runs every attack on an audited batch, and lets the metrics compare its answer with the truth."""

    def __init__(self, attacks: Mapping[str, Attack], session: Session, generators: Generators, train: VerticalTable):
        device = train.ids.device
        self._prior = train.positive_ratio
        # Positions in a file that is sorted by label would be the labels: attackers see other names for the rows.
        names = torch.randperm(int(train.ids.max()) + 1, generator=generators["row names"])
        self._row_names = names.to(device)
        self._posts = []
        for name, attack in attacks.items():
            posts = [(party, True) for party in session.seats(attack.seat)]
            if attack.seat is Seat.NON_LABEL and attack.scores is Kind.EMBEDDING:
                posts.append((LABEL_PARTY, False))
            for party, visible in posts:
                rng = generators.on(device, f"attack/{name}/{party}")
                self._posts.append((name, copy.deepcopy(attack), party, rng, visible))

    def transcript(self, batch: VerticalTable, epoch: int, step: int) -> Transcript:
        """An empty transcript for a batch that is about to be trained on."""
        return Transcript(self._row_names[batch.ids], epoch, step, self._prior)

    def attack(self, transcript: Transcript, truth: Tensor, leaks: LeakTable) -> None:
        for name, attack, party, rng, visible in self._posts:
            view = transcript.view(party, attack.knows, rng, visible=visible)
            for layer, scores in attack.infer(view).items():
                leaks.add((name, str(attack.scores), party, layer, visible), scores, truth)

    def state(self) -> list[list[Any]]:
        """[attack, party, what it keeps] of every post."""
        return [[name, party, state_of(attack)] for name, attack, party, _, _ in self._posts]

    def restore(self, state: list[list[Any]]) -> None:
        for (_, attack, _, _, _), (_, _, own) in zip(self._posts, state, strict=True):
            restore_state(attack, own)


def unmet_attacks(attacks: Mapping[str, Attack], protocol: Protocol, classes: int) -> dict[str, str]:
    """Attack -> why it can't run here."""
    reasons = {name: attack.unmet(protocol.offers(attack.seat), classes) for name, attack in attacks.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}
