"""Networks and generators of the parties of split learning."""

from collections.abc import Mapping
from functools import partial

import torch

from vflbench.data.table import LABEL_PARTY
from vflbench.messages.peer_facts import Architecture
from vflbench.models.base import Bottom
from vflbench.models.wrapped import as_bottom, drawing_from
from vflbench.protocols.base import Seating
from vflbench.protocols.label_adversary import Surroundings
from vflbench.protocols.parties import Noise


def bottom_of(party: str, outputs: int, seating: Seating) -> Bottom:
    """A party's network, drawn from the generator of its name."""
    return _built(party, outputs, seating, seating.generators[f"model/{party}"], training_rng(party, seating))


def _built(party: str, outputs: int, seating: Seating, rng: torch.Generator, draws: torch.Generator) -> Bottom:
    """draws: what a user's own module draws from while it trains."""
    columns = seating.columns[party]
    with drawing_from(rng):
        module = seating.model.bottom_for(columns.numeric, columns.cardinalities, outputs, rng)
        return as_bottom(module, columns.numeric, columns.cardinalities, outputs, draws).to(seating.device)


def architecture_of(party: str, outputs: int, seating: Seating) -> Architecture:
    """What others may know of a bottom: the network that it builds draws from their own generator."""

    def build(rng: torch.Generator) -> Bottom:
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        draws = torch.Generator(seating.device).manual_seed(seed)
        return _built(party, outputs, seating, torch.Generator().manual_seed(seed), draws)

    return Architecture(seating.columns[party].numeric, seating.columns[party].cardinalities, build)


def surroundings_of(sends: Mapping[str, tuple[str, ...]], outputs: int, seating: Seating) -> Surroundings:
    """What a label party that cheats has around it. sends: party -> the layers that it sends."""

    def bottom(party: str, rng: torch.Generator) -> Bottom:
        return _built(party, outputs, seating, rng, rng)

    return Surroundings(
        {party: partial(bottom, party) for party in sends},
        sends,
        seating.auxiliary,
        seating.classes,
        seating.generators.on(torch.device(seating.device), f"adversary/{LABEL_PARTY}"),
    )


def training_rng(part: str, seating: Seating) -> torch.Generator:
    """What a user's own module draws from while it trains, such as for dropout."""
    return seating.generators.on(torch.device(seating.device), f"model/{part}/training")


def noise_of(party: str, seating: Seating) -> Noise:
    """A party's generators of noise."""
    names = (f"defense/{party}", f"defense/{party}/predicting")
    return Noise(*(seating.generators.on(torch.device(seating.device), name) for name in names))
