"""Views for tests of attacks, made through a transcript as in a run."""

import torch

from vflbench.transcript import Transcript, View
from vflbench.wire import Kind


def view_of(knows, *, embeddings=None, gradients=None, prior=0.25) -> View:
    layers = {**(embeddings or {}), **(gradients or {})}
    transcript = Transcript(torch.arange(len(next(iter(layers.values())))), epoch=0, step=0, prior=prior)
    transcript.computed("a", Kind.EMBEDDING, embeddings or {})
    transcript.computed("a", Kind.GRADIENT, gradients or {})
    return transcript.view("a", knows, torch.Generator().manual_seed(0))
