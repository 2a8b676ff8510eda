"""Views for tests of attacks, made through a transcript as in a run."""

import torch

from vflbench.messages.transcript import OwnFeatures, Transcript, View
from vflbench.messages.wire import Kind


def view_of(
    knows,
    *,
    embeddings=None,
    gradients=None,
    prior=0.25,
    ratios=None,
    hints=(),
    class_hints=(),
    numeric=None,
    categorical=None,
    ids=None,
) -> View:
    """prior: of two classes; ratios: of any number. numeric, categorical: the party's columns."""
    layers = {**(embeddings or {}), **(gradients or {})}
    blocks = [*layers.values(), *(block for block in (numeric, categorical) if block is not None)]
    rows = len(blocks[0])
    features = OwnFeatures(
        torch.empty(rows, 0) if numeric is None else numeric,
        torch.empty(rows, 0, dtype=torch.int32) if categorical is None else categorical,
    )
    transcript = Transcript(
        torch.arange(rows) if ids is None else ids,
        epoch=0,
        step=0,
        class_ratios=ratios or (1 - prior, prior),
        hints=torch.tensor(hints, dtype=torch.int64),
        class_hints=torch.tensor(class_hints, dtype=torch.int64),
        features={"a": features},
    )
    transcript.computed("a", Kind.EMBEDDING, embeddings or {})
    transcript.computed("a", Kind.GRADIENT, gradients or {})
    return transcript.view("a", knows, torch.Generator().manual_seed(0), hints=len(hints))
