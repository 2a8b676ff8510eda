"""Which attacks can't run on what a protocol, or a recording, offers, or have no score, and why. It loads no torch."""

from collections.abc import Callable, Collection, Mapping, Sequence

from vflbench.attacks.base import Attack
from vflbench.messages.fact import Fact
from vflbench.messages.facts import BatchHints, ClassHints, ClassShares, Known, KnownColumn
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.threat import Seat

RUN_FACTS: Mapping[Seat, frozenset[type[Fact]]] = {
    Seat.NON_LABEL: frozenset({ClassShares, Known, BatchHints, ClassHints, Auxiliary}),
    Seat.LABEL: frozenset({ClassShares, Auxiliary, KnownColumn}),
    Seat.PARTICIPANT: frozenset({ClassShares}),
}
"""The facts that the run supplies to an attacker at each seat, beside those of the protocol."""


Offers = Callable[[Seat], frozenset[type[Fact]]]


def unmet_attacks(
    attacks: Mapping[str, Attack],
    offers: Offers,
    classes: int,
    *,
    cheating: Collection[str] = (),
    where: str = "this protocol",
    labels_shared: bool = False,
) -> dict[str, str]:
    """Attack -> why it can't run here. offers: facts that the protocol, or a recording, has for a seat. labels_shared:
    whether every party holds the labels.
    """
    reasons: dict[str, str] = {}
    for name, attack in attacks.items():
        seat = attack.threat.seat
        offered = offers(seat)
        if attack.threat.active and not cheating:
            reasons[name] = "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)"
            continue
        reason = attack.unmet(offered | RUN_FACTS[seat], classes, where)
        if labels_shared and attack.on_labels and seat is Seat.NON_LABEL:
            reason = f"it infers labels, and every party holds the labels in {where}"
        if reason is not None and not offered:
            reason = f"it attacks at {seat.place}, of whom there is nothing in {where}"
        if reason is not None:
            reasons[name] = reason
    return reasons


def unanswered(attacks: Sequence[str], scored: Collection[str]) -> dict[str, str]:
    """Attack -> why it has no score, for those that were asked and have none."""
    reason = "it gave no answer that counts: none at all, or about rows that are known, are canaries or are of one class"
    return dict.fromkeys((name for name in attacks if name not in scored), reason)
