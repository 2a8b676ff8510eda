"""A label party that cheats: it sends gradients of its own making."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import Defense
from vflbench.defenses.chain import claims_of
from vflbench.errors import UserError
from vflbench.messages.fact import Fact, Layers
from vflbench.messages.peer_facts import Auxiliary
from vflbench.models.base import Bottom
from vflbench.options import options
from vflbench.protocols.adversary import Adversary, usable_tensor


@dataclass(frozen=True)
class Surroundings:
    """What a label party that cheats has beside the messages.

    bottoms: party -> returns a new network of the architecture that the parties agreed on, with weights that the given
    generator draws. layers: party -> the layers that it sends. auxiliary: returns at most so many rows of its own, which are
    not trained on. classes: K. rng: a generator for all that the adversary draws, on the device of the values.
    """

    bottoms: Mapping[str, Callable[[torch.Generator], Bottom]]
    layers: Mapping[str, tuple[str, ...]]
    auxiliary: Callable[[int], Auxiliary]
    classes: int
    rng: torch.Generator


@options
class LabelAdversary(Adversary):
    """A label party that cheats in split learning, while all other parties stay honest. Hooks are honest unless overridden.

    facts_made: the kinds of facts that it gives to attacks at its seat, as `facts` returns them. trains_top: whether its own
    networks go on learning. reads_labels: whether what it sends follows from labels beside the honest gradients.
    """

    party: str = LABEL_PARTY
    facts_made: ClassVar[frozenset[type[Fact]]] = frozenset()

    @property
    def trains_top(self) -> bool:
        return True

    @property
    def reads_labels(self) -> bool:
        return False

    def begin(self, surroundings: Surroundings) -> None:
        """Before the run."""

    def meets(self, ids: Tensor, received: Mapping[str, Layers]) -> None:
        """Before `answer`: the ids (n,) of the rows, the same in every epoch, and what arrived about them."""

    def answer(self, received: Mapping[str, Layers], honest: Mapping[str, Layers], labels: Tensor) -> Mapping[str, Layers]:
        """What it sends in place of the honest gradients, party -> layer -> (n, d); in training alone.

        received: embeddings of the same shapes. honest: gradients as the label party's defenses leave them; zeros where one
        withheld them. labels: (n,) the classes that it trains on.
        """
        return honest

    def facts(self) -> Mapping[type[Fact], Fact]:
        """What attacks at its seat may read: copies as it stands now, of every kind in `facts_made`."""
        return {}


def refuse_broken_promise(adversary: LabelAdversary, defenses: Mapping[str, Defense]) -> None:
    """Raises UserError where what it sends follows from labels beside a defense that promises their privacy."""
    if adversary.reads_labels and (claims := claims_of(defenses)).label_privacy:
        promising = [name for name, one in claims.of.items() if one is not None and one.release is not None]
        problem = f"its gradients then follow from labels, and {' and '.join(promising)} promises that they are private"
        raise UserError(problem, key="adversary", value=f"{type(adversary).__name__}, which knows labels")


def usable_gradients(
    adversary: LabelAdversary, answers: Mapping[str, Layers], honest: Mapping[str, Layers]
) -> dict[str, dict[str, Tensor]]:
    """What `answer` returned, without a graph. Raises UserError for anything but tensors of the honest shapes."""
    if set(answers) != set(honest) or any(set(answers[party]) != set(honest[party]) for party in honest):
        raise UserError("its answer must be about every party and layer", key="adversary", value=type(adversary).__name__)
    return {
        party: {layer: usable_tensor(adversary, "answer", answers[party][layer], g) for layer, g in layers.items()}
        for party, layers in honest.items()
    }


def at_the_label_party(adversaries: Mapping[str, Adversary]) -> tuple[LabelAdversary | None, dict[str, Adversary]]:
    """The one that cheats at the label party, and all others. Raises UserError for two, or for one at another party."""
    cheating = {name: adversary for name, adversary in adversaries.items() if isinstance(adversary, LabelAdversary)}
    for number, (name, adversary) in enumerate(cheating.items()):
        if adversary.party != LABEL_PARTY:
            problem = f"it cheats with gradients, which only the party {LABEL_PARTY} sends"
            raise UserError(problem, key=f"adversary.{name}.party", value=adversary.party)
        if number:
            problem = "another adversary cheats at that party already"
            raise UserError(problem, key=f"adversary.{name}.party", value=adversary.party)
    others = {name: adversary for name, adversary in adversaries.items() if name not in cheating}
    return next(iter(cheating.values()), None), others
