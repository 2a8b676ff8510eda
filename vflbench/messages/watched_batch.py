"""A batch that is being recorded: layers as they were sent, and the gradients that came back so far."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.message_batch import FLOATS, type_name
from vflbench.messages.recording_format import LAYER
from vflbench.messages.row_ids import row_ids


class _Graph:
    """Lives as long as a graph that may bring a gradient: only the hook holds it."""


class WatchedBatch:
    """ids: as the user holds them. recorded: whether values are kept; else it only says where a batch begins and ends."""

    def __init__(self, ids: Any, epoch: int, step: int, recorded: bool):
        self.epoch, self.step, self.recorded = epoch, step, recorded
        self.parts: set[tuple[str, str]] = set()
        self._given = ids
        self._ids: Tensor | None = row_ids(ids) if recorded else None
        self._embeddings: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._columns: dict[str, Tensor] = {}
        self._graphs: dict[str, weakref.ref[_Graph]] = {}
        self._closed = False

    @property
    def ids(self) -> Tensor:
        """(n,) int64."""
        assert self._ids is not None
        return self._ids

    @property
    def widths(self) -> dict[str, int]:
        """Layer -> columns."""
        return {layer: h.shape[1] for layer, h in self._embeddings.items()}

    def has_ids(self, ids: Any) -> bool:
        """Whether these are the batch's rows, in its order."""
        if ids is self._given:
            return True
        if self._ids is None:
            self._ids = row_ids(self._given, unique=False)
        return torch.equal(self._ids, row_ids(ids, unique=False))

    def watch(self, layer: str, h: Tensor, widths: dict[str, int]) -> None:
        """h: (n, ...), one row an id. widths: layer -> numbers in a row, of every batch so far; this layer's is added."""
        if not isinstance(h, Tensor):
            raise UserError(
                "it takes one tensor; watch each tensor of a dict or tuple as a layer of its own",
                key="watch",
                value=type(h).__name__,
            )
        if not LAYER.fullmatch(layer):
            raise UserError(
                "a layer's name has 1 to 200 characters, none of them control", key="layer", value=repr(layer)[:80]
            )
        if type_name(h) not in FLOATS:
            raise UserError("embeddings are float32, float16, bfloat16 or float64", key=f"layer {layer}", value=h.dtype)
        if h.ndim < 1 or len(h) != len(self.ids) or not h.numel():
            problem = f"it must have a row for each of the {len(self.ids)} ids, batch first"
            raise UserError(problem, key=f"layer {layer}", value=tuple(h.shape))
        width = h.numel() // len(h)
        if widths.setdefault(layer, width) != width:
            problem = (
                f"a row has {width} numbers here, and had {widths[layer]} before; pad it, or send a vector of one length"
            )
            raise UserError(problem, key="layer", value=layer)
        self._embeddings[layer] = _rows(h)
        if h.requires_grad:
            graph = _Graph()
            self._graphs[layer] = weakref.ref(graph)
            h.register_hook(self._hook(layer, graph))

    def _hook(self, layer: str, graph: _Graph) -> Callable[[Tensor], None]:
        def add(gradient: Tensor, _alive: _Graph = graph) -> None:
            if not self._closed:
                made = _rows(gradient)
                self._gradients[layer] = self._gradients[layer] + made if layer in self._gradients else made

        return add

    def add_columns(self, numeric: Any, categorical: Any) -> None:
        """numeric: (n, k), categorical: (n, c); either may be None."""
        for name, values in {"numeric": numeric, "categorical": categorical}.items():
            if values is None:
                continue
            made = torch.as_tensor(values).detach().to("cpu", copy=True)
            floats = type_name(made) in FLOATS
            if made.ndim != 2 or len(made) != len(self.ids) or made.is_complex() or floats != (name == "numeric"):
                what = "floats" if name == "numeric" else "integers from 0"
                problem = f"columns are ({len(self.ids)}, any number) of {what}, not {made.dtype}"
                raise UserError(problem, key=name, value=tuple(made.shape))
            self._columns[name] = made if floats else made.to(torch.int64)

    @property
    def complete(self) -> bool:
        """Whether each layer that asks for a gradient has one."""
        return bool(self._embeddings) and self._graphs.keys() <= self._gradients.keys()

    @property
    def finished(self) -> bool:
        """Whether no gradient can come any more, as the graphs are gone."""
        return all(graph() is None for graph in self._graphs.values())

    @property
    def has_gradient(self) -> bool:
        """Whether a layer has a gradient, or none asks for one."""
        return bool(self._embeddings) and bool(self._gradients or not self._graphs)

    def close(self) -> dict[str, Tensor]:
        """`KIND/LAYER` -> values, for the file. Gradients that come later are left out."""
        self._closed = True
        kinds = {"embedding": self._embeddings, "gradient": self._gradients, "columns": self._columns}
        self._embeddings, self._gradients, self._columns = {}, {}, {}  # hooks may live longer
        return {f"{kind}/{name}": values for kind, of_kind in kinds.items() for name, values in of_kind.items()}

    def problem(self) -> str:
        """Why it can't be recorded; empty where it can."""
        for kind, layers in {"embedding": self._embeddings, "gradient": self._gradients, "column": self._columns}.items():
            for name, values in layers.items():
                if values.is_floating_point() and not _finite(values):
                    return f"NaN or infinite values in the {kind} {name}"
        return ""


def _rows(values: Tensor) -> Tensor:
    """(n, ...) as (n, d), on the CPU, in memory of its own and in its own precision."""
    values = values.detach()
    values = values.to_dense() if values.layout is not torch.strided else values
    return values.to("cpu", copy=True).reshape(len(values), -1).contiguous()


def _finite(values: Tensor) -> bool:
    """A finite sum tells it in one pass; a sum may overflow where no value does."""
    in_32_bits = torch.float32 if values.dtype.itemsize < 4 else values.dtype
    return bool(values.sum(dtype=in_32_bits).isfinite()) or bool(values.isfinite().all())
