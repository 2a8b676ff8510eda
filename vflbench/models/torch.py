"""Two torch modules of a user's own as the halves of a network. They derive from nothing of ours."""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vflbench.errors import UserError
from vflbench.models.base import CutModel
from vflbench.models.layers import ColumnEmbedding
from vflbench.models.own_modules import TOP, OwnBottom, OwnTop, explained, path_of
from vflbench.models.taps import Taps, children_of
from vflbench.models.trial import settle
from vflbench.models.wrapped import drawing_from
from vflbench.numerics.pixels import area_of
from vflbench.options import Width, options

_EMBEDDING_STD = 0.01  # as in wide_deep
_WIDTHS = ("in_features", "input_size", "input_dim")
_BOTTOM = ("inputs", *_WIDTHS, "in_channels", "input_shape", "cardinalities")
_OUTPUTS = ("outputs", "out_features", "output_dim")
_TOP = ("inputs", *_WIDTHS, *_OUTPUTS)
"""Parameters of a constructor that are filled in where the options don't give them."""


@options
class Torch(CutModel):
    """Any two nn.Module classes: bottom(x) -> embedding, top([embedding of each party]) -> logits.

    bottom, top: the classes. Every party that holds features builds its own bottom; the label party builds the top.
    bottom_options, top_options: keyword arguments of their constructors. Where a constructor has one of these parameters
    and the options don't give it, it is filled in, because widths differ from party to party:

        bottom   inputs, in_features, input_size, input_dim: the last dimension of x; in_channels: the first one after the
                 rows; input_shape: all of them; cardinalities: the sizes of the categorical columns
        top      inputs: the list of the embeddings' widths; in_features, input_size, input_dim: their sum;
                 outputs, out_features, output_dim: logits, 1 for two classes and K for K > 2

    x: (n, k), the numeric columns and then the categorical ones. categories: `embed`, as learned vectors of `embedding_dim`
    numbers each, which belong to the bottom; `codes`, as their ids; `ids`, apart: forward(x, ids) with ids (n, c) int64;
    `refuse`. shape: of one row of x, such as [1, 28, 28] or [-1, 4]; `pixels`: (channels, height, width) of the party's
    pixels; null: flat.
    bottom returns the embedding (n, d), or layer -> (n, width), of which the last is the embedding. top returns logits
    (n, outputs), or (n,) for two classes.
    layers: the submodules whose output is measured in addition to the cut, by their dotted names, with `top.` before those
    of the top. null: the named children whose output has one row for each row, and the children of a Sequential in its
    place; none if the bottom returns a dict.
    width: width of a typical layer. Only the number of threads depends on it.
    """

    bottom: type[nn.Module]
    top: type[nn.Module]
    bottom_options: dict[str, Any] | None = None
    top_options: dict[str, Any] | None = None
    categories: Literal["embed", "codes", "ids", "refuse"] = "embed"
    embedding_dim: Width = 4
    shape: list[int] | Literal["pixels"] | None = None
    layers: list[str] | None = None
    width: Width = 128

    def __post_init__(self) -> None:
        _check_options(self.bottom, self.bottom_options or {}, _BOTTOM, "bottom_options")
        _check_options(self.top, self.top_options or {}, _TOP, "top_options")
        if isinstance(self.shape, list):
            sizes = [size for size in self.shape if size != -1]
            if not self.shape or any(size < 1 for size in sizes) or len(self.shape) - len(sizes) > 1:
                problem = "it must have sizes of at least 1, of which one may be -1: as large as it must be"
                raise UserError(problem, key="shape", value=self.shape)

    def bottom_for(
        self, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
    ) -> nn.Module:
        if cardinalities and self.categories == "refuse":
            problem = f"a party holds {len(cardinalities)} categorical columns; use embed, codes or ids, or leave them out"
            raise UserError(problem, key="model.categories", value="refuse")
        embedded = bool(cardinalities) and self.categories == "embed"
        per_column = {"embed": self.embedding_dim, "codes": 1}.get(self.categories, 0)
        values = len(numeric) + per_column * len(cardinalities)
        shape, reshape = self._shape(numeric, values)
        filled_in = {
            **dict.fromkeys(("inputs", *_WIDTHS), shape[-1]),
            "in_channels": shape[0],
            "input_shape": shape,
            "cardinalities": list(cardinalities),
        }
        with drawing_from(rng, advance=True):
            module = _made(self.bottom, self.bottom_options or {}, filled_in, "bottom")
            taps = Taps(_listed(self.layers, module, "bottom"))
            part = OwnBottom(module, reshape, self.categories, None, cardinalities, taps)

            def sample(rows: int) -> tuple[Tensor, ...]:
                x = reshape(torch.rand(rows, values, generator=torch.Generator()))
                return (x, torch.zeros(rows, len(cardinalities), dtype=torch.int64)) if self.categories == "ids" else (x,)

            settle(part, sample, self.layers)
        part.embedding = ColumnEmbedding(cardinalities, self.embedding_dim, rng, _EMBEDDING_STD) if embedded else None
        return part

    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        filled_in = {
            "inputs": list(widths),
            **dict.fromkeys(_WIDTHS, sum(widths)),
            **dict.fromkeys(_OUTPUTS, outputs),
        }
        with drawing_from(rng, advance=True):
            module = _made(self.top, self.top_options or {}, filled_in, "top")
            part = OwnTop(module, widths, outputs, Taps(_listed(self.layers, module, "top")))
            settle(part, lambda rows: (torch.randn(rows, sum(widths), generator=torch.Generator()),), self.layers)
        return part

    def _shape(self, numeric: Sequence[str], values: int) -> tuple[tuple[int, ...], Callable[[Tensor], Tensor]]:
        """The shape of a row of x, and how x gets it. values: numbers in a row."""
        if values == 0 and self.categories != "ids":
            raise UserError("a party holds no column that its bottom gets", key="model.categories", value=self.categories)
        if self.shape is None:
            return (values,), partial(_reshaped, shape=(values,))
        if self.shape == "pixels":
            area = area_of(numeric)
            if area is None or values > len(numeric):
                problem = "a party's columns aren't the pixels of one rectangle, row by row"
                raise UserError(problem, key="model.shape", value="pixels")
            return (area.channels, area.height, area.width), area.picture
        known = math.prod(size for size in self.shape if size != -1)
        if values % known or (-1 not in self.shape and values != known) or not values:
            problem = f"a row of a party's x has {values} numbers, which don't fill this shape"
            raise UserError(problem, key="model.shape", value=self.shape)
        shape = tuple(values // known if size == -1 else size for size in self.shape)
        return shape, partial(_reshaped, shape=shape)


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x.reshape(len(x), *shape)


def _check_options(cls: type, given: Mapping[str, Any], filled_in: Iterable[str], key: str) -> None:
    """Raise UserError for an option that the constructor doesn't have, and for one that it needs and nobody gives."""
    parameters = _parameters(cls)
    if parameters is None:
        return
    names = {name for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in given:
        if name not in names and not takes_any:
            problem = f"there is no such argument; {path_of(cls)} has {', '.join(parameters) or 'none'}"
            raise UserError(problem, key=f"{key}.{name}", value=given[name])
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if not optional and (name not in names or name not in {*given, *filled_in}):
            problem = (
                f"{path_of(cls)} needs it, by its name; where they aren't given, only {', '.join(filled_in)} are filled in"
            )
            raise UserError(problem, key=f"{key}.{name}")


def _parameters(cls: type) -> Mapping[str, inspect.Parameter] | None:
    """Those of its constructor; None for a class that doesn't tell."""
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return None


def _made(cls: type[nn.Module], given: Mapping[str, Any], filled_in: Mapping[str, Any], part: str) -> nn.Module:
    """An instance, with those values filled in for which its constructor has a parameter."""
    parameters = _parameters(cls) or {}
    arguments = {name: value for name, value in filled_in.items() if name in parameters} | copy.deepcopy(dict(given))
    called = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    with explained(f"model.{part}", cls, f"{cls.__name__}({called})", _meant_a_number):
        module = cls(**arguments)
        list(module.named_parameters())  # fails where the constructor didn't call super().__init__()
        return module


def _meant_a_number(error: BaseException) -> str:
    """A hint for a top whose `inputs` is one number."""
    lists = isinstance(error, TypeError) and "list" in str(error)
    return "; inputs is the list of the embeddings' widths, and in_features their sum" if lists else ""


def _listed(layers: Sequence[str] | None, module: nn.Module, part: str) -> list[str]:
    """The submodules of this part that may be read: of those listed its own; all named children where none are listed."""
    if layers is None:
        return list(children_of(module))
    names = [name.removeprefix(TOP) for name in layers if name.startswith(TOP) == (part == "top")]
    known = [name for name, _ in module.named_modules() if name]
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            written = f"{TOP}{name}" if part == "top" else name
            raise UserError(f"the {part} has no such submodule; there are {there}", key="model.layers", value=written)
    return names
