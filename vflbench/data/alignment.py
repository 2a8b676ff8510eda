"""Which rows all parties share, by identifiers that are compared as texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY
from vflbench.errors import UserError, shown

KEY = "dataset.party_files"


@dataclass(frozen=True)
class Alignment:
    """What the label party decides, and what each party gets of it: its own positions, and what each row is for.

    positions: party -> (m,) int64, where the m shared rows stand among the party's own, in the order of the label party's.
    role: (m,) uint8. facts: for the manifest. notes: lines to print.
    """

    positions: Mapping[str, Tensor]
    role: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.role)


def positions_of_shared(
    ids: Mapping[str, Sequence[str]], most: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any], tuple[str, ...]]:
    """Party -> (m,) positions of the rows whose identifier every party has; facts, and lines to print.

    ids: party -> its identifiers, the label party's among them; '007' is not '7', nor is ' 7'. most: use the first so many.

    Raises UserError for what is no list of different texts, and where nothing is shared.
    """
    for party, own in ids.items():
        check_ids(party, own)
    places = {party: {text: place for place, text in enumerate(own)} for party, own in ids.items() if party != LABEL_PARTY}
    order = [place for place, text in enumerate(ids[LABEL_PARTY]) if all(text in other for other in places.values())]
    count = len(order)
    if not count:
        example = {party: shown(own[0], 30) for party, own in ids.items() if own}
        problem = "the parties share no row; identifiers are compared as texts, and the first ones are"
        raise UserError(f"{problem} {', '.join(f'{text!r} ({party})' for party, text in example.items())}", key="dataset.id")
    shared = [ids[LABEL_PARTY][place] for place in order[:most]]
    positions = {party: torch.tensor([of[text] for text in shared], dtype=torch.int64) for party, of in places.items()}
    positions[LABEL_PARTY] = torch.tensor(order[:most], dtype=torch.int64)
    rows = {party: {"rows": len(own), "shared": count} for party, own in ids.items()}
    left_out = {party: len(own) - count for party, own in ids.items() if len(own) > count}
    notes: tuple[str, ...] = ()
    if left_out:
        listed = ", ".join(f"{number:,} of {party}" for party, number in left_out.items())
        notes = (f"the parties share {count:,} rows; rows that another party does not have are left out: {listed}",)
    return positions, {"party_rows": rows}, notes


def check_ids(party: str, ids: object) -> None:
    """Raises UserError for anything but a list of different texts that are not empty: it may have come from elsewhere."""
    if not isinstance(ids, list) or not all(isinstance(text, str) and text for text in ids):
        raise UserError(f"party {party} must give a list of texts, none of them empty", key="dataset.id")
    if len(set(ids)) < len(ids):
        text, count = Counter(ids).most_common(1)[0]
        raise UserError(f"party {party} has the identifier {shown(text, 60)!r} {count} times", key="dataset.id")
