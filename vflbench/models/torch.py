"""A user's torch modules as the halves of a network: two classes that derive from nothing of ours, or what a Model builds.

One wrapper calls a module with what it expects, names what it returns and reads its inner layers; one dry run, before
training, refuses a module that doesn't fit.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vflbench.errors import UserError
from vflbench.models.base import EMBEDDING_STD, WIDE, Bottom, ColumnEmbedding, CutModel, TopModel, evaluating
from vflbench.numerics.pixels import area_of
from vflbench.options import Width, options

CUT, LOGITS = "cut", "logits"
"""The names of what a bottom or a top returns alone."""
TOP = "top."
"""What the names of layers of the top begin with, so that none is that of a bottom's."""

_LONGEST = 600  # characters of somebody else's error
_WIDTHS = ("in_features", "input_size", "input_dim")
_BOTTOM = ("inputs", *_WIDTHS, "in_channels", "input_shape", "cardinalities")
_OUTPUTS = ("outputs", "out_features", "output_dim")
_TOP = ("inputs", *_WIDTHS, *_OUTPUTS)
"""Parameters of a constructor that are filled in where the options don't give them."""

_Layers = dict[str, Tensor]
"""Name -> (rows, width)."""


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
        _arguments(self.bottom, self.bottom_options, dict.fromkeys(_BOTTOM), "bottom_options")
        _arguments(self.top, self.top_options, dict.fromkeys(_TOP), "top_options")
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
            hint = "a constructor with a parameter `inputs` gets the width of x"
            module = _made(self.bottom, self.bottom_options, filled_in, "model.bottom", hint)
            part = UserBottom(module, "model.bottom", cardinalities, outputs, self.categories, reshape)

            def sample(rows: int) -> tuple[Tensor, ...]:
                x = reshape(torch.rand(rows, values, generator=torch.Generator()))
                return (x, torch.zeros(rows, len(cardinalities), dtype=torch.int64)) if self.categories == "ids" else (x,)

            part.try_out(sample, self.layers)
        if cardinalities and self.categories == "embed":
            part.embedding = ColumnEmbedding(cardinalities, self.embedding_dim, rng, EMBEDDING_STD)
        return part

    def top_over(self, widths: Sequence[int], outputs: int, rng: torch.Generator) -> nn.Module:
        filled_in = {
            "inputs": list(widths),
            **dict.fromkeys(_WIDTHS, sum(widths)),
            **dict.fromkeys(_OUTPUTS, outputs),
        }
        with drawing_from(rng, advance=True):
            hint = "inputs is the list of the embeddings' widths, and in_features their sum"
            part = UserTop(_made(self.top, self.top_options, filled_in, "model.top", hint), "model.top", outputs)
            part.try_out(partial(_embeddings, widths), self.layers)
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


def _embeddings(widths: Sequence[int], rows: int) -> tuple[Tensor, ...]:
    """Random ones, to try a top out."""
    joined = torch.randn(rows, sum(widths), generator=torch.Generator())
    return tuple(values.contiguous() for values in joined.split(list(widths), dim=1))


def _arguments(cls: type, given: Mapping[str, Any] | None, filled_in: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Those of a constructor: what is given, and of what is filled in the parameters that it has.

    Raises UserError for one that it doesn't have, and where one is missing.
    """
    signature = inspect.signature(cls)
    arguments = {name: value for name, value in filled_in.items() if name in signature.parameters} | dict(given or {})
    try:
        signature.bind(**arguments)
    except TypeError as error:
        problem = f"{error}; {path_of(cls)} has {', '.join(signature.parameters) or 'no arguments'}"
        only = f"where they aren't given, only {', '.join(filled_in)} are filled in"
        raise UserError(f"{problem}; {only}", key=key, value=given) from error
    return arguments


def _made(
    cls: type[nn.Module], given: Mapping[str, Any] | None, filled_in: Mapping[str, Any], key: str, hint: str
) -> nn.Module:
    arguments = copy.deepcopy(_arguments(cls, given, filled_in, key))
    called = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    with explained(key, cls, f"{cls.__name__}({called})", hint):
        module = cls(**arguments)
        list(module.named_parameters())  # fails where the constructor didn't call super().__init__()
        return module


def path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


@contextmanager
def explained(key: str, cls: type, doing: str, hint: str = "") -> Iterator[None]:
    """An error of a user's module as a paragraph. doing: the call that fails."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever code of a user's own does
        if "allocate memory" in str(error):
            raise
        text = " ".join(str(error).split())[:_LONGEST].rstrip(".")
        if "primitive descriptor" in text:
            hint = "torch may lack this layer in bfloat16 on this processor: try precision=float32"
        problem = f"{doing} fails: {type(error).__name__}: {text}{f'; {hint}' if hint else ''}"
        raise UserError(problem, key=key, value=path_of(cls)) from error


@contextmanager
def drawing_from(rng: torch.Generator | None, *, advance: bool = False) -> Iterator[None]:
    """Inside, torch's own generator of that device draws what `rng` would draw; afterwards it is as it was.

    For modules that torch initialises by itself, and for those that draw while they compute, such as dropout.
    advance: whether `rng` goes on after what was drawn; otherwise it stays as it was. None: as torch's own stands.
    """
    if rng is None:
        yield
        return
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


class UserPart(nn.Module):
    """What a user's bottom and top have in common.

    key: the option that names the module. rng: what the module draws from while it trains; None: torch's own generator.
    names: the submodules that are read, dotted. copied: those whose output a later step of the module changes in place.

    What is read is the tensor that flows on, so its gradient is that of the activation. Where it has more than two
    dimensions, it is the flattened tensor, of which the module gets a view. Of a tuple or list, as an LSTM returns it, the
    first tensor is read. Anything but floating-point numbers with one entry a row isn't read. A submodule that is called
    several times is read at its last call.
    """

    prefix, hint = "", ""

    def __init__(self, module: nn.Module, key: str):
        super().__init__()
        self.module, self.key = module, key
        self.rng: torch.Generator | None = None
        self.names: tuple[str, ...] = ()
        self.copied: set[str] = set()

    def refusal(self, problem: str) -> UserError:
        return UserError(problem, key=self.key, value=path_of(type(self.module)))

    def answer(self, *inputs: Tensor) -> tuple[_Layers, _Layers]:
        """What the module returns by name, the last being what crosses, and what was read on the way."""
        raise NotImplementedError

    def call(self, inputs: Sequence[Tensor], *arguments: Any) -> tuple[Any, _Layers]:
        """The module's output, and name -> (rows, width) in the order in which submodules ran. arguments: `inputs` as the
        module gets them.
        """
        rows, read, versions = len(inputs[0]), dict[str, Tensor](), dict[str, int]()

        def keep(name: str, output: Any) -> Any:
            first = _first_tensor(output)
            if first is None or not first.is_floating_point() or first.ndim == 0 or len(first) != rows:
                return None
            read.pop(name, None)
            read[name] = flat = first if first.ndim == 2 else first.reshape(rows, -1)
            versions[name] = flat._version
            passed_on = flat.clone() if name in self.copied else flat
            return None if passed_on is first else _with_first(output, passed_on.view(first.shape))

        shapes = ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in inputs)
        doing = f"forward(embeddings) with the list [{shapes}]" if isinstance(arguments[0], list) else f"forward({shapes})"
        with ExitStack() as stack:
            stack.enter_context(explained(self.key, type(self.module), doing, self.hint))
            stack.enter_context(drawing_from(self.rng, advance=self.training))
            for name in self.names:
                hook = self.module.get_submodule(name).register_forward_hook(
                    lambda _, __, output, name=name: keep(name, output)
                )
                stack.callback(hook.remove)
            output = self.module(*arguments)
        self.copied |= {name for name, values in read.items() if values._version != versions[name]}
        return output, read

    def try_out(self, sample: Callable[[int], Sequence[Tensor]], listed: Sequence[str] | None) -> tuple[_Layers, _Layers]:
        """Settle which layers of a new module are read, and return what it answers in evaluation and in training.

        It is evaluated twice, which also gives lazy layers their weights; in between, a copy of it is trained on a few
        rows. Only what has numbers for each row in both modes is read. sample: rows -> what the module gets. listed: the
        names that the user wants. Raises UserError where the module doesn't fit.
        """
        self.names = self._wanted(listed)
        with evaluating(self):
            self.answer(*sample(2))
        for name, parameter in self.module.named_parameters():
            if is_lazy(parameter):
                raise self.refusal(f"its parameter {name} has no size, because its forward never calls the layer")
        trained, read_training = self._train(sample(5))
        inputs = sample(2)
        with evaluating(self):
            evaluated, read = self.answer(*inputs)
        both = {name: values for name, values in read.items() if name in read_training}
        if listed is None:
            by_name = list(evaluated) not in ([CUT], [LOGITS])  # a bottom that names its layers itself
            self.names = () if by_name else _distinct(both, [*inputs, *evaluated.values()])
        else:
            if missing := [name for name in self.names if name not in both]:
                problem = "it must put out floating-point numbers for each row, in training and in evaluation, and doesn't"
                raise UserError(problem, key="model.layers", value=missing[0])
            self.names = tuple(both)
        return self.with_inner(evaluated, read), self.with_inner(trained, read_training)

    def with_inner(self, answer: _Layers, read: _Layers) -> _Layers:
        """The inner layers that are read, under names of their own, and then the module's own."""
        prefixes = {CUT: "inner.", WIDE: "inner."} if not self.prefix else {}
        return {f"{prefixes.get(n, self.prefix)}{n}": read[n] for n in self.names if n in read} | answer

    def _wanted(self, listed: Sequence[str] | None) -> tuple[str, ...]:
        """The submodules that may be read: of those listed its own; all named children where none are listed."""
        if listed is None:
            return tuple(_children_of(self.module))
        names = [name.removeprefix(TOP) for name in listed if name.startswith(TOP) == bool(self.prefix)]
        known = [name for name, _ in self.module.named_modules() if name]
        if unknown := [name for name in names if name not in known]:
            problem = f"{self.key} has no such submodule; there are {', '.join(known) or 'none'}"
            raise UserError(problem, key="model.layers", value=f"{self.prefix}{unknown[0]}")
        return tuple(names)

    def _train(self, inputs: Iterable[Tensor]) -> tuple[_Layers, _Layers]:
        """Forward and backward in a copy. What it changes in place is copied from now on."""
        kind, is_top = type(self.module), bool(self.prefix)
        with explained(self.key, kind, "copying it with copy.deepcopy"):
            twin = copy.deepcopy(self).train()
        inputs = [x.requires_grad_() if is_top else x for x in inputs]
        with torch.enable_grad():
            answer, read = twin.answer(*(x.clone() for x in inputs))  # a leaf couldn't be changed in place
            self.copied |= twin.copied
            layer = [layer for layer in answer if layer != WIDE][-1]
            differentiable = [values.sum() for values in answer.values() if values.requires_grad]
            if not differentiable and any(parameter.requires_grad for parameter in self.module.parameters()):
                problem = f"no gradient goes through its {layer} to its parameters"
                raise self.refusal(f"{problem} (is it detached, or computed under no_grad?)")
            if differentiable:
                with explained(self.key, kind, "its backward pass"):
                    torch.stack(differentiable).sum().backward()
        if is_top and all(x.grad is None for x in inputs):
            raise self.refusal("no gradient of the logits reaches the embeddings, so that no bottom could learn")
        return answer, read


class UserBottom(UserPart, Bottom):
    """Any module as a party's bottom model. It returns the embedding (n, d), or layer -> (n, width), of which the last one
    is the cut layer. A part named `wide` (n, outputs) is added to the logits.

    categories: how categorical columns come in, as `Torch` has it; None: as forward(numeric, categorical), or numeric
    columns alone if the module takes one argument. reshape: (n, k) -> the x that the module gets. One that embeds
    categorical columns itself may have `tables` and `from_vectors`, as in `Bottom`. outputs: of the top model.
    """

    hint = "x has another width for each party: a constructor with a parameter `inputs` gets it (see also model.shape)"

    def __init__(
        self,
        module: nn.Module,
        key: str,
        cardinalities: Sequence[int],
        outputs: int,
        categories: str | None = None,
        reshape: Callable[[Tensor], Tensor] = Tensor.contiguous,
    ):
        super().__init__(module, key)
        self.embedding: ColumnEmbedding | None = None
        self.cardinalities, self.outputs = list(cardinalities), outputs
        self.categories, self.reshape, self.takes_two = categories, reshape, _takes_two(module)
        self.widths: dict[str, int] = {}

    def try_out(self, sample: Callable[[int], Sequence[Tensor]], listed: Sequence[str] | None) -> tuple[_Layers, _Layers]:
        answers = super().try_out(sample, listed)
        self.widths = {layer: values.shape[1] for layer, values in answers[0].items()}
        self.layers = tuple(layer for layer in self.widths if layer != WIDE)
        self.sends = (self.cut, WIDE) if WIDE in self.widths else (self.cut,)
        self.cut_width = self.widths[self.cut]
        return answers

    def inputs(self, numeric: Tensor, categorical: Tensor) -> tuple[Tensor, ...]:
        """What the module's forward gets: x, and with categories=ids the ids (n, c) int64."""
        if self.categories is None:
            return (numeric, categorical) if self.takes_two else (numeric,)
        if categorical.shape[1] != len(self.cardinalities):
            problem = "an attack looks for features without naming categories, which goes with embed only"
            raise UserError(problem, key="model.categories", value=self.categories)
        if self.categories == "ids":
            return self.reshape(numeric), categorical.long()
        vectors = categorical.to(numeric.dtype) if self.embedding is None else self.embedding(categorical).flatten(1)
        return (self.reshape(torch.cat([numeric, vectors], dim=1) if self.cardinalities else numeric),)

    def forward(self, numeric: Tensor, categorical: Tensor) -> _Layers:
        return self._layers(*self.inputs(numeric, categorical))

    def _layers(self, *inputs: Tensor) -> _Layers:
        layers = self.with_inner(*self.answer(*inputs))
        widths = {layer: values.shape[1] for layer, values in layers.items()}
        if widths != self.widths:
            problem = f"its layers had the widths {self.widths} when the run began, and now have {widths}"
            raise self.refusal(f"{problem}; list the layers that are always there under model.layers")
        return layers

    def tables(self) -> tuple[Tensor, ...]:
        if self.embedding is not None:
            return self.embedding.values().split(self.cardinalities)
        module: Any = self.module
        return module.tables() if hasattr(module, "tables") else ()

    def from_vectors(self, numeric: Tensor, vectors: Tensor) -> _Layers:
        if self.embedding is not None:
            return self._layers(self.reshape(torch.cat([numeric, vectors.flatten(1)], dim=1)))
        module: Any = self.module
        if not hasattr(module, "from_vectors"):
            return super().from_vectors(numeric, vectors)
        with drawing_from(self.rng, advance=self.training):
            return module.from_vectors(numeric, vectors)

    def answer(self, *inputs: Tensor) -> tuple[_Layers, _Layers]:
        output, read = self.call(inputs, *inputs)
        wanted = (
            "it must return the embedding (rows, d), or a dict of layers (rows, width) of which the last is the embedding"
        )
        rows, layers = len(inputs[0]), dict(output) if isinstance(output, Mapping) else {CUT: output}
        if not set(layers) - {WIDE}:
            raise self.refusal(f"{wanted}; it returned {f'{WIDE} alone' if layers else 'an empty dict'}")
        for layer, values in layers.items():
            fits = isinstance(values, Tensor) and values.is_floating_point() and values.layout is torch.strided
            if not fits or values.ndim != 2 or len(values) != rows or not values.shape[1]:
                came = _shape_of(values) if values is output else f"{layer}: {_shape_of(values)}"
                raise self.refusal(f"{wanted}; for {rows} rows it returned {came}")
        if WIDE in layers and layers[WIDE].shape[1] != self.outputs:
            problem = f"its layer {WIDE} is added to the logits and must be (rows, {self.outputs})"
            raise self.refusal(f"{problem}; it is {tuple(layers[WIDE].shape)}")
        return layers, read


class UserTop(UserPart, TopModel):
    """Any module as the label party's top model, which returns the logits (n, outputs), (n,) for two classes, or a pair of
    activations layer -> (n, width) and logits. joins: it gets the embeddings side by side, and not as a list.
    """

    prefix = TOP
    hint = "it gets a list with one embedding a party: join them in its forward, as torch.cat(embeddings, dim=1)"

    def __init__(self, module: nn.Module, key: str, outputs: int, *, joins: bool = False):
        super().__init__(module, key)
        self.outputs, self.joins = outputs, joins
        self.layers: tuple[str, ...] = ()

    def try_out(self, sample: Callable[[int], Sequence[Tensor]], listed: Sequence[str] | None) -> tuple[_Layers, _Layers]:
        answers = super().try_out(sample, listed)
        self.layers = tuple(layer for layer in answers[0] if layer != LOGITS)
        return answers

    def forward(self, embeddings: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[_Layers, Tensor]:
        activations = self.with_inner(*self.answer(*embeddings))
        return activations, sum(wide, start=activations.pop(LOGITS))

    def answer(self, *inputs: Tensor) -> tuple[_Layers, _Layers]:
        rows = len(inputs[0])
        given = torch.cat(inputs, dim=1) if self.joins else [values.contiguous() for values in inputs]
        output, read = self.call(inputs, given)
        activations, logits = output if isinstance(output, tuple) and len(output) == 2 else ({}, output)
        if isinstance(logits, Tensor) and tuple(logits.shape) == (rows,) and self.outputs == 1:
            logits = logits[:, None]
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (rows, self.outputs) or not logits.is_floating_point():
            also = f" or ({rows},)" if self.outputs == 1 else ""
            classes = "two classes" if self.outputs == 1 else f"{self.outputs} classes"
            problem = f"it must return the logits of {classes}, ({rows}, {self.outputs}){also} for {rows} rows"
            raise self.refusal(f"{problem}; it returned {_shape_of(output)}")
        return {**activations, LOGITS: logits}, read


def as_bottom(
    module: nn.Module, numeric: Sequence[str], cardinalities: Sequence[int], outputs: int, rng: torch.Generator
) -> Bottom:
    """A bottom as it is; another module copied, because parties share nothing but messages, and wrapped.

    rng: what a user's module draws from while it trains.
    """
    if not isinstance(module, Bottom):
        with explained("model", type(module), "copying it with copy.deepcopy"):
            part = UserBottom(copy.deepcopy(module), "model", cardinalities, outputs)
        part.hint = f"a party holds {len(numeric)} numeric and {len(cardinalities)} categorical columns"
        if cardinalities and not part.takes_two:
            problem = f"it takes one argument, the numeric columns, and a party holds {len(cardinalities)} categorical ones"
            raise part.refusal(f"{problem}; let its forward take (numeric, categorical)")

        def sample(rows: int) -> tuple[Tensor, ...]:
            columns = torch.rand(rows, len(numeric), generator=torch.Generator())
            return part.inputs(columns, torch.zeros(rows, len(cardinalities), dtype=torch.int32))

        part.try_out(sample, ())
        module = part
    if isinstance(module, UserBottom):
        module.rng = rng
    return module


def as_top(module: nn.Module, inputs: int, outputs: int, rng: torch.Generator) -> TopModel:
    """A top as it is; another module wrapped, which is called with the concatenated embeddings (n, inputs)."""
    if not isinstance(module, TopModel):
        part = UserTop(copy.deepcopy(module), "model", outputs, joins=True)
        part.hint = f"it gets the embeddings side by side, (rows, {inputs})"
        part.try_out(partial(_embeddings, [inputs]), ())
        module = part
    if isinstance(module, UserTop):
        module.rng = rng
    return module


def _takes_two(module: nn.Module) -> bool:
    """Whether its forward takes two positional arguments; many for *args."""
    try:
        inspect.signature(module.forward).bind(None, None)
    except TypeError:
        return False
    return True


def _shape_of(values: object) -> str:
    """In words, without the values."""
    if isinstance(values, Tensor):
        kind = "" if values.is_floating_point() else f" of {str(values.dtype).removeprefix('torch.')}"
        return f"a {'' if values.layout is torch.strided else 'sparse '}tensor {tuple(values.shape)}{kind}"
    if isinstance(values, tuple | list):
        return f"a {type(values).__name__} of {len(values)} ({', '.join(map(_shape_of, values[:3]))})"
    return "None" if values is None else f"a {type(values).__name__}"


def _children_of(module: nn.Module, prefix: str = "") -> Iterator[str]:
    """Dotted names of the named children; of a plain container among them, those of its own children."""
    for name, child in module.named_children():
        if type(child) in (nn.Sequential, nn.ModuleList, nn.ModuleDict):
            yield from _children_of(child, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _distinct(read: _Layers, others: Sequence[Tensor]) -> tuple[str, ...]:
    """The names of those that show other memory than one before, or than the others: not those of an identity."""
    seen, names = {_place(values) for values in others}, []
    for name, values in read.items():
        if values.numel() and _place(values) not in seen:
            seen.add(_place(values))
            names.append(name)
    return tuple(names)


def _place(values: Tensor) -> tuple[int, tuple[int, ...], torch.dtype]:
    flat = values.reshape(len(values), -1)
    return flat.data_ptr(), tuple(flat.shape), flat.dtype


def _first_tensor(output: Any) -> Tensor | None:
    while isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def _with_first(output: Any, tensor: Tensor) -> Any:
    """The same output with another first tensor."""
    if isinstance(output, Tensor):
        return tensor
    parts = [_with_first(output[0], tensor), *output[1:]]
    return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
