"""The layers of a run's network: their order, and which of them cross to another party."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vflbench.results.schema import Manifest

_LABEL_PARTY = "label"


@dataclass(frozen=True)
class Layers:
    """order: all layers, input to output. cut: party -> the layers that cross, the cut layer first."""

    order: tuple[str, ...]
    cut: Mapping[str, tuple[str, ...]]
    recorded: bool = True

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


def layers_of(manifest: Manifest, measured: Iterable[tuple[str, str]] = ()) -> Layers:
    """Those of the manifest, the label party's last; then what else was measured: (party, layer) of leaks."""
    cut = {party: tuple(layers) for party, layers in manifest.cut_layers.items()}
    parties = sorted(manifest.layers, key=_LABEL_PARTY.__eq__)
    order = [layer for party in parties for layer in (*manifest.layers[party], *cut.get(party, ()))]
    return Layers(tuple(dict.fromkeys([*order, *(layer for _, layer in measured)])), cut)


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
