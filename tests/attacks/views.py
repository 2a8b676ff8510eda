"""Views for tests of attacks, made through a transcript as in a run."""

import torch

from vflbench.transcript import Transcript, View
from vflbench.wire import Kind


def view_of(knows, *, embeddings=None, gradients=None, prior=0.25, hints=(), ids=None) -> View:
    layers = {**(embeddings or {}), **(gradients or {})}
    ids = torch.arange(len(next(iter(layers.values())))) if ids is None else ids
    transcript = Transcript(ids, epoch=0, step=0, prior=prior, hints=torch.tensor(hints, dtype=torch.int64))
    transcript.computed("a", Kind.EMBEDDING, embeddings or {})
    transcript.computed("a", Kind.GRADIENT, gradients or {})
    return transcript.view("a", knows, torch.Generator().manual_seed(0), hints=len(hints))
