"""The layers of a run's network: their order, and which of them cross to another party."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LABEL_PARTY = "label"
_WIDE = "wide"
"""The output of the linear part, which crosses beside the cut layer."""


@dataclass(frozen=True)
class Layers:
    """order: all layers, input to output. cut: party -> the layers that cross, the cut layer first.

    recorded: whether the run recorded its cut layers; otherwise they are inferred.
    """

    order: tuple[str, ...]
    cut: Mapping[str, tuple[str, ...]]
    recorded: bool

    @property
    def crossing(self) -> frozenset[str]:
        """The layers that cross at any party."""
        return frozenset(layer for layers in self.cut.values() for layer in layers)

    @property
    def bottom(self) -> tuple[str, ...]:
        """The layers up to the last one that crosses."""
        places = [place for place, layer in enumerate(self.order) if layer in self.crossing]
        return self.order[: places[-1] + 1] if places else ()

    def crosses(self, party: str, layer: str) -> bool:
        """Whether this layer of this party crosses; if no cut layer of the party is known, whether any party's does."""
        return layer in self.cut.get(party, self.crossing)


def layers_of(manifest: Mapping[str, Any], measured: Iterable[tuple[str, str, bool]]) -> Layers:
    """Read `layers` and `cut_layers` of a manifest.

    measured: (party, layer, visible) of all leaks that read a message, in the order in which they were measured. If the
    manifest records no cut layers, as in older versions, the cut layer of a party is its last visible one, and the linear
    part `wide` crosses where it was measured. If it records no order, the names give one: f1, f2, ..., wide, h1, h2, ...
    """
    measured = list(measured)
    recorded = isinstance(manifest.get("cut_layers"), Mapping)
    cut = _lists(manifest["cut_layers"]) if recorded else _inferred_cut(measured)
    parties = _lists(manifest.get("layers"))
    order = [layer for party in sorted(parties, key=_LABEL_PARTY.__eq__) for layer in (*parties[party], *cut.get(party, ()))]
    others = {layer for _, layer, _ in measured}.difference(order)
    return Layers(tuple(dict.fromkeys([*order, *sorted(others, key=_order_of_name)])), cut, recorded)


def marked(layer: str, crosses: bool) -> str:
    """`f5 (cut)` of a layer that crosses; a layer that is called `cut` says so itself."""
    return f"{layer} (cut)" if crosses and layer != "cut" else layer


def merged_order(runs: Iterable[Layers]) -> list[str]:
    """The layers of several runs in one order: a layer that only some have comes after its predecessor there."""
    merged: list[str] = []
    for order in sorted((layers.order for layers in runs), key=len, reverse=True):
        for place, layer in enumerate(order):
            if layer not in merged:
                merged.insert(merged.index(order[place - 1]) + 1 if place else 0, layer)
    return merged


def _inferred_cut(measured: Sequence[tuple[str, str, bool]]) -> dict[str, tuple[str, ...]]:
    visible: dict[str, list[str]] = {}
    for party, layer, is_visible in measured:
        if is_visible:
            visible.setdefault(party, []).append(layer)
    deep = {party: [layer for layer in layers if layer != _WIDE] for party, layers in visible.items()}
    return {party: (*deep[party][-1:], *[_WIDE] * (_WIDE in layers)) for party, layers in visible.items()}


def _lists(value: Any) -> dict[str, tuple[str, ...]]:
    """Party -> names; nothing where they are not lists."""
    lists = value.items() if isinstance(value, Mapping) else ()
    return {str(party): tuple(map(str, names)) for party, names in lists if isinstance(names, list | tuple)}


def _order_of_name(layer: str) -> tuple[int, int, str]:
    digits = "".join(c for c in layer if c.isdigit())
    return (1, 0, layer) if not digits else (0 if layer.startswith("f") else 2, int(digits), layer)
