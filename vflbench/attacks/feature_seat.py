"""Where an attacker on features sits, for attacks that run at either seat."""

from typing import Literal

from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings
from vflbench.messages.threat import Seat, View
from vflbench.options import options


@options
class FeatureSeat:
    """An attacker on features of other parties, at the label party or, in a protocol that gives each party the embeddings of
    the others (`shared_embeddings`), at a party that is not the label party. It attacks all others, and not itself.

    seat: of the attacker. party: at the seat `non_label`, the one that attacks, or `all`, each for itself.
    """

    on_labels = False

    seat: Literal["label", "non_label"] = "label"
    party: str = "all"

    @property
    def place(self) -> Seat:
        return Seat.LABEL if self.seat == "label" else Seat.NON_LABEL

    def refuse_party(self) -> None:
        """Raises UserError where a party is named at a seat that has but one."""
        if self.seat == "label" and self.party != "all":
            raise UserError("it goes with seat=non_label; the label party is one alone", key="party", value=self.party)

    def attacks_from(self, view: View) -> bool:
        """Whether the party of this view is one that attacks. Raises UserError where there is no party of that name."""
        if self.party in ("all", view.party):
            return True
        there = [view.party, *view[Embeddings].received]
        if self.party not in there:
            problem = f"no such party attacks here; there are {', '.join(sorted(there))}, and all"
            raise UserError(problem, key="attack party", value=self.party)
        return False
