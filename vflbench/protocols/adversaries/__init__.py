"""Adversary: what every entry of configs/adversary builds: a party that deviates from the protocol, in either role."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vflbench.data.table import LABEL_PARTY
from vflbench.defenses.base import Context, Defense
from vflbench.defenses.chain import claims_of
from vflbench.errors import UserError
from vflbench.messages.codec import Encoded
from vflbench.messages.facts import Auxiliary, Fact, Layers
from vflbench.models.base import Bottom
from vflbench.models.optimizers import Optimizer, Stepper, attach
from vflbench.options import options


@options
class Adversary:
    """A non-label party that cheats in split learning, while all other parties stay honest. Hooks are honest unless
    overridden.

    Attributes beside the options that are tensors, numbers, strings, lists and dicts are saved, and restored when a run is
    resumed.

    Args:
        party: name of the one that cheats.
    """

    party: str = "a"

    def attach(self, network: nn.Module, optimizer: Optimizer) -> Stepper:
        """The optimiser of its own network. optimizer: the one that the parties agreed on."""
        return attach(optimizer, network)

    def embedding(self, layer: str, h: Tensor | Encoded, context: Context) -> Tensor | Encoded:
        """What it sends in place of h, (n, d), after its defenses; in training alone."""
        return h

    def gradient(self, layer: str, g: Tensor, h: Tensor, context: Context) -> Tensor:
        """The gradient that it learns from in place of g, the received one, (n, d). h: its activations, (n, d)."""
        return g

    def text(self) -> str:
        """What it does, for the threat line: the first sentence of the docstring."""
        return " ".join((inspect.getdoc(type(self)) or type(self).__name__).split("\n\n")[0].split())


def usable(adversary: Adversary, hook: str, values: Any, honest: Tensor) -> Any:
    """What a hook returned, without a graph: a tensor of the shape of the honest one; of an embedding, perhaps `Encoded`.

    Raises UserError for anything else.
    """
    is_encoded, shape = isinstance(values, Encoded), tuple(honest.shape)
    given = (len(values.numbers), values.width) if is_encoded else tuple(values.shape) if isinstance(values, Tensor) else ()
    if given != shape:
        problem = f"its {hook} must return a tensor of shape {shape}, not {given or type(values).__name__}"
        raise UserError(problem, key="adversary", value=type(adversary).__name__)
    return values if is_encoded else values.detach()


@dataclass(frozen=True)
class Surroundings:
    """What a label party that cheats has beside the messages.

    bottoms: party -> returns a new network of the architecture that the parties agreed on, with weights that the given
    generator draws. layers: party -> the layers that it sends. auxiliary:
    returns at most so many rows of its own, which are not trained on. classes: K. rng: a generator for all that the
    adversary draws, on the device of the values.
    """

    bottoms: Mapping[str, Callable[[torch.Generator], Bottom]]
    layers: Mapping[str, tuple[str, ...]]
    auxiliary: Callable[[int], Auxiliary]
    classes: int
    rng: torch.Generator


@options
class LabelAdversary(Adversary):
    """A label party that cheats in split learning, while all other parties stay honest. Hooks are honest unless overridden.

    facts_made: the kinds of facts that it gives to its party's attacks, as `facts` returns them. trains_top: whether its own
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
        """What attacks of its party may read: copies as it stands now, of every kind in `facts_made`."""
        return {}


def refuse_broken_promise(adversary: LabelAdversary, defenses: Mapping[str, Defense]) -> None:
    """Raises UserError where what it sends follows from labels beside a defense that promises their privacy."""
    if adversary.reads_labels and (claims := claims_of(defenses)).label_privacy:
        promising = [name for name, one in claims.of.items() if one is not None and one.release is not None]
        problem = f"its gradients then follow from labels, and {' and '.join(promising)} promises that they are private"
        raise UserError(problem, key="adversary", value=f"{type(adversary).__name__}, which knows labels")


def by_party(adversaries: Mapping[str, Adversary], parties: tuple[str, ...]) -> dict[str, Adversary]:
    """Party -> its adversary. parties: non-label ones that can cheat. Raises UserError for another one, or for two at one
    party.
    """
    by_name: dict[str, Adversary] = {}
    for name, adversary in adversaries.items():
        problem = "another adversary cheats at that party already" if adversary.party in by_name else ""
        if isinstance(adversary, LabelAdversary):
            if adversary.party != LABEL_PARTY:
                problem = f"it cheats with gradients, which only the party {LABEL_PARTY} sends"
        elif adversary.party not in parties:
            problem = f"there is no such non-label party; there are {', '.join(parties)}"
        if problem:
            raise UserError(problem, key=f"adversary.{name}.party", value=adversary.party)
        by_name[adversary.party] = adversary
    return by_name
