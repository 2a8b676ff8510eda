"""Feature-space hijacking (FSHA): a party's embeddings, read by the decoder towards which it was driven."""

import math

from vflbench.attacks.base import Attack, RebuiltRows
from vflbench.messages.facts import Embeddings, PeerDecoders
from vflbench.messages.threat import Role, Threat, View
from vflbench.options import Rows, options


@options
class Fsha(Attack):
    """Read the received embeddings with a decoder (FSHA): x_i = q(z_i). The label party trained it while it sent gradients
    of its own making.

    It needs adversary=fsha, which trains q and drives z into the space that q reads. Numeric columns are numbers in [0,
    1]; of a categorical column the answer is the likeliest id among those of the auxiliary rows. There is no answer before
    the first gradient of that adversary.

    rows: rows of each audited batch that are rebuilt, from the first.

    Source: Pasquini, Ateniese and Bernaschi, "Unleashing the tiger: inference attacks on split learning", CCS 2021, arXiv
    2012.02670.
    """

    max_classes = math.inf
    threat = Threat(Role.LABEL, {Embeddings, PeerDecoders}, active=True)

    rows: Rows = 32

    def batch(self, view: View) -> RebuiltRows | None:
        """Every other party's columns of the first rows."""
        decoders, received = view[PeerDecoders].of, view[Embeddings].received
        if not decoders:
            return None
        first = {party: {layer: h[: self.rows] for layer, h in layers.items()} for party, layers in received.items()}
        features = {party: decoders[party](layers) for party, layers in first.items()}
        return RebuiltRows(view.ids[: self.rows], next(iter(next(iter(first.values())))), features)
