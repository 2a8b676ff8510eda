"""Attacks at their posts: what they may see, their answers, and the truth those are held against."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.rows import EncodedRows
from vflbench.data.table import LABEL_PARTY, VerticalTable
from vflbench.generators import Generators
from vflbench.metrics.leakage import LeakTable
from vflbench.protocols.base import Protocol, Session
from vflbench.state import restore_state, state_of
from vflbench.transcript import Seat, Transcript
from vflbench.wire import Kind


class Auditor:
    """Runs every attack on an audited batch, and lets the metrics compare its answer with the truth."""

    def __init__(self, attacks: Mapping[str, Attack], session: Session, generators: Generators, train: EncodedRows):
        self._prior = train.positive_ratio
        # Positions in a file that is sorted by label would be the labels: attackers see other names for the rows.
        self._row_key = int(torch.randint(2**62, (), generator=generators["row names"]))
        self._posts = []
        for name, attack in attacks.items():
            posts = [(party, True) for party in session.seats(attack.seat)]
            if attack.seat is Seat.NON_LABEL and attack.scores is Kind.EMBEDDING:
                posts.append((LABEL_PARTY, False))
            for party, visible in posts:
                rng = generators.on(train.device, f"attack/{name}/{party}")
                self._posts.append((name, copy.deepcopy(attack), party, rng, visible))

    def transcript(self, batch: VerticalTable, epoch: int, step: int) -> Transcript:
        """An empty transcript for a batch that is about to be trained on."""
        return Transcript(row_names(batch.ids, self._row_key), epoch, step, self._prior)

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


def row_names(ids: Tensor, key: int) -> Tensor:
    """Names that tell rows apart and nothing else: a bijection of the 64-bit integers, chosen by `key`.

    SplitMix64's mixing: xor-shifts and multiplications by odd numbers, each of which can be undone.
    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """

    def mixed(x: Tensor, shift: int) -> Tensor:
        return x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))  # a shift that brings in zeros

    x = mixed(ids ^ key, 30) * _signed(0xBF58476D1CE4E5B9)
    x = mixed(x, 27) * _signed(0x94D049BB133111EB)
    return mixed(x, 31) ^ key


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def unmet_attacks(attacks: Mapping[str, Attack], protocol: Protocol, classes: int) -> dict[str, str]:
    """Attack -> why it can't run here."""
    reasons = {name: attack.unmet(protocol.offers(attack.seat), classes) for name, attack in attacks.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}
