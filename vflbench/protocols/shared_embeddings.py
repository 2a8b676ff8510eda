"""Shared embeddings: each party gets the embeddings of all others and the top model, and computes its gradient at home."""

from typing import Any, Literal

from vflbench.defenses.base import LabelDefense, NonLabelDefense, changes
from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import OwnModel
from vflbench.messages.threat import Seat
from vflbench.options import Steps, options
from vflbench.protocols.base import Seating
from vflbench.protocols.sharing_party import SharingParty
from vflbench.protocols.sharing_session import SharingSession
from vflbench.protocols.split_session import SplitParties, SplitSession


@options
class SharedEmbeddings(SplitParties):
    """Compressed VFL: embeddings go to all parties, and each computes its own gradient with the top model that it is sent.

        h_m = C(f_m(x_m)), sent to all others;  theta_0, the top model, sent to all parties
        Q times:  theta_m <- theta_m - step(d l(theta_0, h_1, .., f_m(x_m), .., h_M; y) / d theta_m)
                  theta_0 <- theta_0 - step(d l(theta_0, h_1, .., h_M; y) / d theta_0)

    Gradients never cross. Every party holds the labels of all rows, as the source assumes. So no label can leak, and
    defenses of labels, adversaries and attacks on labels do not apply.

    local_steps: Q, on the same batch. The others' embeddings and, at the parties, theta_0 stay as they were sent; a party's
    own embedding is its present one, not compressed. With Q = 1 and without compression each weight moves as in
    `protocol=split`. links: `server`, where the label party passes every embedding on, or `direct`, where parties send them
    to each other and the label party sends theta_0 alone. If the label party holds features, it sends their embedding as
    well, and trains their network together with its top. Its own copy of the top is never out of date.

    Source: Castiglia, Das, Wang and Patterson, "Compressed-VFL: Communication-efficient learning with vertically partitioned
    data", ICML 2022 (arXiv 2206.08330), Algorithm 1. The source passes all embeddings on to all parties; here none comes
    back to its sender. Top-k there keeps the coordinates of the largest gradients, here those of the largest values.
    """

    labels_shared = True
    party_type = SharingParty

    local_steps: Steps = 1
    links: Literal["server", "direct"] = "server"

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        offered = super().offers(Seat.LABEL)  # every party has what the label party has
        return {Seat.LABEL: offered, Seat.NON_LABEL: offered | {OwnModel}}.get(seat, frozenset())

    def start(self, seating: Seating) -> SharingSession:
        for name in seating.defense().at(LabelDefense):
            problem = "it protects labels and gradients; here every party holds the labels, and no gradient is sent"
            raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name, defense in seating.defense().at(NonLabelDefense).items():
            if changes(defense, NonLabelDefense.learns) or changes(defense, NonLabelDefense.arrange):
                problem = "it judges the gradients that a party gets, and here every party computes its own"
                raise UserError(problem, key="defense", value=name, see="vflbench list defenses")
        for name in seating.adversaries:
            problem = (
                "it cheats in split learning; in shared_embeddings no gradient is sent, and every party holds the labels"
            )
            raise UserError(problem, key="adversary", value=name)
        session = super().start(seating)
        if not isinstance(session, SharingSession):
            raise TypeError(f"a session of shared embeddings, not {type(session).__name__}")
        session.share(self.local_steps, seating, direct=self.links == "direct")
        return session

    def session(self, *parts: Any) -> SplitSession:
        return SharingSession(*parts)
