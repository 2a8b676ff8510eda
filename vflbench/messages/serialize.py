"""Values and tensors as bytes and back, for what travels between processes: safetensors, so nothing that could be executed.

The values are JSON, in a tensor of bytes named `values`; in place of a tensor they have its name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.codec import Codebook, Encoded, Grid
from vflbench.messages.wire import Kind, Message
from vflbench.numerics.system import flushes_denormals

Content = Mapping[str, Any]
"""None, bool, int, float, str, Tensor, and lists and dicts of them."""

_VALUES, _TENSOR = "values", "\0tensor"  # no name has a control character
_CODES: dict[str, Any] = {"grid": Grid, "words": Codebook}
_LONGEST_WORD = 4096


def saved(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """A safetensors file. Tensors may share memory, which the format doesn't have."""
    seen: set[int] = set()
    made = {}
    for name, values in tensors.items():
        plain = values.detach().cpu().contiguous()
        place = plain.untyped_storage().data_ptr()
        made[name] = plain.clone() if place in seen else plain
        seen.add(place)
    return save(made, metadata)


def encode(content: Content) -> bytes:
    """Raises TypeError for anything that is no plain value."""
    tensors: dict[str, Tensor] = {}

    def by_name(value: object) -> dict[str, str]:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            raise TypeError(f"a message can't hold {type(value).__name__}")
        name = str(len(tensors))
        tensors[name] = value
        return {_TENSOR: name}

    values = json.dumps(content, default=by_name).encode()
    return saved({**tensors, _VALUES: torch.frombuffer(bytearray(values), dtype=torch.uint8)})


def decode(data: bytes, most: int = 1 << 32) -> dict[str, Any]:
    """What was encoded, in tensors of its own. Raises ValueError for anything else, and for more than so many bytes."""
    if len(data) > most:
        raise ValueError(f"a message of {len(data):,} bytes, and {most:,} are taken at most")
    try:
        # copies lie where torch puts its own: elsewhere in memory, some matrix products round otherwise
        tensors = {name: values.clone() for name, values in load(data).items()}
        text = tensors.pop(_VALUES).numpy().tobytes().decode()
        values = json.loads(text, object_hook=lambda part: tensors[part[_TENSOR]] if _TENSOR in part else part)
    except (SafetensorError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is no message: {error}") from error
    if not isinstance(values, dict):
        raise ValueError("a message that holds no values by name")
    return values


def content_of(message: Message) -> dict[str, Any]:
    """Layer -> values. What crosses compressed is carried as the very bytes that are counted, with how to decode them."""
    return {
        layer: _described(message.encoded[layer]) if layer in message.encoded else values
        for layer, values in message.tensors.items()
    }


def _described(encoded: Encoded) -> dict[str, Any]:
    code = encoded.code
    return {
        "code": None if code is None else next(name for name, kind in _CODES.items() if isinstance(code, kind)),
        "rule": {} if code is None else {part.name: getattr(code, part.name) for part in fields(code)},
        "announced": 0 if encoded.announced is None else len(encoded.announced),
        "places": None if encoded.places is None else encoded.places.shape[1],
        "payload": encoded.payload,
    }


def message_of(content: Any, sender: str, receiver: str, kind: Kind, ids: Tensor, widths: Mapping[str, int]) -> Message:
    """The inverse. sender, receiver, kind, ids, widths of layers: as both sides know them.

    Raises ValueError, or what Python and torch raise, for content of other layers, rows or widths.
    """
    if not isinstance(content, dict) or set(content) != set(widths):
        raise ValueError(f"the layers {', '.join(map(str, content))}, not {', '.join(widths)}")
    sent: dict[str, Tensor | Encoded] = {}
    for layer, width in widths.items():
        given = content[layer]
        if not isinstance(given, dict | Tensor):
            raise ValueError(f"layer {layer} is no tensor")
        made = given.to(ids.device) if isinstance(given, Tensor) else _encoded(given, len(ids), width, ids.device)
        values = made.values if isinstance(made, Encoded) else made
        if values.shape != (len(ids), width) or values.dtype is not torch.float32:
            received = f"{tuple(values.shape)} {values.dtype}"
            raise ValueError(f"layer {layer} must be {(len(ids), width)} torch.float32, not {received}")
        sent[layer] = made
    return Message.of(sender, receiver, kind, ids, sent)


def _encoded(described: Mapping[str, Any], rows: int, width: int, device: torch.device) -> Encoded:
    """What the bytes say. Nothing is larger than the (rows, width) that were agreed, or than the bytes."""
    rule = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in described["rule"].items()}
    code: Grid | Codebook | None = None if described["code"] is None else _CODES[described["code"]](**rule)
    payload, announced, kept = described["payload"].to(device), described["announced"], described["places"]
    if payload.dtype is not torch.uint8 or payload.ndim != 1:
        raise ValueError("it has no bytes")
    if kept is not None and not 1 <= kept <= width:
        raise ValueError("it has more places than its width")
    count = width if kept is None else kept
    if isinstance(code, Codebook):
        if code.words.ndim != 2 or not 1 <= code.words.shape[1] <= max(_LONGEST_WORD, width):
            raise ValueError("it has no possible codebook")
        count = -(-width // code.words.shape[1])
    numbers = torch.empty(rows, count, dtype=torch.float32 if code is None else torch.int64, device=device)
    places = None if kept is None else torch.empty(rows, kept, dtype=torch.int64, device=device)
    header = payload[: 4 * announced].clone().view(torch.float32) if announced else None
    empty = Encoded(width, numbers, code, places, header)
    vars(empty)["payload"] = payload
    arrived = empty.arrived
    if arrived.places is not None and arrived.places.numel() and int(arrived.places.max()) >= width:
        raise ValueError("it has places beyond its width")
    if isinstance(code, Codebook) and arrived.numbers.numel() and int(arrived.numbers.max()) >= len(code.words):
        raise ValueError("it has words that its codebook lacks")
    return arrived


P = TypeVar("P")
_T = TypeVar("_T")


class PartyError(UserError):
    """A party that doesn't answer, or answers what it may not. party: its name."""

    def __init__(self, party: str, problem: str):
        super().__init__(f"party {party}: {problem}", key="engine")
        self.party = party


class Channel(Protocol):
    """The way to one party that lives elsewhere. Calls to one party come one after the other.

    party: its name.
    """

    @property
    def party(self) -> str: ...

    def call(self, method: str, content: Content) -> Content:
        """What its `PartyService` makes of the content. Raises PartyError, within the timeout of the engine."""
        ...


def threads_like_this(count: int) -> ThreadPoolExecutor:
    """Threads that take denormal numbers as this one does: what they decode is then the same."""
    return ThreadPoolExecutor(count, initializer=partial(torch.set_flush_denormal, flushes_denormals()))


def at_once(ask: Callable[[P], _T], parties: Sequence[P]) -> list[_T]:
    """What each of them answers; all of them are asked before the first has answered."""
    with threads_like_this(len(parties) or 1) as threads:
        return list(threads.map(ask, parties))
