"""Torch modules of a user's own as the two halves of a model."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.base import WIDE, Bottom, TopModel

CUT = "cut"
"""The name of the cut layer where a module returns its output alone."""


@contextmanager
def drawing_from(rng: torch.Generator) -> Iterator[None]:
    """Inside, modules that torch initialises by itself draw from a copy of `rng`; torch's own generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        if rng.device.type == "cpu":
            torch.default_generator.set_state(rng.get_state())
        yield


class WrappedBottom(Bottom):
    """Any module as a party's bottom model.

    module: called with (numeric (n, k), categorical (n, c)), or with the numeric columns alone if it takes one argument. It
    returns the embedding (n, d), or layer -> (n, width), of which the last one is the cut layer. A part of it named `wide`
    (n, outputs) is added to the logits.
    """

    def __init__(self, module: nn.Module, numeric: Sequence[str], cardinalities: Sequence[int]):
        super().__init__()
        self.module = module
        self._takes_categories = _arguments(module.forward) > 1
        if cardinalities and not self._takes_categories:
            problem = (
                f"{type(module).__name__} takes one argument, the numeric columns, and a party holds {len(cardinalities)} "
                "categorical ones; let its forward take (numeric, categorical)"
            )
            raise UserError(problem, key="model", see="vflbench list models")
        sample = self._probe(torch.zeros(2, len(numeric)), torch.zeros(2, len(cardinalities), dtype=torch.int32))
        deep = [layer for layer in sample if layer != WIDE]
        if not deep:
            raise UserError(f"{type(module).__name__} returns no embedding", key="model")
        self.layers = tuple(deep)
        self.sends = (self.cut, WIDE) if WIDE in sample else (self.cut,)
        self.cut_width = sample[self.cut].shape[1]

    def _probe(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        """The layers of two rows of zeros, in evaluation mode, so that nothing is learned from them."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            layers = self(numeric, categorical)
        self.train(was_training)
        for layer, values in layers.items():
            if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != 2:
                name = type(self.module).__name__
                problem = f"layer {layer} of {name} must be (rows, width), with one row for each row that it is given"
                raise UserError(problem, key="model")
        return layers

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        output = self.module(numeric, categorical) if self._takes_categories else self.module(numeric)
        return dict(output) if isinstance(output, Mapping) else {CUT: output}


class WrappedTop(TopModel):
    """Any module as the label party's top model.

    module: called with the concatenated embeddings (n, inputs). It returns the logits (n, outputs), or a pair of activations
    layer -> (n, width) and logits.
    """

    def __init__(self, module: nn.Module, inputs: int, outputs: int):
        super().__init__()
        self.module = module
        was_training = module.training
        module.eval()
        with torch.no_grad():
            _, logits = self([torch.zeros(2, inputs)], [])
        module.train(was_training)
        if tuple(logits.shape) != (2, outputs):
            name, shape = type(module).__name__, tuple(logits.shape)
            raise UserError(f"{name} must return logits (rows, {outputs}), and returns {shape} for 2 rows", key="model")

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        output = self.module(torch.cat(list(embeddings), dim=1))
        activations, logits = output if isinstance(output, tuple) else ({}, output)
        return dict(activations), sum(wide, start=logits)


def as_bottom(module: nn.Module, numeric: Sequence[str], cardinalities: Sequence[int]) -> Bottom:
    """A bottom as it is; another module wrapped."""
    return module if isinstance(module, Bottom) else WrappedBottom(module, numeric, cardinalities)


def as_top(module: nn.Module, inputs: int, outputs: int) -> TopModel:
    """A top as it is; another module wrapped."""
    return module if isinstance(module, TopModel) else WrappedTop(module, inputs, outputs)


def _arguments(forward: Callable[..., object]) -> int:
    """How many positional arguments it takes; many for *args."""
    kinds = [parameter.kind for parameter in inspect.signature(forward).parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return 2 if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in positional for kind in kinds)
