"""Modules of a user's own as bottom and top: called with what they expect, and their answers checked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.base import WIDE
from vflbench.models.layers import ColumnEmbedding
from vflbench.models.taps import Taps
from vflbench.models.wrapped import CUT

TOP = "top."
"""What the names of layers of the top begin with, so that none is that of a bottom's."""
LOGITS = "logits"

_LONGEST = 600  # characters of somebody else's error


def path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


@contextmanager
def explained(key: str, cls: type, doing: str, hint: Callable[[BaseException], str] = lambda _: "") -> Iterator[None]:
    """An error of a user's module as a paragraph. doing: the call that fails."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:  # whatever code of a user's own does
        if "allocate memory" in str(error):
            raise
        text = " ".join(str(error).split())[:_LONGEST]
        if "primitive descriptor" in text:
            text = f"{text.rstrip('.')}; torch may lack this layer in bfloat16 on this processor: try precision=float32"
        raise UserError(
            f"{doing} fails: {type(error).__name__}: {text}{hint(error)}", key=key, value=path_of(cls)
        ) from error


class OwnBottom(nn.Module):
    """A user's module as a bottom: numeric and categorical columns -> x -> layers, of which the last is the cut.

    reshape: (n, k) -> the x that the module gets. categories: how categorical columns come in. layers: the submodules that
    are read, as they are known; `widths` has the layers and widths that every call must return, once they are known.
    """

    def __init__(
        self,
        module: nn.Module,
        reshape: Callable[[Tensor], Tensor],
        categories: str,
        embedding: ColumnEmbedding | None,
        cardinalities: Sequence[int],
        taps: Taps,
    ):
        super().__init__()
        self.module, self.embedding = module, embedding
        self.reshape, self.categories, self.cardinalities, self.taps = reshape, categories, list(cardinalities), taps
        self.widths: dict[str, int] = {}

    def _get_name(self) -> str:
        return type(self.module).__name__

    def refusal(self, problem: str) -> UserError:
        return UserError(problem, key="model.bottom", value=path_of(type(self.module)))

    def forward(self, numeric: Tensor, categorical: Tensor) -> dict[str, Tensor]:
        return self.layers(*self.inputs(numeric, categorical))

    def layers(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The inner layers that are read, and then the module's own."""
        answer, read = self.answer(*inputs)
        if missing := [name for name in self.taps.names if name not in read]:
            raise self.refusal(
                f"its layer {missing[0]} put out numbers for each row when the run began, and doesn't for this batch; list "
                "the layers that always do under model.layers"
            )
        layers = {**{inner_name(name): read[name] for name in self.taps.names}, **answer}
        widths = {layer: values.shape[1] for layer, values in layers.items()}
        if widths != self.widths:
            raise self.refusal(f"its layers had the widths {self.widths} when the run began, and now have {widths}")
        return layers

    def answer(self, *inputs: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The module's layers, and what was read on the way. inputs: what its forward gets."""
        with explained("model.bottom", type(self.module), f"forward({described(inputs)})", _meant_another_width):
            output, read = self.taps.call(self.module, len(inputs[0]), *inputs)
        return self.named(output, len(inputs[0])), read

    def inputs(self, numeric: Tensor, categorical: Tensor) -> tuple[Tensor, ...]:
        """What the module's forward gets: x, and with categories=ids the ids (n, c) int64."""
        if categorical.shape[1] != len(self.cardinalities):
            problem = "an attack looks for features without naming categories, which goes with embed only"
            raise UserError(problem, key="model.categories", value=self.categories)
        if self.categories == "ids":
            return self.reshape(numeric), categorical.long()
        if not self.cardinalities:
            return (self.reshape(numeric),)
        if self.embedding is None:
            return (self.reshape(torch.cat([numeric, categorical.to(numeric.dtype)], dim=1)),)
        return (self.reshape(torch.cat([numeric, self.embedding(categorical).flatten(1)], dim=1)),)

    def tables(self) -> tuple[Tensor, ...]:
        return () if self.embedding is None else self.embedding.values().split(self.cardinalities)

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> dict[str, Tensor]:
        return self.layers(self.reshape(torch.cat([numeric, vectors.flatten(1)], dim=1)))

    def named(self, output: Any, rows: int) -> dict[str, Tensor]:
        """Layer -> (rows, width) of the module's output."""
        wanted = (
            "it must return the embedding (rows, d), or a dict of layers (rows, width) of which the last is the embedding"
        )
        layers = dict(output) if isinstance(output, Mapping) else {CUT: output}
        if not set(layers) - {WIDE}:
            raise self.refusal(f"{wanted}; it returned {f'{WIDE} alone' if layers else 'an empty dict'}")
        for layer, values in layers.items():
            if not isinstance(layer, str) or not layer:
                raise self.refusal(f"{wanted}; it named a layer {layer!r}, and a name is a text")
            fits = isinstance(values, Tensor) and values.is_floating_point() and values.layout is torch.strided
            if not fits or values.ndim != 2 or len(values) != rows or not values.shape[1]:
                came = shape_of(output) if layer == CUT and layers[CUT] is output else f"{layer}: {shape_of(values)}"
                raise self.refusal(f"{wanted}; for {rows} rows it returned {came}")
        return layers


class OwnTop(nn.Module):
    """A user's module as a top: the joined embeddings (n, sum of widths) -> activations and logits (n, outputs)."""

    def __init__(self, module: nn.Module, widths: Sequence[int], outputs: int, taps: Taps):
        super().__init__()
        self.module, self.widths, self.outputs, self.taps = module, list(widths), outputs, taps

    def _get_name(self) -> str:
        return type(self.module).__name__

    def refusal(self, problem: str) -> UserError:
        return UserError(problem, key="model.top", value=path_of(type(self.module)))

    def forward(self, joined: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        answer, read = self.answer(joined)
        return {f"{TOP}{name}": read[name] for name in self.taps.names if name in read}, answer[LOGITS]

    def answer(self, joined: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The logits, and what was read on the way."""
        rows, ends = len(joined), accumulate(self.widths)
        embeddings = [joined[:, end - width : end].contiguous() for end, width in zip(ends, self.widths, strict=True)]
        doing = f"forward(embeddings) with the list [{described(embeddings)}]"
        with explained("model.top", type(self.module), doing, _meant_a_tensor):
            output, read = self.taps.call(self.module, rows, embeddings)
        if isinstance(output, Tensor) and tuple(output.shape) == (rows,) and self.outputs == 1:
            output = output[:, None]
        if not isinstance(output, Tensor) or tuple(output.shape) != (rows, self.outputs) or not output.is_floating_point():
            also = f" or ({rows},)" if self.outputs == 1 else ""
            classes = "two classes" if self.outputs == 1 else f"{self.outputs} classes"
            problem = f"it must return the logits of {classes}, ({rows}, {self.outputs}){also} for {rows} rows"
            raise self.refusal(f"{problem}; it returned {shape_of(output)}")
        return {LOGITS: output}, read


def inner_name(submodule: str) -> str:
    """The name of a bottom's inner layer, which is never one of those that cross."""
    return f"inner.{submodule}" if submodule in (CUT, WIDE) else submodule


def described(inputs: Sequence[Tensor]) -> str:
    return ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in inputs)


def shape_of(values: object) -> str:
    """In words, without the values."""
    if isinstance(values, Tensor):
        kind = "" if values.is_floating_point() else f" of {str(values.dtype).removeprefix('torch.')}"
        return f"a {'' if values.layout is torch.strided else 'sparse '}tensor {tuple(values.shape)}{kind}"
    if isinstance(values, tuple | list):
        return f"a {type(values).__name__} of {len(values)} ({', '.join(map(shape_of, values[:3]))})"
    return "None" if values is None else f"a {type(values).__name__}"


def _meant_another_width(error: BaseException) -> str:
    """A hint for a bottom that was written for one width."""
    if "shape" in str(error) or "size" in str(error):
        return "; x has another width for each party: a constructor with a parameter `inputs` gets it (see also model.shape)"
    return ""


def _meant_a_tensor(error: BaseException) -> str:
    """A hint for a top that was written for one tensor."""
    if isinstance(error, TypeError | AttributeError) and "list" in str(error):
        return "; it gets a list with one embedding a party: join them in its forward, as torch.cat(embeddings, dim=1)"
    return ""
