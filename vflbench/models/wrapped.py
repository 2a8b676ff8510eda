"""Torch modules of a user's own as the two halves of a model."""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.base import WIDE, Bottom, TopModel, evaluating

CUT = "cut"
"""The name of the cut layer where a module returns its output alone."""


@contextmanager
def drawing_from(rng: torch.Generator, *, advance: bool = False) -> Iterator[None]:
    """Inside, torch's own generator of that device draws what `rng` would draw; afterwards it is as it was.

    For modules that torch initialises by itself, and for those that draw while they compute, such as dropout.
    advance: whether `rng` goes on after what was drawn; otherwise it stays as it was.
    """
    if rng.device.type == "cpu":
        default = torch.default_generator
    else:
        index = rng.device.index
        default = torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]
    before = default.get_state()
    default.set_state(rng.get_state())
    try:
        yield
    finally:
        if advance:
            rng.set_state(default.get_state())
        default.set_state(before)


@runtime_checkable
class Embedding(Protocol):
    """A module that reads vectors for categories: see `Bottom.tables` and `Bottom.from_vectors`."""

    def tables(self) -> tuple[Tensor, ...]: ...

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]: ...


class WrappedBottom(Bottom):
    """Any module as a party's bottom model.

    module: called with (numeric (n, k), categorical (n, c)), or with the numeric columns alone if it takes one argument. It
    returns the embedding (n, d), or layer -> (n, width), of which the last one is the cut layer. A part of it named `wide`
    (n, outputs) is added to the logits. One that embeds categorical columns may have `tables` and `from_vectors`, as in
    `Bottom`. outputs: of the top model. rng: what the module draws from while it trains.
    """

    def __init__(
        self, module: nn.Module, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ):
        super().__init__()
        self.module, self.rng = copy.deepcopy(module), rng  # parties share nothing but messages
        self._takes_categories = _arguments(module.forward) > 1
        if cardinalities and not self._takes_categories:
            problem = (
                f"{type(module).__name__} takes one argument, the numeric columns, and a party holds {len(cardinalities)} "
                "categorical ones; let its forward take (numeric, categorical)"
            )
            raise UserError(problem, key="model", see="vflbench list models")
        sample = self._probe(len(numeric), len(cardinalities), outputs)
        self.layers = tuple(layer for layer in sample if layer != WIDE)
        self.sends = (self.cut, WIDE) if WIDE in sample else (self.cut,)
        self.cut_width = sample[self.cut].shape[1]

    def _probe(self, numeric: int, categorical: int, outputs: int) -> dict[str, Tensor]:
        """The layers of two rows of zeros, in evaluation mode, so that nothing is learned from them."""
        name = self.module._get_name()
        where = f"with {numeric} numeric and {categorical} categorical columns"
        rows = torch.zeros(2, numeric), torch.zeros(2, categorical, dtype=torch.int32)
        with evaluating(self), _explained(f"{name} fails for a party {where}"):
            layers = self(*rows)
        if not set(layers) - {WIDE}:
            raise UserError(f"{name} returns no embedding", key="model")
        for layer, values in layers.items():
            if not isinstance(layer, str):
                raise UserError(f"{name} must name its layers by text, and names one {layer!r}", key="model")
            if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != 2 or not values.shape[1]:
                problem = f"layer {layer} of {name} must be (rows, width), with one row for each row that it is given"
                raise UserError(f"{problem}; it is {_shape(values)} for 2 rows", key="model")
        if WIDE in layers and layers[WIDE].shape[1] != outputs:
            problem = f"layer {WIDE} of {name} is added to the logits and must be (rows, {outputs})"
            raise UserError(f"{problem}; it is {_shape(layers[WIDE])} for 2 rows", key="model")
        return layers

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        with drawing_from(self.rng, advance=self.training):
            output = self.module(numeric, categorical) if self._takes_categories else self.module(numeric)
        return dict(output) if isinstance(output, Mapping) else {CUT: output}

    def tables(self) -> tuple[Tensor, ...]:
        return self.module.tables() if isinstance(self.module, Embedding) else ()

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        if not isinstance(self.module, Embedding):
            return super().from_vectors(numeric, vectors)
        with drawing_from(self.rng, advance=self.training):
            return self.module.from_vectors(numeric, vectors)


class WrappedTop(TopModel):
    """Any module as the label party's top model.

    module: called with the concatenated embeddings (n, inputs). It returns the logits (n, outputs), or a pair of activations
    layer -> (n, width) and logits. rng: what the module draws from while it trains. layers: the names of its activations.
    """

    def __init__(self, module: nn.Module, inputs: int, outputs: int, rng: torch.Generator):
        super().__init__()
        self.module, self.rng = copy.deepcopy(module), rng
        name = module._get_name()
        with evaluating(self), _explained(f"{name} fails for embeddings (rows, {inputs})"):
            activations, logits = self([torch.zeros(2, inputs)], [])
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (2, outputs):
            problem = f"{name} must return logits (rows, {outputs}), or a pair of activations and logits"
            raise UserError(f"{problem}; the logits are {_shape(logits)} for 2 rows", key="model")
        self.layers = tuple(activations)

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        with drawing_from(self.rng, advance=self.training):
            output = self.module(torch.cat(list(embeddings), dim=1))
        activations, logits = output if isinstance(output, tuple) else ({}, output)
        return dict(activations), sum(wide, start=logits)


def as_bottom(
    module: nn.Module, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
) -> Bottom:
    """A bottom as it is; another module wrapped."""
    return module if isinstance(module, Bottom) else WrappedBottom(module, numeric, cardinalities, outputs, rng)


def as_top(module: nn.Module, inputs: int, outputs: int, rng: torch.Generator) -> TopModel:
    """A top as it is; another module wrapped."""
    return module if isinstance(module, TopModel) else WrappedTop(module, inputs, outputs, rng)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """An error of a user's module, such as of a shape that does not fit, as a paragraph. what: what fails."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # whatever code of a user's own does
        raise UserError(f"{what}: {type(error).__name__}: {error}", key="model", see="vflbench list models") from error


def _shape(values: object) -> str:
    return str(tuple(values.shape)) if isinstance(values, Tensor) else type(values).__name__


def _arguments(forward: Callable[..., object]) -> int:
    """How many positional arguments it takes; many for *args."""
    kinds = [parameter.kind for parameter in inspect.signature(forward).parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return 2 if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in positional for kind in kinds)
