"""Messages as plain values for an envelope: what crosses compressed is carried as the very bytes that are counted."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.messages.codec import Codebook, Encoded, Grid, RowGrid
from vflbench.messages.message import Kind, Message

_MOST_WIDTH, _MOST_CODES, _LONGEST_WORD = 10**7, 1 << 24, 4096


class Sending:
    """Makes content of the messages that go one way. A codebook is carried when it is not the one that was carried last."""

    def __init__(self) -> None:
        self._books: dict[str, Tensor] = {}

    def content(self, message: Message) -> dict[str, Any]:
        plain = {layer: values for layer, values in message.tensors.items() if layer not in message.encoded}
        packed = {layer: self._packed(layer, encoded) for layer, encoded in message.encoded.items()}
        return {"order": list(message.tensors), "tensors": plain, "encoded": packed}

    def _packed(self, layer: str, encoded: Encoded) -> dict[str, Any]:
        announced = 0 if encoded.announced is None else len(encoded.announced)
        places = None if encoded.places is None else encoded.places.shape[1]
        code, more = self._code(layer, encoded)
        described = {"width": encoded.width, "shape": list(encoded.numbers.shape), "announced": announced, "places": places}
        return {**described, **code, **more, "payload": encoded.payload}

    def _code(self, layer: str, encoded: Encoded) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the code is, and what of it the receiver can't know: nothing, where it follows from what is announced."""
        code = encoded.code
        if code is None:
            return {"code": "none"}, {}
        if isinstance(code, Grid):
            values = [code.low, code.step, code.levels, code.top, code.noise_mean, code.corrected]
            return {"code": "grid", "grid": values}, {}
        if isinstance(code, RowGrid):
            form = next((form for form in _ROWS if _is_announced(form, code, encoded.announced)), None)
            return {"code": "rows", "levels": code.levels, "form": form}, (
                {} if form is not None else {"low": code.low, "step": code.step}
            )
        words = code.words
        known = self._books.get(layer)
        self._books[layer] = words
        same = known is not None and known.shape == words.shape and bool((known == words).all())
        from_announced = encoded.announced is not None and bool(torch.equal(encoded.announced, words.reshape(-1)))
        described = {"code": "words", "words": list(words.shape), "known": same or from_announced}
        return described, {} if same or from_announced else {"book": words}


class Receiving:
    """Makes messages of content. Raises ValueError for what is none."""

    def __init__(self) -> None:
        self._books: dict[str, Tensor] = {}

    def message(
        self,
        content: Mapping[str, Any],
        sender: str,
        receiver: str,
        kind: Kind,
        ids: Tensor,
        agreed: Mapping[str, tuple[int, int]],
    ) -> Message:
        """sender, receiver, kind, ids: as both sides know them. agreed: the layers, with rows and width of each. Nothing is
        decoded before they are compared.
        """
        order, plain, packed = content["order"], content["tensors"], content["encoded"]
        if not all(type(part) is dict for part in (plain, packed)) or type(order) is not list:
            raise ValueError("a message without layers")
        if len(set(order)) != len(order) or set(order) != set(plain) | set(packed) or set(plain) & set(packed):
            raise ValueError("a message with a layer that is there twice, or not at all")
        if set(order) != set(agreed):
            raise ValueError(f"the layers {', '.join(map(str, order))}, not {', '.join(agreed)}")
        for layer, values in plain.items():
            if not isinstance(values, Tensor):
                raise ValueError(f"layer {layer} is no tensor")
            if tuple(values.shape) != agreed[layer] or values.dtype is not torch.float32:
                found = f"{tuple(values.shape)} {values.dtype}"
                raise ValueError(f"layer {layer} must be {agreed[layer]} torch.float32, not {found}")
        for layer, described in packed.items():
            if type(described) is not dict or (described["shape"][:1], described["width"]) != (
                [agreed[layer][0]],
                agreed[layer][1],
            ):
                raise ValueError(f"layer {layer} must be {agreed[layer]}")
        encoded = {layer: self._unpacked(layer, described, ids.device) for layer, described in packed.items()}
        tensors = {layer: encoded[layer].values if layer in encoded else plain[layer].to(ids.device) for layer in agreed}
        return Message(sender, receiver, kind, ids, tensors, encoded)

    def _unpacked(self, layer: str, described: Mapping[str, Any], device: torch.device) -> Encoded:
        width, shape, announced = described["width"], described["shape"], described["announced"]
        payload, kept = described["payload"], described["places"]
        numbers = [width, announced, *shape, *([] if kept is None else [kept])]
        if any(type(n) is not int or not 0 <= n <= _MOST_WIDTH for n in numbers) or len(shape) != 2 or width < 1:
            raise ValueError(f"layer {layer} is of no possible size")
        if not isinstance(payload, Tensor) or payload.dtype is not torch.uint8 or payload.ndim != 1:
            raise ValueError(f"layer {layer} has no bytes")
        if math.prod(shape) > 8 * len(payload) or (kept is not None and kept > width) or 4 * announced > len(payload):
            raise ValueError(f"layer {layer} has too few bytes")
        payload, n = payload.to(device), shape[0]
        told = payload[: 4 * announced].clone().view(torch.float32) if announced else None
        places = None if kept is None else torch.empty(n, kept, dtype=torch.int64, device=device)
        code = self._code_of(layer, described, told, n, device)
        if shape[1] != _numbers_of_a_row(code, width, kept):
            raise ValueError(f"layer {layer} has another count of numbers than its width says")
        number_type = torch.float32 if code is None else torch.int64
        empty = Encoded(width, torch.empty(shape, dtype=number_type, device=device), code, places, told)
        return _arrived(empty, payload, layer)

    def _code_of(
        self, layer: str, described: Mapping[str, Any], told: Tensor | None, n: int, device: torch.device
    ) -> Grid | RowGrid | Codebook | None:
        match described["code"]:
            case "none":
                return None
            case "grid":
                low, step, levels, top, mean, corrected = described["grid"]
                floats, ints = (low, step, mean), (levels, top)
                if any(type(x) is not float or not math.isfinite(x) for x in floats) or type(corrected) is not bool:
                    raise ValueError(f"layer {layer} is on no grid")
                if any(type(x) is not int or not 1 <= x <= 2**53 for x in ints):
                    raise ValueError(f"layer {layer} is on no grid")
                return Grid(low, step, levels, top, mean, corrected)
            case "rows":
                levels, form = described["levels"], described["form"]
                if type(levels) is not int or not 2 <= levels <= 2**53:
                    raise ValueError(f"layer {layer} is on no grid")
                if form is None:
                    low, step = described.get("low"), described.get("step")
                elif form in _ROWS and told is not None:
                    low, step = _ROWS[form](told)
                else:
                    raise ValueError(f"layer {layer} is on no grid")
                if any(not isinstance(x, Tensor) or x.shape != (n, 1) or x.dtype is not torch.float32 for x in (low, step)):
                    raise ValueError(f"layer {layer} is on no grid of its rows")
                return RowGrid(low.to(device), step.to(device), levels)
            case "words":
                return Codebook(self._words(layer, described, told, described["width"]).to(device))
        raise ValueError(f"layer {layer} has a code of no known kind")

    def _words(self, layer: str, described: Mapping[str, Any], told: Tensor | None, width: int) -> Tensor:
        shape, book = described["words"], described.get("book")
        if (
            len(shape) != 2
            or any(type(k) is not int or not 1 <= k <= _MOST_CODES for k in shape)
            or shape[1] > max(_LONGEST_WORD, width)
        ):
            raise ValueError(f"layer {layer} has no possible codebook")
        if book is None:
            book = self._books.get(layer) if told is None else told.view(-1)
        if not isinstance(book, Tensor) or book.dtype is not torch.float32 or book.numel() != math.prod(shape):
            raise ValueError(f"layer {layer} has a codebook that nobody announced")
        self._books[layer] = book.view(shape)
        return self._books[layer]


_ROWS = {
    "ends": lambda told: (told[: len(told) // 2, None], told[len(told) // 2 :, None]),
    "signs": lambda told: (-told[:, None], 2 * told[:, None]),
}
"""How the grid of each row follows from what is announced."""


def _is_announced(form: str, code: RowGrid, announced: Tensor | None) -> bool:
    if announced is None or len(announced) != len(code.low) * (2 if form == "ends" else 1):
        return False
    low, step = _ROWS[form](announced)
    return torch.equal(low, code.low) and torch.equal(step, code.step)


def _numbers_of_a_row(code: Grid | RowGrid | Codebook | None, width: int, kept: int | None) -> int:
    if isinstance(code, Codebook):
        return -(-width // code.words.shape[1])
    return width if kept is None else kept


def _arrived(empty: Encoded, payload: Tensor, layer: str) -> Encoded:
    """What the bytes say. empty: of the same shapes, with any numbers."""
    vars(empty)["payload"] = payload
    arrived = empty.arrived
    if len(arrived.payload) != len(payload):
        raise ValueError(f"layer {layer} has bytes that belong to nothing")
    if arrived.places is not None and arrived.places.numel() and int(arrived.places.max()) >= arrived.width:
        raise ValueError(f"layer {layer} has places beyond its width")
    if (
        isinstance(arrived.code, Codebook)
        and arrived.numbers.numel()
        and int(arrived.numbers.max()) >= len(arrived.code.words)
    ):
        raise ValueError(f"layer {layer} has words that its codebook lacks")
    return arrived
