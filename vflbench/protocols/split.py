"""Split learning: embeddings up, gradients down."""

from typing import Annotated, Any

from vflbench.options import Range, options
from vflbench.protocols.base import Seating
from vflbench.protocols.pipelined import PipelinedSession
from vflbench.protocols.split_session import SplitParties, SplitSession

__all__ = ["Split", "SplitSession"]


@options
class Split(SplitParties):
    """Non-label parties hold bottom models, and the label party holds the top. A round has one batch, and for each party one
    message in each direction.

    staleness: 1 asks for the embeddings of the next batch while the label party works on the current one. So they come from
    networks that have not yet learned from the current batch (see `PipelinedSession`). 0 waits.

    Source: Vepakomma et al., "Split learning for health: Distributed deep learning without sharing raw patient data", 2018.
    The delay is that of pipelines, as in Harlap et al., "PipeDream: Fast and efficient pipeline parallel DNN training",
    2018, without keeping old weights: the gradient goes back through the network as it is when it arrives.
    """

    staleness: Annotated[int, Range(0, 1)] = 0

    def start(self, seating: Seating) -> SplitSession:
        session = super().start(seating)
        if isinstance(session, PipelinedSession):
            session.refuse_unfit()
        return session

    def session(self, *parts: Any) -> SplitSession:
        return (PipelinedSession if self.staleness else SplitSession)(*parts)
