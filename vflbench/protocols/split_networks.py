"""Networks and generators of the parties of split learning."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from vflbench.data.table import LABEL_PARTY, Columns
from vflbench.messages.peer_facts import Architecture
from vflbench.models.base import Bottom, CutModel
from vflbench.models.wrapped import as_bottom, drawing_from
from vflbench.protocols.base import Seating
from vflbench.protocols.label_adversary import Surroundings
from vflbench.protocols.parties import Noise


def bottom_of(party: str, outputs: int, seating: Seating) -> Bottom:
    """A party's network, drawn from the generator of its name."""
    return _Plan.of(party, outputs, seating).built(seating.generators[f"model/{party}"], training_rng(party, seating))


@dataclass(frozen=True)
class _Plan:
    """What a party's network is built from; no row can be reached from it."""

    model: CutModel
    columns: Columns
    outputs: int
    device: torch.device

    @classmethod
    def of(cls, party: str, outputs: int, seating: Seating) -> "_Plan":
        return cls(seating.model, seating.columns[party], outputs, seating.device)

    def built(self, rng: torch.Generator, draws: torch.Generator) -> Bottom:
        """draws: what a user's own module draws from while it trains."""
        sizes = self.columns.numeric, self.columns.cardinalities, self.outputs
        with drawing_from(rng):
            return as_bottom(self.model.bottom_for(*sizes, rng), *sizes, draws).to(self.device)


def architecture_of(party: str, outputs: int, seating: Seating) -> Architecture:
    """What others may know of a bottom: the network that it builds draws from their own generator."""
    plan = _Plan.of(party, outputs, seating)

    def build(rng: torch.Generator) -> Bottom:
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        draws = torch.Generator(plan.device).manual_seed(seed)
        return plan.built(torch.Generator().manual_seed(seed), draws)

    return Architecture(plan.columns.numeric, plan.columns.cardinalities, build)


def surroundings_of(sends: Mapping[str, tuple[str, ...]], outputs: int, seating: Seating) -> Surroundings:
    """What a label party that cheats has around it. sends: party -> the layers that it sends."""
    plans = {party: _Plan.of(party, outputs, seating) for party in sends}

    def bottom(plan: _Plan, rng: torch.Generator) -> Bottom:
        return plan.built(rng, rng)

    return Surroundings(
        {party: partial(bottom, plan) for party, plan in plans.items()},
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
